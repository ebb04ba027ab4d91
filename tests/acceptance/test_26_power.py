"""Issue 5, line 5: power cuts under SQLite at any write lose nothing that was acknowledged."""

from pathlib import Path

import pytest

from tests.acceptance.conftest import ReportFigure
from tests.system import power

pytestmark = pytest.mark.acceptance


def test_200_power_cuts_cost_nothing_that_was_acknowledged(tmp_path: Path, report_figure: ReportFigure) -> None:
    seen = power.check_power_cuts(tmp_path, jobs=600, count=200, seed=5, commands=10)
    report_figure(seen)
    assert seen.cuts == 200
    assert seen.unsynced >= 50, "the cuts fell where they take nothing"
    assert seen.in_checkpoint >= 5, "no cut fell into a checkpoint"
