"""The interface of a peer."""

from collections.abc import Sequence
from types import TracebackType
from typing import Protocol


class Queue(Protocol):
    """A peer on an empty store, with its client and the command of its workers."""

    workers: Sequence[Sequence[str]]  # commands; a program's name is looked for in the peer's own environment

    async def __aenter__(self) -> "Queue":
        """Empty the store, prepare it, and connect."""

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def enqueue(self, numbers: Sequence[int]) -> None:
        """Create jobs that are due now, in the fastest documented way."""

    async def schedule(self, due: Sequence[tuple[int, float]]) -> None:
        """Create jobs that are due at these times."""

    async def waiting(self) -> int:
        """How many jobs the store still holds."""

    async def server(self) -> int | None:
        """The process of the store's server; None when it is not on this machine."""
