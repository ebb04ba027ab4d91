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


@pytest.mark.parametrize(
    ("file", "problem"),
    [
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
