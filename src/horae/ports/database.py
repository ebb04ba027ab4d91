"""The database port: the life and the schema of a store, and the signals between the processes that share it."""

from collections.abc import Callable
from typing import Protocol

from horae.core.signals import Signal


class Database(Protocol):
    """What a store is before anything is read or written."""

    async def open(self) -> None:
        """Connect, and check that the schema is the one this version expects."""

    async def close(self) -> None:
        """Finish what was begun and close every connection."""

    async def migrate(self) -> list[int]:
        """Bring the schema to the expected version; returns the migrations that were applied."""

    async def status(self) -> tuple[int, int]:
        """Return the version of the schema, and the one that this code expects."""

    def subscribe(self, heard: Callable[[Signal], None]) -> Callable[[], None]:
        """Call `heard` (on the event loop) for every signal; returns a function that stops it."""
