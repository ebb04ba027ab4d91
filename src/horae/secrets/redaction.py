"""Strikes secret values from what a task says: its log, its result and its error."""

import base64
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote, quote_plus

SHORTEST = 4  # characters of a value that is struck out; shorter ones would strike out half of every text
STRUCK = "***"
_LONGEST_AT_EDGE = 4096  # longer values are looked for as a whole and line by line, but not in part
_CUT = "…"  # what Horae puts where it has cut a text


class Redactor:
    """Replaces secret values; also a part of one, where a text was cut in the middle of it."""

    def __init__(self, secrets: str) -> None:
        """`secrets` is JSON text of an object."""
        spellings = {text for value in values_of(secrets) for text in _spellings(value) if len(text) >= SHORTEST}
        self._values = sorted(spellings, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, self._values))) if self._values else None
        self._at_edge = [value for value in self._values if len(value) <= _LONGEST_AT_EDGE]

    def text(self, text: str) -> str:
        """The text without the values."""
        if self._pattern is None or len(text) < SHORTEST:
            return text
        struck = self._pattern.sub(STRUCK, text)
        return self._without_head(self._without_tail(struck))

    def json(self, text: str) -> str:
        """JSON text without the values, however it spells them."""
        if self._pattern is None:
            return text
        return json.dumps(self._value(json.loads(text)), ensure_ascii=False, separators=(",", ":"))

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(name): self._value(item) for name, item in value.items()}
        if isinstance(value, list):
            return [self._value(item) for item in value]
        return STRUCK if _is_number(value) and str(value) in self._values else value

    def _without_head(self, text: str) -> str:
        """The text may begin with the end of a value."""
        sizes = (_overlap(value, text) for value in self._at_edge)
        size = max(sizes, default=0)
        return STRUCK + text[size:] if size else text

    def _without_tail(self, text: str) -> str:
        """The text may end with the beginning of a value."""
        kept = text.removesuffix(_CUT)
        size = max((_overlap(kept, value) for value in self._at_edge), default=0)
        return kept[: len(kept) - size] + STRUCK if size else text


def values_of(secrets: str) -> list[str]:
    """Every value that can be told in a text."""
    return list(_leaves(json.loads(secrets)))


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, str):
        yield value
    elif _is_number(value):
        yield str(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _spellings(value: str) -> Sequence[str]:
    """A value as it may come up: itself, its lines, and as Python, JSON, addresses and base64 write it."""
    lines = [line for line in value.splitlines() if len(line) >= 2 * SHORTEST] if "\n" in value else []
    encoded = value.encode("utf-8", "replace")
    return [
        value,
        value.strip(),
        *lines,
        repr(value)[1:-1],
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        quote(encoded, safe=""),
        quote(encoded),
        quote_plus(encoded),
        base64.b64encode(encoded).decode().rstrip("="),
        base64.urlsafe_b64encode(encoded).decode().rstrip("="),
    ]


def _overlap(first: str, second: str) -> int:
    """How many characters the end of `first` and the beginning of `second` share, if enough to tell."""
    limit = min(len(first), len(second))
    start = second[:SHORTEST]
    place = first.find(start, len(first) - limit)
    while place != -1:
        if second.startswith(first[place:]):
            return len(first) - place
        place = first.find(start, place + 1)
    return 0
