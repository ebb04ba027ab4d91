"""Versions of the schema, which are the numbers of its migrations, and who may use which.

Two tables keep them. `applied_migrations` has every migration. The one before it (`schema_versions` in PostgreSQL,
`migrations` in SQLite) has the version that the code must have at least: code from before there were two reads only
that one, and works beside migrations that do not raise it.
"""

from horae.core.errors import Misconfigured
from horae.ports.database import SchemaStatus
from horae.stores.common.migrations import Migration, all_migrations


def expected_version(dialect: str) -> int:
    """The version of the schema that this code is written for."""
    return all_migrations(dialect)[-1].number


def status_of(dialect: str, *, applied: int, oldest: int) -> SchemaStatus:
    """The status of a schema by the highest numbers in its two tables; 0 means none.

    Raises Misconfigured for a version before the first migration that is still there.
    """
    status = SchemaStatus(version=max(applied, oldest), expected=expected_version(dialect), oldest=oldest)
    first = all_migrations(dialect)[0].number
    if 0 < status.version < first:
        raise Misconfigured(
            f"the schema is at version {status.version}, which was never released and cannot be migrated to {first}: "
            "choose a new schema or database in HORAE_STORE"
        )
    return status


def refuse_unfit(status: SchemaStatus) -> None:
    """Raise Misconfigured if this code cannot use the schema, and say what to do."""
    if status.problem is not None:
        raise Misconfigured(status.problem)


def pending(dialect: str, status: SchemaStatus) -> list[Migration]:
    """The migrations that a schema still needs; raises Misconfigured if it is beyond this code."""
    needed = [migration for migration in all_migrations(dialect) if migration.number > status.version]
    if not needed:
        refuse_unfit(status)
    return needed
