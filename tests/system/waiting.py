"""Waiting for a condition with a deadline, instead of sleeping for a fixed time."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

EPOCH = time.time() - time.monotonic()  # of the clock that handlers note times by, which no jump of a wall clock moves

LOOK_EVERY_SECONDS = 0.02


def eventually(look: Callable[[], T], what: str, *, within: float, every: float = LOOK_EVERY_SECONDS) -> T:
    """Return the first true result of `look`; fail with `what` and the last result after the deadline."""
    deadline = time.monotonic() + within
    while True:
        answer = look()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within:g} s: {what}; the last look gave {answer!r}")
        time.sleep(every)


def let_pass(seconds: float) -> None:
    """Sleep while the product does what is checked afterwards."""
    time.sleep(seconds)
