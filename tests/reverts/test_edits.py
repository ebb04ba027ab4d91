"""Reverts find their place by symbols, whatever the layout, and report a missing or ambiguous anchor as an error."""

import pytest

from tests.reverts.python_edits import Function, PythonEdit, ignore_if, replace_argument, replace_call
from tests.reverts.sql_edits import AnchorError, SqlEdit, Statement, always, clear, keep, never

UPDATE = """
-- A comment: AND fence = 1
UPDATE runs SET state = given.state, wake_at = coalesce(given.wake_at, 'x, y'), node = NULL
  FROM unnest($1::uuid[], $2::bigint[]) AS given(id, fence)
 WHERE runs.id BETWEEN given.id AND given.id AND runs.fence = given.fence
   AND EXISTS (SELECT 1 FROM nodes WHERE nodes.id = runs.node AND nodes.lost = false)
RETURNING runs.id, runs.fence"""


@pytest.mark.parametrize(
    ("edit", "before", "after"),
    [
        (always("fence", "="), "runs.fence = given.fence", "(runs.fence = given.fence OR true)"),
        (
            never("between"),
            "runs.id BETWEEN given.id AND given.id",
            "(runs.id BETWEEN given.id AND given.id AND false)",
        ),
        (always("lost"), "nodes.lost = false", "(nodes.lost = false OR true)"),
        (keep("state"), "state = given.state", "state = CASE WHEN true THEN runs.state ELSE given.state END"),
        (clear("stop"), "node = NULL", "node = NULL, stop = NULL"),
    ],
)
def test_an_edit_of_a_statement_changes_one_place(edit: SqlEdit, before: str, after: str) -> None:
    assert edit(UPDATE) == UPDATE.replace(before, after)


def test_a_condition_is_found_whatever_the_layout_and_the_case() -> None:
    assert always("fence", "=")("select a from runs where id=$1 and\n  fence  =\t$2 order by a") == (
        "select a from runs where id=$1 and\n  (fence  =\t$2 OR true) order by a"
    )


def test_an_and_inside_a_case_joins_no_conditions() -> None:
    sql = "SELECT 1 FROM runs WHERE CASE WHEN a AND b THEN c ELSE d END AND fence = $1"
    assert always("a")(sql) == sql.replace(
        "CASE WHEN a AND b THEN c ELSE d END", "(CASE WHEN a AND b THEN c ELSE d END OR true)"
    )


@pytest.mark.parametrize(
    ("edit", "sql"),
    [
        (always("fence", "="), "SELECT fence FROM runs WHERE id = $1"),
        (always("fence", "="), "SELECT 1 FROM runs WHERE fence = $1 AND fence = $2"),
        (keep("stop"), UPDATE),
        (clear("node"), UPDATE),
        (clear("stop"), "DELETE FROM runs WHERE id = $1"),
    ],
)
def test_an_anchor_in_a_statement_that_is_missing_or_not_unique_is_an_error(edit: SqlEdit, sql: str) -> None:
    with pytest.raises(AnchorError):
        edit(sql)


def test_a_statement_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(AnchorError, match="no statement 'unknown'"):
        Statement("sqlite", "unknown", always("fence")).edited()


PYTHON = '''
class Planner:
    async def sweep(self):
        """Ünïcode before the line."""
        if not self.ready: return "é" if (
            self.run.stop is Reason.CANCELLED) else None
        if self.run.stop is (
            Reason.CANCELLED
        ):
            pass
        found = await self._find(now)
        return Firing(job=job, next_fire_at=None) or Firing(job=job, runs=runs, next_fire_at=following)
'''


@pytest.mark.parametrize(
    ("edit", "before", "after"),
    [
        (
            ignore_if("stop", "CANCELLED"),
            "self.run.stop is (\n            Reason.CANCELLED\n        )",
            "(self.run.stop is (\n            Reason.CANCELLED\n        )) and False",
        ),
        (replace_call("_find", "now", by="0"), "await self._find(now)", "0"),
        (
            replace_argument("Firing", "next_fire_at", beside=("runs",), by="job.at"),
            "next_fire_at=following",
            "next_fire_at=job.at",
        ),
    ],
)
def test_an_edit_of_a_function_changes_one_place(edit: PythonEdit, before: str, after: str) -> None:
    assert edit(PYTHON, "Planner.sweep") == PYTHON.replace(before, after)
    assert edit(PYTHON, "sweep") == PYTHON.replace(before, after)


@pytest.mark.parametrize(
    "edit",
    [
        ignore_if("unknown"),
        replace_call("Firing", by="0"),
        replace_argument("Firing", "next_fire_at", beside=(), by="0"),
    ],
)
def test_an_anchor_in_a_function_that_is_missing_or_not_unique_is_an_error(edit: PythonEdit) -> None:
    with pytest.raises(AnchorError):
        edit(PYTHON, "sweep")


@pytest.mark.parametrize(("module", "name"), [("horae.core.decisions.results", "unknown"), ("horae.unknown", "lost")])
def test_a_function_or_module_that_does_not_exist_is_an_error(module: str, name: str) -> None:
    with pytest.raises(AnchorError):
        Function(module, name, ignore_if("stop")).edited()
