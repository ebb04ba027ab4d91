"""Redacts secret values in the log, the result and the error of a task."""

import base64
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote, quote_plus

SHORTEST = 4  # characters of a value that is redacted; shorter ones would redact half of every text
REDACTED = "***"
_LONGEST_AT_EDGE = 4096  # longer values are searched as a whole and line by line, but not for a part of them
_CUT = "…"  # what Horae writes where it has truncated a text


class Redactor:
    """Replaces secret values by `***`, also a part of one where a text was truncated in the middle of it."""

    def __init__(self, secrets: str) -> None:
        """`secrets` is JSON text of an object."""
        spellings = {text for value in values_of(secrets) for text in _spellings(value) if len(text) >= SHORTEST}
        self._values = sorted(spellings, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, self._values))) if self._values else None
        self._at_edge = [value for value in self._values if len(value) <= _LONGEST_AT_EDGE]

    def text(self, text: str) -> str:
        """Return the text without the values."""
        if self._pattern is None or len(text) < SHORTEST:
            return text
        redacted = self._pattern.sub(REDACTED, text)
        return self._without_head(self._without_tail(redacted))

    def json(self, text: str) -> str:
        """Return JSON text without the values, however it escapes them."""
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
        return REDACTED if _is_number(value) and str(value) in self._values else value

    def _without_head(self, text: str) -> str:
        """Redact the end of a value at the beginning of the text."""
        sizes = (_overlap(value, text) for value in self._at_edge)
        size = max(sizes, default=0)
        return REDACTED + text[size:] if size else text

    def _without_tail(self, text: str) -> str:
        """Redact the beginning of a value at the end of the text."""
        kept = text.removesuffix(_CUT)
        size = max((_overlap(kept, value) for value in self._at_edge), default=0)
        return kept[: len(kept) - size] + REDACTED if size else text


def values_of(secrets: str) -> list[str]:
    """Return every string and number among the secrets, as text."""
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
    """Return a value as it may appear in a text: as it is, its lines, and as Python, JSON, URLs and base64 write it."""
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
    """Return how many characters the end of `first` and the beginning of `second` share; 0 if fewer than SHORTEST."""
    limit = min(len(first), len(second))
    start = second[:SHORTEST]
    place = first.find(start, len(first) - limit)
    while place != -1:
        if second.startswith(first[place:]):
            return len(first) - place
        place = first.find(start, place + 1)
    return 0
