"""Reads of one item or key that every process asks for again and again: fresh, as long as it asks seldom.

A partition answers 3,000 units a second. A hundred nodes that each claim thirty times a second would read the directory
more often than that; so a process that has asked very often gets what was read a moment ago.
"""

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from horae.stores.dynamodb import times

T = TypeVar("T")

FRESH_A_SECOND = 4.0  # reads that a process may have in the long run
FRESH_AT_ONCE = 100.0  # and in a row: what asks seldom always reads


class SparingRead(Generic[T]):
    """One thing to read."""

    def __init__(self, read: Callable[[], Awaitable[T]]) -> None:
        self._read = read
        self._left = FRESH_AT_ONCE
        self._counted_at = times.steady()
        self._last: list[T] = []  # what was read last, once something was

    async def get(self) -> T:
        """Return the thing as it is, or as it was a moment ago when that was asked for very often."""
        now = times.steady()
        self._left = min(self._left + (now - self._counted_at) * FRESH_A_SECOND, FRESH_AT_ONCE)
        self._counted_at = now
        if self._left >= 1 or not self._last:
            self._left -= 1
            self._last = [await self._read()]
        return self._last[0]

    def forget(self) -> None:
        """Read anew at the next call."""
        self._last = []
