"""Group commit: what is asked for while one batch is being written becomes the next batch."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")

MAX_BATCH = 1000


class Group(Generic[Item, Outcome]):
    """Turns single writes that come at the same time into batches, without making a lone one wait."""

    def __init__(self, write: Callable[[Sequence[Item]], Awaitable[Sequence[Outcome]]]) -> None:
        self._write = write
        self._gathered: list[tuple[Item, asyncio.Future[Outcome]]] = []
        self._writer: asyncio.Task[None] | None = None

    async def add(self, item: Item) -> Outcome:
        """Write one item with its batch, and answer its own outcome; an error of the batch is raised to all of it."""
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._gathered.append((item, future))
        if self._writer is None:
            self._writer = asyncio.create_task(self._write_all(), name="group-commit")
        return await future

    async def _write_all(self) -> None:
        try:
            while self._gathered:
                batch, self._gathered = self._gathered[:MAX_BATCH], self._gathered[MAX_BATCH:]
                await self._write_batch(batch)
        finally:
            self._writer = None

    async def _write_batch(self, batch: Sequence[tuple[Item, asyncio.Future[Outcome]]]) -> None:
        try:
            outcomes = await self._write([item for item, _ in batch])
        except Exception as exc:  # noqa: BLE001 - handed to everyone who waits for it
            for _, future in batch:
                if not future.done():
                    future.set_exception(exc)
            return
        for (_, future), outcome in zip(batch, outcomes, strict=True):
            if not future.done():  # its request was given up
                future.set_result(outcome)
