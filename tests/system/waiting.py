"""Waiting for a condition, with a deadline: nobody sleeps and hopes."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

EPOCH = time.time() - time.monotonic()  # of the clock that handlers note times by, which no jump of a wall clock moves

LOOK_EVERY_SECONDS = 0.02


def eventually(look: Callable[[], T], what: str, *, within: float) -> T:
    """The first true answer of `look`; fails with `what` and the last answer when there is none in time."""
    deadline = time.monotonic() + within
    while True:
        answer = look()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within:g} s: {what}; the last look gave {answer!r}")
        time.sleep(LOOK_EVERY_SECONDS)


def let_pass(seconds: float) -> None:
    """Let time pass while the product does what is to be judged afterwards."""
    time.sleep(seconds)
