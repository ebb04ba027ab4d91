"""SQL kept as named statements in one file per dialect, with numbered migrations beside it."""

import re
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


@cache
def load(dialect: str) -> dict[str, str]:
    """The statements of `stores/<dialect>/statements.sql` by name."""
    parts = _NAME.split((_folder(dialect) / "statements.sql").read_text("utf-8"))
    return dict(zip(parts[1::2], (text.strip().removesuffix(";") for text in parts[2::2]), strict=True))


@cache
def migrations(dialect: str) -> list[tuple[int, str]]:
    """The migrations `stores/<dialect>/migrations/NNN_what_it_does.sql` as (number, script), in order."""
    folder = _folder(dialect) / "migrations"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [(int(name.split("_")[0]), (folder / name).read_text("utf-8")) for name in names]


def _folder(dialect: str) -> Traversable:
    return files("horae.stores") / dialect
