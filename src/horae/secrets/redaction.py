"""Redacts secret values in the log, the result and the error of a task."""

import json
from bisect import bisect_left
from collections.abc import Collection, Iterator
from typing import Any

from horae.secrets.spellings import SHORTEST, spellings

REDACTED = "***"
SMALL = 4096  # characters, of secrets or of a text: more are not for the event loop
_LONGEST_AT_EDGE = 4096  # longer values are searched as a whole and line by line, but not for a part of them
_CUT = "…"  # what Horae writes where it has truncated a text


class Redactor:
    """Replaces secret values by `***`, also a part of one where a text was truncated in the middle of it.

    It takes linear time in the secrets to make one, and in the text to use it, however much the values have in common.
    """

    def __init__(self, secrets: str) -> None:
        """`secrets` is JSON text of an object."""
        self._values = {text for value in values_of(secrets) for text in spellings(value)}
        self._matcher = _Matcher(self._values)
        at_edge = [value for value in self._values if len(value) <= _LONGEST_AT_EDGE]
        self._beginnings = _Beginnings(at_edge)
        self._reversed_ends = _Beginnings([value[::-1] for value in at_edge])

    def text(self, text: str) -> str:
        """Return the text without the values."""
        if not self._values or len(text) < SHORTEST:
            return text
        return self._without_head(self._without_tail(self._matcher.redacted(text)))

    def contains(self, text: str) -> bool:
        """Return whether the text has a value in it."""
        return bool(self._values) and self._matcher.redacted(text) != text

    def json(self, text: str) -> str:
        """Return JSON text without the values, however it escapes them."""
        if not self._values:
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
        size = self._reversed_ends.overlap(text[:_LONGEST_AT_EDGE][::-1])
        return REDACTED + text[size:] if size else text

    def _without_tail(self, text: str) -> str:
        """Redact the beginning of a value at the end of the text."""
        kept = text.removesuffix(_CUT)
        size = self._beginnings.overlap(kept)
        return kept[: len(kept) - size] + REDACTED if size else text


class _Matcher:
    """Finds all values in one pass over a text (Aho-Corasick)."""

    def __init__(self, values: Collection[str]) -> None:
        from ahocorasick_rs import AhoCorasick, Implementation, MatchKind  # late: most processes have no secrets

        # The default may build a DFA, which takes quadratic time for a long value that repeats itself.
        self._automaton = AhoCorasick(
            values,
            matchkind=MatchKind.LeftmostLongest,
            implementation=Implementation.ContiguousNFA,
            store_patterns=False,
        )

    def redacted(self, text: str) -> str:
        found = self._automaton.find_matches_as_indexes(_searchable(text))
        if not found:
            return text
        pieces, end = [], 0
        for _, start, after in found:
            pieces.append(text[end:start])
            end = after
        return REDACTED.join([*pieces, text[end:]])


class _Beginnings:
    """Finds the longest end of a text that one of the values begins with."""

    def __init__(self, values: Collection[str]) -> None:
        self._values = sorted(values)
        self._first_letters = {value[:SHORTEST] for value in values}
        self._longest = max(map(len, values), default=0)

    def overlap(self, text: str) -> int:
        """Return the size of that end; 0 if it is shorter than SHORTEST."""
        for place in range(max(len(text) - self._longest, 0), len(text) - SHORTEST + 1):
            if text[place : place + SHORTEST] in self._first_letters and self._begins_one(text[place:]):
                return len(text) - place
        return 0

    def _begins_one(self, end: str) -> bool:
        place = bisect_left(self._values, end)
        return place < len(self._values) and self._values[place].startswith(end)


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


def _searchable(text: str) -> str:
    """Return the text with a placeholder for each lone surrogate, which UTF-8 cannot express."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
