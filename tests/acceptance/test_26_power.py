"""Issue 5, line 5: the power is cut under SQLite at any write, and nothing that was acknowledged is lost."""

from pathlib import Path

import pytest

from tests.acceptance.conftest import Tell
from tests.system import power

pytestmark = pytest.mark.acceptance


def test_200_power_cuts_cost_nothing_that_was_acknowledged(tmp_path: Path, tell: Tell) -> None:
    seen = power.check_power_cuts(tmp_path, jobs=600, count=200, seed=5, commands=10)
    tell(seen)
    assert seen.cuts == 200
    assert seen.unsynced >= 50, "the cuts fell where they take nothing"
    assert seen.in_checkpoint >= 5, "no cut fell into a checkpoint"
