"""Waits for single keys of a terminal, without Enter."""

import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Wait = Callable[[float], str]  # of so many seconds; returns the key that was pressed, or an empty text


@contextmanager
def single_keys() -> Iterator[Wait]:
    """Read keys one by one, as long as stdin is a terminal; elsewhere only wait."""
    if not sys.stdin.isatty():
        yield _only_wait
        return
    import termios  # only where there are such terminals
    import tty

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)
    try:
        yield _wait_for_key
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _only_wait(seconds: float) -> str:
    time.sleep(seconds)
    return ""


def _wait_for_key(seconds: float) -> str:
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    # Not by `sys.stdin`, whose buffer `select` does not see.
    return os.read(sys.stdin.fileno(), 1).decode(errors="replace") if ready else ""
