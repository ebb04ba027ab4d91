"""Ids: UUIDv7 as 32 hexadecimal digits, in the order of their making."""

import os
import re
import threading
import time
from collections.abc import Callable
from datetime import UTC, date, datetime

_FORM = re.compile(r"[0-9a-f]{12}7[0-9a-f]{3}[89ab][0-9a-f]{15}", re.ASCII)
_LATEST = f"{253_402_300_799_999:012x}"  # the last millisecond that a datetime can tell: the end of the year 9999
_TAIL_BITS = 74  # what remains of 128 bits beside 48 of milliseconds, 4 of version and 2 of variant
_LOW_BITS = 62
_STEP_BYTES = 4  # random steps within one millisecond: unguessable, and the low bits stay even over the shards


class Ids:
    """A source of ids, each greater than the one before, whatever the clock does; safe to share between threads."""

    def __init__(self, random: Callable[[int], bytes] = os.urandom, wall: Callable[[], float] = time.time) -> None:
        self._random = random
        self._wall = wall
        self._lock = threading.Lock()
        self._last = 0  # milliseconds and tail as one number

    def __call__(self) -> str:
        with self._lock:
            moment = int(self._wall() * 1000)
            if moment > self._last >> _TAIL_BITS:
                tail = int.from_bytes(self._random(10)) & ((1 << _TAIL_BITS) - 1)
                self._last = moment << _TAIL_BITS | tail
            else:
                self._last += 1 + int.from_bytes(self._random(_STEP_BYTES))
            return _text(self._last)


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


def _text(number: int) -> str:
    milliseconds, high, low = (
        number >> _TAIL_BITS,
        number >> _LOW_BITS & 0xFFF,
        number & ((1 << _LOW_BITS) - 1),
    )
    return f"{milliseconds:012x}7{high:03x}{0b10 << _LOW_BITS | low:016x}"
