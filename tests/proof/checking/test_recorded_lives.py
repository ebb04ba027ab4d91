"""The judges find nothing wrong with recorded lives of the engine, and do find what broken stores cause."""

from pathlib import Path

import pytest

from horae.proof.checking import Code, Recording, judge_recording
from horae.proof.checking.history.records import Line, Occurrence
from tests.proof.checking.broken_stores import BROKEN_STORES, BrokenStore, IgnoresFences
from tests.proof.checking.recorded_engine import frozen_life, recorded_life

LONG = [pytest.param(seed, 40, marks=pytest.mark.acceptance) for seed in range(40)]
LIVES = 12  # that a spoilt store may go through before it is found out


@pytest.fixture(autouse=True)
def nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for cancels to be confirmed: virtual time stands still."""
    monkeypatch.setattr("horae.jobs.cancel.CONFIRM_SECONDS", 0.0)


def broken(lines: list[Line]) -> set[str]:
    return {violation.invariant for violation in judge_recording(Recording(lines)).violations}


@pytest.mark.parametrize(("seed", "steps"), [(3, 15), *LONG])
async def test_nothing_is_wrong_with_a_recorded_life(tmp_path: Path, seed: int, steps: int) -> None:
    verdict = judge_recording(Recording(await recorded_life(tmp_path, seed, steps)))
    assert verdict.violations == []
    assert verdict.starts > 10  # else it shows little; where much is cancelled, few runs start


@pytest.mark.parametrize("kind", BROKEN_STORES, ids=lambda kind: f"{BROKEN_STORES[kind]} {kind.__name__}")
async def test_a_store_that_breaks_a_promise_is_found_out(tmp_path: Path, kind: type[BrokenStore]) -> None:
    for seed in range(1, LIVES):
        if BROKEN_STORES[kind] in broken(await recorded_life(tmp_path, seed, 20, kind)):
            return
    raise AssertionError(f"{LIVES} lives on a store that is {kind.__name__} look well")


async def test_a_late_result_is_refused_and_found_where_it_is_not(tmp_path: Path) -> None:
    (tmp_path / "spoilt").mkdir()
    well = judge_recording(Recording(await frozen_life(tmp_path)))
    assert well.violations == []
    assert all(
        well.coverage.occurrences[occurrence]
        for occurrence in (Occurrence.LEASE_LOST, Occurrence.REFUSED_REPORT, Occurrence.RESCUE)
    )
    broken = judge_recording(Recording(await frozen_life(tmp_path / "spoilt", IgnoresFences)))
    assert Code.STALE_RESULT_TAKEN in {violation.code for violation in broken.violations}
