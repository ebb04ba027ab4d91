"""Ids: UUIDv7 as 32 hexadecimal digits, which sort in the order of creation."""

import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from struct import Struct

_FORM = re.compile(r"[0-9a-f]{12}7[0-9a-f]{3}[89ab][0-9a-f]{15}", re.ASCII)
_LATEST = f"{253_402_300_799_999:012x}"  # the last millisecond of a datetime: the end of the year 9999
_HEAD_BITS, _LOW_BITS = 12, 62  # random bits, beside 48 bits of milliseconds, the version and the variant
_FIRST_LOW, _END_LOW = 0b10 << _LOW_BITS, 0b11 << _LOW_BITS  # the variant comes first
_START_BYTES = 10
_STEP = Struct(">I")  # random steps within one millisecond: unguessable, and evenly spread over the shards


class Ids:
    """Makes ids, each greater than the one before, whatever the clock does; safe to share between threads."""

    def __init__(self, random: Callable[[int], bytes] = os.urandom, wall: Callable[[], float] = time.time) -> None:
        self._random = random
        self._wall = wall
        self._lock = threading.Lock()
        self._head = 0  # milliseconds and the first random bits as one number
        self._low = _FIRST_LOW

    def __call__(self) -> str:
        return self.many(1)[0]

    def batched(self, size: int = 64) -> Callable[[], str]:
        """A function that returns one id per call and makes them `size` at a time; for short-lived work."""

        def supply() -> Iterator[str]:
            while True:
                yield from self.many(size)

        return supply().__next__

    def many(self, count: int) -> list[str]:
        """Make `count` ids with one read of the clock and one draw of random bytes."""
        with self._lock:
            drawn = self._random(_START_BYTES + _STEP.size * count)
            moment = int(self._wall() * 1000)
            if moment > self._head >> _HEAD_BITS:
                start = int.from_bytes(drawn[:_START_BYTES])
                self._head = moment << _HEAD_BITS | start >> _LOW_BITS & 0xFFF
                self._low = _FIRST_LOW | start & ((1 << _LOW_BITS) - 1)
            return self._advance(drawn[_START_BYTES:])

    def _advance(self, steps: bytes) -> list[str]:
        """One id for each random step from the last id."""
        made, low, prefix = [], self._low, _prefix(self._head)
        for (step,) in _STEP.iter_unpack(steps):
            low += 1 + step
            if low >= _END_LOW:
                self._head, low = self._head + 1, low - (1 << _LOW_BITS)
                prefix = _prefix(self._head)
            made.append(prefix + low.to_bytes(8).hex())
        self._low = low
        return made


def is_id(text: str) -> bool:
    """Whether the text has the form of an id with a possible time."""
    return _FORM.fullmatch(text) is not None and text[:12] <= _LATEST


def born_at(ident: str) -> datetime:
    """The time in an id, to the millisecond; the last one that a datetime has for what is later."""
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=int(min(ident[:12], _LATEST), 16))


def _prefix(head: int) -> str:
    return f"{head >> _HEAD_BITS:012x}7{head & 0xFFF:03x}"


NewId = Callable[[], str]
