"""Every safety line is found by its symbols, and tests of the ordinary run stand behind it.

That these tests fail without it is shown by `tests/acceptance/test_24_reverts.py` and `python -m tests.reverts`.
"""

import ast

import pytest

from tests.docs.pages import ROOT
from tests.named import names_of_tests
from tests.reverts.catalogue import REVERTS, Revert
from tests.reverts.python_edits import Function
from tests.reverts.sql_edits import Statement

PROTECTED = {"fence", "compare-and-set", "recovery", "durable cancel", "slot advance"}


@pytest.mark.parametrize("revert", REVERTS, ids=lambda revert: revert.name)
def test_a_safety_line_is_found_once_and_can_be_reverted(revert: Revert) -> None:
    edited = revert.change.edited()
    assert edited != revert.change.text()
    if isinstance(revert.change, Function):
        ast.parse(edited)


@pytest.mark.parametrize("revert", REVERTS, ids=lambda revert: revert.name)
def test_the_tests_behind_a_safety_line_exist(revert: Revert) -> None:
    assert revert.tests
    for test in revert.tests:
        path, _, name = test.partition("[")[0].partition("::")
        assert name.rpartition("::")[2] in names_of_tests(ROOT / path), test


def test_each_property_is_reverted_on_both_stores_where_their_statements_keep_it() -> None:
    assert {revert.protects for revert in REVERTS} == PROTECTED
    for protected in PROTECTED:
        changes = [revert.change for revert in REVERTS if revert.protects == protected]
        dialects = {change.dialect for change in changes if isinstance(change, Statement)}
        assert dialects in ({"postgres", "sqlite"}, set()), protected
