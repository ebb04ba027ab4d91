"""The database port: the life and the schema of a store, and the signals between the processes that share it."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from horae.core.signals import Signal

Tell = Callable[[str], None]


def tell_nobody(text: str) -> None:
    """Take a line about progress, and drop it."""


class SchemaStatus(NamedTuple):
    """The versions of a schema and of the code; both are numbers of migrations."""

    version: int  # of the schema: its last migration; 0 means that there is none
    expected: int  # of this code
    oldest: int  # code of this version and later may use the schema

    @property
    def problem(self) -> str | None:
        """Return why this code cannot use the schema, and what to do; None if it can."""
        if self.version < self.expected:
            return (
                f"the schema is at version {self.version} and this Horae needs {self.expected}: run `horae db migrate`"
            )
        if self.oldest > self.expected:
            return (
                f"the schema is at version {self.version}, which needs a Horae of version {self.oldest} or later, and"
                f" this one is {self.expected}: upgrade Horae"
            )
        return None

    @property
    def verdict(self) -> str:
        """Return what to make of the versions, in words."""
        if self.problem is not None:
            return self.problem
        if self.version == self.expected:
            return f"version {self.version}, up to date"
        return f"version {self.version}, of a later release, which this one ({self.expected}) can use as well"


class Database(Protocol):
    """What a store is before anything is read or written."""

    async def open(self) -> None:
        """Connect, and check that this version can use the schema."""

    async def close(self) -> None:
        """Finish what was begun and close every connection."""

    async def migrate(self, tell: Tell = tell_nobody) -> list[int]:
        """Bring the schema to the expected version while nodes serve; returns the migrations that were applied.

        `tell` gets a line for people when that takes a while.
        """

    async def status(self) -> SchemaStatus:
        """Return the version of the schema, the one that this code expects, and the oldest that may use it."""

    def subscribe(self, heard: Callable[[Signal], None]) -> Callable[[], None]:
        """Call `heard` (on the event loop) for every signal; returns a function that stops it."""
