"""Issue 5: the judges of recorded histories believe 1,000 true ones and catch whatever is planted, wherever."""

from collections.abc import Callable

import pytest

from tests.acceptance.conftest import Tell
from tests.proof.checking.clean_histories import clean_history
from tests.proof.checking.history_mutants import MUTANTS, Draft
from tests.proof.checking.mutated_histories import found_in, uncaught

pytestmark = pytest.mark.acceptance

HISTORIES = 1_000
TIMES = 20


def test_a_thousand_clean_histories_raise_nothing(tell: Tell) -> None:
    assert {seed: found for seed in range(HISTORIES) if (found := found_in(clean_history(seed)))} == {}
    tell(f"{HISTORIES} clean histories, nothing found")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{MUTANTS[mutant]} {mutant.__name__}")
def test_a_violation_is_caught_wherever_it_is_planted(mutant: Callable[[Draft], None], tell: Tell) -> None:
    assert uncaught(mutant, TIMES) == {}
    tell(f"caught {TIMES} times by {MUTANTS[mutant]}")
