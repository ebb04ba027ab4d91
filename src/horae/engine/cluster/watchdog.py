"""Detects from another thread that an event loop is blocked, and which code blocks it."""

import asyncio
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

FRAMES = 4  # innermost stack frames that are reported


class Watchdog:
    """Pings an event loop; created on the thread of the loop, used on another."""

    def __init__(
        self, elapsed: Callable[[], float], *, at_most: float, responded: Callable[[], None] = lambda: None
    ) -> None:
        """`at_most` are the seconds that one check may count: when all threads slept, the loop is not to blame.

        `responded` is called on the loop with each response.
        """
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._elapsed = elapsed
        self._at_most = at_most
        self._responded = responded
        self._checked_at = elapsed()
        self._asked = False
        self._blocked = 0.0

    def check(self) -> float:
        """Return for how many seconds, as far as it was checked, the loop has not responded; 0 once it has."""
        now = self._elapsed()
        if self._asked:
            self._blocked += min(now - self._checked_at, self._at_most)
        elif not self._loop.is_closed():
            self._blocked = 0.0
            self._asked = True
            self._loop.call_soon_threadsafe(self._respond)
        self._checked_at = now
        return self._blocked

    def place(self) -> str:
        """Return where the thread of the loop is in the code, innermost frame first."""
        frame = sys._current_frames().get(self._thread)
        frames = reversed(traceback.extract_stack(frame)[-FRAMES:]) if frame is not None else ()
        return " < ".join(f"{Path(code.filename).name}:{code.lineno} {code.name}" for code in frames)

    def _respond(self) -> None:
        self._asked = False
        self._responded()
