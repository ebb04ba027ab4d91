"""Ids: UUIDv7 as 32 hexadecimal digits, in the order of their making."""

import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from struct import Struct

_FORM = re.compile(r"[0-9a-f]{12}7[0-9a-f]{3}[89ab][0-9a-f]{15}", re.ASCII)
_LATEST = f"{253_402_300_799_999:012x}"  # the last millisecond that a datetime can tell: the end of the year 9999
_HEAD_BITS, _LOW_BITS = 12, 62  # of randomness: what remains beside 48 bits of milliseconds, the version, the variant
_FIRST_LOW, _END_LOW = 0b10 << _LOW_BITS, 0b11 << _LOW_BITS  # the variant goes before
_START_BYTES = 10
_STEP = Struct(">I")  # random steps within one millisecond: unguessable, and the low bits stay even over the shards


class Ids:
    """A source of ids, each greater than the one before, whatever the clock does; safe to share between threads."""

    def __init__(self, random: Callable[[int], bytes] = os.urandom, wall: Callable[[], float] = time.time) -> None:
        self._random = random
        self._wall = wall
        self._lock = threading.Lock()
        self._head = 0  # milliseconds and the first random bits as one number
        self._low = _FIRST_LOW

    def __call__(self) -> str:
        return self.many(1)[0]

    def stock(self, size: int = 64) -> Callable[[], str]:
        """A source for the work of a moment that takes many ids, one at a time; they are made so many at a time."""

        def supply() -> Iterator[str]:
            while True:
                yield from self.many(size)

        return supply().__next__

    def many(self, count: int) -> list[str]:
        """So many ids: the clock is read and luck is drawn once for all of them."""
        with self._lock:
            luck = self._random(_START_BYTES + _STEP.size * count)
            moment = int(self._wall() * 1000)
            if moment > self._head >> _HEAD_BITS:
                start = int.from_bytes(luck[:_START_BYTES])
                self._head = moment << _HEAD_BITS | start >> _LOW_BITS & 0xFFF
                self._low = _FIRST_LOW | start & ((1 << _LOW_BITS) - 1)
            return self._walked(luck[_START_BYTES:])

    def _walked(self, steps: bytes) -> list[str]:
        """An id for each random step from the last one."""
        made, low, begin = [], self._low, _text(self._head)
        for (step,) in _STEP.iter_unpack(steps):
            low += 1 + step
            if low >= _END_LOW:
                self._head, low = self._head + 1, low - (1 << _LOW_BITS)
                begin = _text(self._head)
            made.append(begin + low.to_bytes(8).hex())
        self._low = low
        return made


_IDS = Ids()


def new_id() -> str:
    """A new id from the source of this process."""
    return _IDS()


def is_id(text: str) -> bool:
    """Whether the text has the form of our ids, with a time that there can be."""
    return _FORM.fullmatch(text) is not None and text[:12] <= _LATEST


def day_of(id: str) -> date:  # noqa: A002 - the domain's word
    """The day (UTC) on which an id was made: no row about it is older."""
    return datetime.fromtimestamp(int(id[:12], 16) / 1000, UTC).date()


def _text(head: int) -> str:
    return f"{head >> _HEAD_BITS:012x}7{head & 0xFFF:03x}"


NewId = Callable[[], str]
