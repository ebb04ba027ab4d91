"""The names within JSON objects: each is given once, or it is not certain what was meant."""

import json
import re
from typing import Any

import msgspec

from horae.core.errors import Malformed

BACKSLASH = ord("\\")  # to look for a byte takes a fraction of what looking for bytes takes
_ESCAPED_COLON = re.compile(rb"\\u003a", re.IGNORECASE)


def refuse_repeated_names(data: bytes, value: Any) -> None:
    """Refuse a body in which an object has a name twice, given what it was decoded to.

    What is decoded has each name once. So if one was repeated, there are fewer colons when it is written again: one
    follows each name, those in strings stay, and there are no others. Both steps run at the speed of memory.
    """
    escaped = BACKSLASH in data and b"\\u003" in data and _ESCAPED_COLON.search(data) is not None
    if escaped or data.count(b":") != msgspec.json.encode(value).count(b":"):
        json.loads(data, object_pairs_hook=_each_once, parse_int=str, parse_float=str)


def repeated_name(name: str) -> Malformed:
    """The complaint about a name that is given twice."""
    return Malformed(f"the name {json.dumps(name[:100], ensure_ascii=False)} is given twice in one object")


def _each_once(pairs: list[tuple[str, Any]]) -> None:
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            raise repeated_name(name)
        seen.add(name)
