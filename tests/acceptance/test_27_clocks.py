"""Issue 5, line 3: the outcomes are the same, whichever wall clock is an hour wrong, and from whenever."""

from itertools import product
from pathlib import Path

import pytest

from horae.proof.checking import differences, history_class
from tests.acceptance.conftest import ReportFigure
from tests.system.clocks import ROLES, Life, Skew, lived

pytestmark = pytest.mark.acceptance

SKEWS = [
    Skew(role=role, hours=hours, from_start=from_start)
    for role, hours, from_start in product(ROLES, (1, -1), (True, False))
]


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Life:
    """The history with right clocks."""
    return lived(tmp_path_factory.mktemp("usual"), None)


def test_where_every_clock_is_right_everything_comes_out_as_asked(usual: Life) -> None:
    assert not usual.violations
    ends = history_class(usual.recording)
    assert ends["slots-allow"] == ends["slots-skip"] == ("schedule succeeded",)
    assert [ends[label][0].split()[1] for label in ("far", "long", "flaky", "hopeless", "within", "key-3")] == [
        *("cancelled", "succeeded", "succeeded", "failed", "succeeded", "succeeded")
    ]
    assert len(ends) == 31


@pytest.mark.parametrize("skew", SKEWS, ids=str)
def test_a_wrong_wall_clock_changes_no_outcome_and_is_told(
    usual: Life, skew: Skew, tmp_path: Path, report_figure: ReportFigure
) -> None:
    life = lived(tmp_path, skew)
    assert not life.violations
    assert list(differences(usual.recording, life.recording)) == []
    report_figure(f"{len(history_class(life.recording))} jobs came out the same")
