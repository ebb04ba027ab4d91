"""Notices from another thread that an event loop stands still, and where: some handler keeps it to itself."""

import asyncio
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

FRAMES = 4  # of the innermost code that are told


class Watchdog:
    """Asks an event loop again and again to take a turn; made on its thread, used on another."""

    def __init__(
        self, elapsed: Callable[[], float], *, at_most: float, turned: Callable[[], None] = lambda: None
    ) -> None:
        """`at_most` are the seconds that one look may count: when all threads slept, the loop is not to blame.

        `turned` is called on the loop when it has taken the turn that it was asked for.
        """
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._elapsed = elapsed
        self._at_most = at_most
        self._tell = turned
        self._looked_at = elapsed()
        self._asked = False
        self._stood = 0.0

    def look(self) -> float:
        """For how many seconds the loop has not taken a turn, as far as it was looked at; 0 once it has."""
        now = self._elapsed()
        if self._asked:
            self._stood += min(now - self._looked_at, self._at_most)
        elif not self._loop.is_closed():
            self._stood = 0.0
            self._asked = True
            self._loop.call_soon_threadsafe(self._turned)
        self._looked_at = now
        return self._stood

    def place(self) -> str:
        """What the thread of the loop is at, innermost first."""
        frame = sys._current_frames().get(self._thread)
        frames = reversed(traceback.extract_stack(frame)[-FRAMES:]) if frame is not None else ()
        return " < ".join(f"{Path(code.filename).name}:{code.lineno} {code.name}" for code in frames)

    def _turned(self) -> None:
        self._asked = False
        self._tell()
