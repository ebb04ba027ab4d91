"""Refuses JSON objects that repeat a name, because it is unclear which value was meant."""

import json
import re
from typing import Any

import msgspec

from horae.core.errors import Malformed

BACKSLASH = ord("\\")  # searching for an int is several times faster than for bytes
_ESCAPED_COLON = re.compile(rb"\\u003a", re.IGNORECASE)


def refuse_repeated_names(data: bytes, value: Any) -> None:
    """Raise Malformed when an object in a body repeats a name; `value` is the decoded body.

    A decoded object has each name once, and a colon follows each name. So if a name was repeated, encoding the value
    gives fewer colons than the body has; colons in strings are the same in both. Both steps run at memory speed.
    """
    escaped = BACKSLASH in data and b"\\u003" in data and _ESCAPED_COLON.search(data) is not None
    if escaped or data.count(b":") != msgspec.json.encode(value).count(b":"):
        json.loads(data, object_pairs_hook=_refuse_repeated, parse_int=str, parse_float=str)


def repeated_name(name: str) -> Malformed:
    """Return the error for a repeated name."""
    return Malformed(f"the name {json.dumps(name[:100], ensure_ascii=False)} is given twice in one object")


def _refuse_repeated(pairs: list[tuple[str, Any]]) -> None:
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            raise repeated_name(name)
        seen.add(name)
