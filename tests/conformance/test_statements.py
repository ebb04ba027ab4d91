"""The loader of named SQL statements."""

import pytest

from horae.stores.common.statements import load, parse

SHARED = """
-- Notes before the first part belong to nobody.

-- fragment: columns
-- id first
id, name;

-- fragment: jobs
SELECT {columns} FROM jobs;

-- name: all_jobs
{jobs} ORDER BY id;


-- ===== a section =====

-- name: one_job
-- by its id
{jobs} WHERE id = ?  -- just one
 LIMIT 1;
"""


def test_a_statement_includes_the_fragments_that_it_names() -> None:
    assert parse(SHARED) == {
        "all_jobs": "SELECT id, name FROM jobs ORDER BY id",
        "one_job": "SELECT id, name FROM jobs WHERE id = ?  -- just one\n LIMIT 1",
    }


WITH_PARAMETERS = """
-- fragment: due
due_at <= $1;

-- fragment: first(table, rows)
SELECT {table}.id FROM {table} WHERE {rows};

-- fragment: first_two(table, rows)
{first({table}, {rows})} UNION {first(history, {rows})};

-- name: first_runs
{first_two(runs, {due} AND NOT paused)};
"""


def test_a_fragment_has_parameters_that_are_words_or_other_fragments() -> None:
    assert parse(WITH_PARAMETERS) == {
        "first_runs": "SELECT runs.id FROM runs WHERE due_at <= $1 AND NOT paused"
        " UNION SELECT history.id FROM history WHERE due_at <= $1 AND NOT paused"
    }


@pytest.mark.parametrize(
    ("file", "problem"),
    [
        ("-- fragment: a(b)\n{b};\n-- name: c\nSELECT {a};\n", "{a} has 0 arguments, but a has 1 parameters"),
        ("-- fragment: a\nid;\n-- name: c\nSELECT {a(b)};\n", "{a(b)} has 1 arguments, but a has 0 parameters"),
        ("-- fragment: a(b)\n{b};\n-- name: c\nSELECT {a({d})};\n", "{d} names no fragment that stands above it"),
        ("-- fragment: a(b)\n{c};\n-- name: d\nSELECT {a(b)};\n", "{c} names no fragment that stands above it"),
        ("-- name: a\nSELECT {b};\n", "{b} names no fragment that stands above it"),
        ("-- name: a\nSELECT {b};\n-- fragment: b\nid;\n", "{b} names no fragment that stands above it"),
        ("-- name: a\nSELECT 1;\n-- name: b\nSELECT {a};\n", "{a} names no fragment that stands above it"),
        ("-- name: a\nSELECT {};\n", "{ names no fragment that stands above it"),
        ("-- name: a\nSELECT {a\n};\n", "{ names no fragment that stands above it"),
        ("-- fragment: a\nid;\n-- name: b\nSELECT 1;\n", "no statement includes a"),
        ("-- name: a\nSELECT 1;\n-- name: a\nSELECT 2;\n", "there are two parts with the name a"),
        ("-- fragment: a\nid;\n-- name: a\nSELECT {a};\n", "there are two parts with the name a"),
        ("-- name: a\nSELECT 1\n-- name: b\nSELECT 2;\n", "a must end with a semicolon and have no other"),
        ("-- name: a\nSELECT 1;\nSELECT 2;\n", "a must end with a semicolon and have no other"),
    ],
)
def test_a_file_with_a_mistake_is_refused(file: str, problem: str) -> None:
    with pytest.raises(ValueError) as refused:
        parse(file)
    assert str(refused.value) == problem


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_every_statement_of_a_dialect_is_complete(dialect: str) -> None:
    assert not [name for name, sql in load(dialect).items() if "{" in sql or sql.endswith(";")]
