"""Every safety line is where it is said to be, and tests of the ordinary run stand behind it.

That these tests fail without it is shown by `tests/acceptance/test_24_reverts.py` and `python -m tests.reverts`.
"""

import pytest

from tests.docs.pages import ROOT
from tests.named import names_of_tests
from tests.reverts.lines import REVERTS, Revert

CARES = {"fence", "compare-and-set", "recovery", "durable cancel", "slot advance"}


@pytest.mark.parametrize("revert", REVERTS, ids=lambda revert: revert.name)
def test_a_safety_line_stands_once_and_can_be_reverted(revert: Revert) -> None:
    source = (ROOT / revert.file).read_text("utf-8")
    assert revert.applied(source) != source


@pytest.mark.parametrize("revert", REVERTS, ids=lambda revert: revert.name)
def test_the_tests_behind_a_safety_line_exist(revert: Revert) -> None:
    assert revert.tests
    for test in revert.tests:
        path, _, name = test.partition("[")[0].partition("::")
        assert name.rpartition("::")[2] in names_of_tests(ROOT / path), test


def test_each_care_is_reverted_on_both_stores_where_it_is_in_their_statements() -> None:
    assert {revert.care for revert in REVERTS} == CARES
    for care in CARES:
        files = {revert.file for revert in REVERTS if revert.care == care}
        assert {"src/horae/stores/postgres/statements.sql", "src/horae/stores/sqlite/statements.sql"} <= files, care
