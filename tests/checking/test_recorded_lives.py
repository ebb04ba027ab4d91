"""Whatever happens to nodes and jobs, the judges find nothing wrong with what a harness records of the engine."""

from pathlib import Path

import pytest

from horae.checking import Recording, judge_recording
from tests.checking.living import recorded_life

LONG = [pytest.param(seed, 40, marks=pytest.mark.acceptance) for seed in range(40)]


@pytest.fixture(autouse=True)
def nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing confirms a cancel while virtual time stands still."""
    monkeypatch.setattr("horae.services.stopping.CONFIRM_SECONDS", 0.0)


@pytest.mark.parametrize(("seed", "steps"), [(3, 15), *LONG])
async def test_nothing_is_wrong_with_a_recorded_life(tmp_path: Path, seed: int, steps: int) -> None:
    verdict = judge_recording(Recording(await recorded_life(tmp_path, seed, steps)))
    assert verdict.violations == []
    assert verdict.starts > 20
