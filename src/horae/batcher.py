"""Turns single calls that come at the same time into batches."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

MAX_BATCH = 1000


class Batcher(Generic[Item, Result]):
    """Group commit: items that arrive while one batch is being handled form the next; a lone item never waits."""

    def __init__(self, handle: Callable[[Sequence[Item]], Awaitable[Sequence[Result]]]) -> None:
        self._handle = handle
        self._waiting: list[tuple[Item, asyncio.Future[Result]]] = []
        self._task: asyncio.Task[None] | None = None

    async def add(self, item: Item) -> Result:
        """Return the result of this item once its batch was handled; an error of the batch is raised to all of it."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._task is None:
            self._task = asyncio.create_task(self._handle_all(), name="batcher")
        return await future

    async def _handle_all(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:MAX_BATCH], self._waiting[MAX_BATCH:]
                await self._handle_batch(batch)
        finally:
            self._task = None

    async def _handle_batch(self, batch: Sequence[tuple[Item, asyncio.Future[Result]]]) -> None:
        try:
            results = await self._handle([item for item, _ in batch])
        except Exception as exc:  # noqa: BLE001 - raised by every call that waits for this batch
            for _, future in batch:
                if not future.done():
                    future.set_exception(exc)
            return
        for (_, future), result in zip(batch, results, strict=True):
            if not future.done():  # its caller was cancelled
                future.set_result(result)
