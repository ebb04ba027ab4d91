"""Issue 5: the judges find nothing in 1,000 clean histories, and find every planted violation."""

from collections.abc import Callable

import pytest

from tests.acceptance.conftest import ReportFigure
from tests.proof.checking.clean_histories import clean_history
from tests.proof.checking.history_mutants import MUTANTS, Draft
from tests.proof.checking.mutated_histories import found_in, uncaught

pytestmark = pytest.mark.acceptance

HISTORIES = 1_000
TIMES = 20


def test_a_thousand_clean_histories_raise_nothing(report_figure: ReportFigure) -> None:
    assert {seed: found for seed in range(HISTORIES) if (found := found_in(clean_history(seed)))} == {}
    report_figure(f"{HISTORIES} clean histories, nothing found")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{MUTANTS[mutant]} {mutant.__name__}")
def test_a_violation_is_caught_wherever_it_is_planted(
    mutant: Callable[[Draft], None], report_figure: ReportFigure
) -> None:
    assert uncaught(mutant, TIMES) == {}
    report_figure(f"caught {TIMES} times by {MUTANTS[mutant]}")
