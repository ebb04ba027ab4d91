"""Rules for migrations: they expand, so that nodes of the release before go on, and lock nobody out for long."""

import re

import pytest

from horae.stores.common.migrations import Migration, Way, all_migrations, read_migration
from tests.system.releases import PREVIOUS_VERSIONS as PREVIOUS

LARGE = r"(?:runs|history|attempts|jobs|skips|events|records|blobs|letters)"  # tables with a row for each run or job

# What code of the release before may stumble over.
CONTRACTS = {
    "drops something": r"\bDROP\b",
    "renames something": r"\bRENAME\b",
    "changes a type": r"\bALTER (?:COLUMN )?\w+ (?:SET DATA )?TYPE\b|\bALTER TYPE\b",
    "deletes rows": r"\bDELETE FROM\b|\bTRUNCATE\b",
    "demands what old code may not write": r"\bSET NOT NULL\b|\bADD (?:CONSTRAINT|CHECK|UNIQUE|PRIMARY|FOREIGN)\b",
    "adds a column that old code does not fill": (
        r"\bADD COLUMN(?:(?!\bDEFAULT\b|,|;)[\s\S])*\bNOT NULL\b(?![^,;]*\bDEFAULT\b)"
    ),
    "makes unique what old code may double": rf"\bCREATE UNIQUE INDEX\b[^;]*\bON (?:\{{schema\}}\.)?{LARGE}\b",
}
# What locks out others for as long as a large table takes.
LOCKS = {
    "builds an index on a large table; use `-- way: concurrently`": (
        rf"\bCREATE (?:UNIQUE )?INDEX(?! CONCURRENTLY)[^;]*\bON {LARGE}\b"
    ),
    "rewrites a large table; use `-- way: batches`": rf"\bUPDATE {LARGE}\b",
}


def faults(dialect: str, migration: Migration) -> list[str]:
    """What is wrong with a migration that comes after the release before."""
    sql = statements(migration.script)
    found = []
    if migration.since is None:
        found += [fault for fault, pattern in CONTRACTS.items() if re.search(pattern, sql, re.IGNORECASE)]
    elif migration.since > PREVIOUS[dialect]:
        found += [f"contracts too early: the release before is at version {PREVIOUS[dialect]}"]
    if migration.way is Way.TRANSACTION and dialect == "postgres":
        found += [fault for fault, pattern in LOCKS.items() if re.search(pattern, sql, re.IGNORECASE)]
    if migration.way is Way.CONCURRENTLY:
        found += [] if dialect == "postgres" else ["only PostgreSQL builds indexes concurrently"]
        repeatable = "IF NOT EXISTS" in sql and "ON {schema}." in sql
        found += [] if repeatable else ["cannot be repeated, or names no {schema}"]
    return found


def statements(script: str) -> str:
    """A script without comments, and without the bodies of functions, which do nothing yet."""
    bare = re.sub(r"--.*", "", script)
    return re.sub(r"(\bFUNCTION\b[^;$]*)\$\$.*?\$\$", r"\1", bare, flags=re.DOTALL | re.IGNORECASE)


@pytest.mark.parametrize("dialect", PREVIOUS)
def test_every_migration_after_the_release_before_expands_and_locks_nobody_out(dialect: str) -> None:
    later = [each for each in all_migrations(dialect) if each.number > PREVIOUS[dialect]]
    assert {each.number: found for each in later if (found := faults(dialect, each))} == {}


@pytest.mark.parametrize("dialect", PREVIOUS)
def test_code_of_the_release_before_may_use_the_schema(dialect: str) -> None:
    assert max(each.since or 0 for each in all_migrations(dialect)) <= PREVIOUS[dialect]


@pytest.mark.parametrize(
    ("script", "fault"),
    [
        ("ALTER TABLE runs DROP COLUMN name;", "drops something"),
        ("ALTER TABLE runs RENAME COLUMN name TO title;", "renames something"),
        ("ALTER TABLE runs ALTER COLUMN attempt TYPE bigint;", "changes a type"),
        ("ALTER TYPE new_run ADD ATTRIBUTE more text;", "changes a type"),
        ("DELETE FROM lanes;", "deletes rows"),
        ("ALTER TABLE lanes ALTER COLUMN owner SET NOT NULL;", "demands what old code may not write"),
        ("ALTER TABLE lanes ADD COLUMN size integer NOT NULL;", "adds a column that old code does not fill"),
        ("CREATE UNIQUE INDEX one ON jobs (name);", "makes unique what old code may double"),
        ("CREATE INDEX more ON runs (name);", "builds an index on a large table; use `-- way: concurrently`"),
        ("UPDATE runs SET name = '';", "rewrites a large table; use `-- way: batches`"),
        (
            "-- way: concurrently\nCREATE INDEX CONCURRENTLY a ON runs (name);",
            "cannot be repeated, or names no {schema}",
        ),
        ("-- contract: since 900\nDROP TABLE lanes;", "contracts too early: the release before is at version 12"),
    ],
)
def test_what_breaks_the_release_before_is_found(script: str, fault: str) -> None:
    assert fault in faults("postgres", read_migration(900, f"{script}\n"))


@pytest.mark.parametrize(
    "script",
    [
        "CREATE TABLE fresh (id uuid PRIMARY KEY, name text NOT NULL);\nCREATE UNIQUE INDEX one ON fresh (name);",
        "ALTER TABLE runs ADD COLUMN size integer NOT NULL DEFAULT 0, ADD COLUMN note text;",
        "CREATE FUNCTION f() RETURNS void LANGUAGE plpgsql AS $$ BEGIN DELETE FROM runs; END $$;",
        "-- way: concurrently\nCREATE INDEX CONCURRENTLY IF NOT EXISTS more ON {schema}.runs (name);",
        "-- way: batches\nUPDATE runs SET size = 1 WHERE id IN (SELECT id FROM runs WHERE size = 0 LIMIT 1000);",
        "-- A column that nobody reads any more.\n-- contract: since 12\nALTER TABLE runs DROP COLUMN note;",
    ],
)
def test_what_expands_is_accepted(script: str) -> None:
    assert faults("postgres", read_migration(900, f"{script}\n")) == []
