"""Versions of the schema, which are the numbers of its migrations."""

from horae.core.errors import Misconfigured
from horae.stores.common.statements import migrations


def expected_version(dialect: str) -> int:
    """The version of the schema that this code is written for."""
    return migrations(dialect)[-1][0]


def refuse_unreleased(dialect: str, version: int) -> None:
    """Raise Misconfigured for a version before the first migration that is still there; 0 is a new schema."""
    oldest = migrations(dialect)[0][0]
    if 0 < version < oldest:
        raise Misconfigured(
            f"the schema is at version {version}, which was never released and cannot be migrated to {oldest}: "
            "choose a new schema or database in HORAE_STORE"
        )


def refuse_other_version(dialect: str, version: int) -> None:
    """Raise Misconfigured unless the schema is at the expected version, and say what to do."""
    refuse_unreleased(dialect, version)
    expected = expected_version(dialect)
    if version < expected:
        raise Misconfigured(
            f"the schema is at version {version} and this Horae needs {expected}: run `horae db migrate`"
        )
    if version > expected:
        raise Misconfigured(
            f"the schema is at version {version}, newer than this Horae knows ({expected}): upgrade Horae"
        )


def migrations_after(version: int, dialect: str) -> list[tuple[int, str]]:
    """The migrations that a database at a version still needs; 0 is a new one, which begins with the first of them."""
    refuse_unreleased(dialect, version)
    if version > expected_version(dialect):
        refuse_other_version(dialect, version)
    return [(number, script) for number, script in migrations(dialect) if number > version]
