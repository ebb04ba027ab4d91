"""SQL kept as named statements in one file per dialect, and numbered migrations beside it."""

import re
from functools import cache
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


@cache
def load(dialect: str) -> dict[str, str]:
    """The statements of `sql/<dialect>.sql` by name."""
    parts = _NAME.split(_read(f"{dialect}.sql"))
    return dict(zip(parts[1::2], (text.strip().removesuffix(";") for text in parts[2::2]), strict=True))


@cache
def migrations(dialect: str) -> list[tuple[int, str]]:
    """The migrations `sql/<dialect>/NNN_what_it_does.sql` as (number, script), in order."""
    folder = files(__package__) / "sql" / dialect
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [(int(name.split("_")[0]), (folder / name).read_text("utf-8")) for name in names]


def _read(name: str) -> str:
    return (files(__package__) / "sql" / name).read_text("utf-8")
