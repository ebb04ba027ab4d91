"""Runs computations on large texts in a thread, so that the event loop goes on meanwhile."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class Computations:
    """Computes one thing after another; each takes milliseconds and holds the interpreter for little of that."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="horae-compute")
        self._pending: set[asyncio.Task[None]] = set()

    async def result(self, compute: Callable[[], T]) -> T:
        """Return what the function returns."""
        return await self._loop.run_in_executor(self._thread, compute)

    def run(self, compute: Callable[[], T], then: Callable[[T], None]) -> None:
        """Pass what the function returns to another one, on the event loop."""

        async def compute_and_tell() -> None:
            then(await self.result(compute))

        task = self._loop.create_task(compute_and_tell())
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)

    async def close(self) -> None:
        """Wait for what is being computed."""
        if self._pending:
            await asyncio.wait(self._pending)
        self._thread.shutdown(wait=False)
