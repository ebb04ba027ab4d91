"""SQL kept as named statements in one file per dialect, with numbered migrations beside it.

A file consists of parts that end with a semicolon. `-- name: x` begins a statement, `-- fragment: y` begins text that
several statements share, and `{y}` includes that text. A fragment may include those above it.
"""

import re
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from horae.core.errors import Misconfigured

_HEADER = re.compile(r"^-- (name|fragment): (\w+)\n", re.MULTILINE)
_COMMENTS = re.compile(r"^ *--.*\n", re.MULTILINE)
_INCLUDE = re.compile(r"\{(\w+)\}|[{}]")


@cache
def load(dialect: str) -> dict[str, str]:
    """The statements of `stores/<dialect>/statements.sql` by name."""
    return parse((_folder(dialect) / "statements.sql").read_text("utf-8"))


def parse(text: str) -> dict[str, str]:
    """The statements of a file by name, complete; ValueError when the file uses a name twice, wrongly or in vain."""
    parts: dict[str, str] = {}
    fragments: dict[str, str] = {}
    included: set[str] = set()

    def include(match: re.Match[str]) -> str:
        if match[1] not in fragments:
            raise ValueError(f"{match[0]} names no fragment that stands above it")
        included.add(match[1])
        return fragments[match[1]]

    _, *found = _HEADER.split(text)
    for kind, name, body in zip(found[::3], found[1::3], found[2::3], strict=True):
        if name in parts:
            raise ValueError(f"there are two parts with the name {name}")
        sql = _COMMENTS.sub("", body + "\n").strip()
        if not sql.endswith(";") or ";\n" in sql:
            raise ValueError(f"{name} must end with a semicolon and have no other")
        parts[name] = _INCLUDE.sub(include, sql.removesuffix(";"))
        if kind == "fragment":
            fragments[name] = parts[name]
    if unused := fragments.keys() - included:
        raise ValueError(f"no statement includes {', '.join(sorted(unused))}")
    return {name: sql for name, sql in parts.items() if name not in fragments}


@cache
def migrations(dialect: str) -> list[tuple[int, str]]:
    """The migrations `stores/<dialect>/migrations/NNN_what_it_does.sql` as (number, script), in order."""
    folder = _folder(dialect) / "migrations"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [(int(name.split("_")[0]), (folder / name).read_text("utf-8")) for name in names]


def expected_version(dialect: str) -> int:
    """The number of the last migration: the schema version that this code needs."""
    return migrations(dialect)[-1][0]


def migrations_after(version: int, dialect: str) -> list[tuple[int, str]]:
    """The migrations that a database at a version still needs; 0 is a new one, which begins with the first of them."""
    if version > expected_version(dialect):
        raise Misconfigured(f"the database is at version {version}, of a newer version; upgrade Horae")
    if 0 < version < (first := migrations(dialect)[0][0]):
        raise Misconfigured(
            f"the database is at version {version} and this Horae migrates from {first} on: it was written by a version"
            " before the first release; use a new database"
        )
    return [(number, script) for number, script in migrations(dialect) if number > version]


def _folder(dialect: str) -> Traversable:
    return files("horae.stores") / dialect
