"""SQL kept as named statements in one file per dialect, with numbered migrations beside it.

A file consists of parts that end with a semicolon. `-- name: x` begins a statement, `-- fragment: y` begins text that
several statements share, and `{y}` includes that text. A fragment may include those above it, and may have parameters:
`-- fragment: y(a, b)` says `{a}` and `{b}` where `{y(jobs, {z})}` puts `jobs` and the text of fragment `z`.
"""

import re
from collections.abc import Collection
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

_HEADER = re.compile(r"^-- (name|fragment): (\w+)(?:\((.+)\))?\n", re.MULTILINE)
_COMMENTS = re.compile(r"^ *--.*\n", re.MULTILINE)
_INCLUDE = re.compile(r"\{(\w+)(?:\(([^()]+)\))?\}|[{}]")


@cache
def load(dialect: str) -> dict[str, str]:
    """The statements of `stores/<dialect>/statements.sql` by name."""
    return parse((_folder(dialect) / "statements.sql").read_text("utf-8"))


def parse(text: str) -> dict[str, str]:
    """The statements of a file by name, complete; ValueError when the file uses a name twice, wrongly or in vain."""
    parts: dict[str, str] = {}
    fragments: dict[str, list[str]] = {}  # the names of their parameters
    included: set[str] = set()

    def complete(sql: str, parameters: Collection[str]) -> str:
        return _INCLUDE.sub(lambda found: found[0] if found[1] in parameters else include(found, parameters), sql)

    def include(found: re.Match[str], parameters: Collection[str]) -> str:
        name, arguments = found[1], [complete(argument, parameters) for argument in _listed(found[2])]
        if name not in fragments:
            raise ValueError(f"{found[0]} names no fragment that stands above it")
        if len(arguments) != len(fragments[name]):
            raise ValueError(
                f"{found[0]} has {len(arguments)} arguments, but {name} has {len(fragments[name])} parameters"
            )
        included.add(name)
        values = dict(zip(fragments[name], arguments, strict=True))
        return _INCLUDE.sub(lambda place: values.get(place[1], place[0]), parts[name])

    _, *found = _HEADER.split(text)
    for kind, name, parameters, body in zip(*(found[part::4] for part in range(4)), strict=True):
        if name in parts:
            raise ValueError(f"there are two parts with the name {name}")
        sql = _COMMENTS.sub("", body + "\n").strip()
        if not sql.endswith(";") or ";\n" in sql:
            raise ValueError(f"{name} must end with a semicolon and have no other")
        parts[name] = complete(sql.removesuffix(";"), _listed(parameters))
        if kind == "fragment":
            fragments[name] = _listed(parameters)
    if unused := fragments.keys() - included:
        raise ValueError(f"no statement includes {', '.join(sorted(unused))}")
    return {name: sql for name, sql in parts.items() if name not in fragments}


def _listed(text: str | None) -> list[str]:
    return [] if text is None else [part.strip() for part in text.split(",")]


@cache
def migrations(dialect: str) -> list[tuple[int, str]]:
    """The migrations `stores/<dialect>/migrations/NNN_what_it_does.sql` as (number, script), in order."""
    folder = _folder(dialect) / "migrations"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [(int(name.split("_")[0]), (folder / name).read_text("utf-8")) for name in names]


def _folder(dialect: str) -> Traversable:
    return files("horae.stores") / dialect
