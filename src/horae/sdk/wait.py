"""Waits for runs to end by polling the store, one query for all waiters, with a growing interval."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Protocol

from horae.core.errors import Unavailable
from horae.core.model import Run, RunId
from horae.core.signals import Kind, Signal
from horae.ports.store import Store

SHORTEST, LONGEST = 0.02, 1.0  # seconds between two polls
GROWTH = 0.1  # the interval is this share of the time that the newest waiter has waited
BATCH = 1000  # runs in one query


class RunWaiter(Protocol):
    """Waits for the end of a run."""

    async def wait(self, run_id: RunId) -> Run:
        """Wait until the run has ended and return it; cancel to stop waiting."""


class PollingWaiter:
    """Polls the store for all runs that are waited for."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[RunId, list[asyncio.Future[Run]]] = {}
        self._newest = 0.0  # when the newest waiter began to wait
        self._signalled = False  # whether another process committed something since the last poll
        self._changed = asyncio.Event()
        self._polling: asyncio.Task[None] | None = None

    async def wait(self, run_id: RunId) -> Run:
        """Wait until the run has ended and return it."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Run] = loop.create_future()
        self._waiting.setdefault(run_id, []).append(future)
        self._newest = loop.time()
        self._changed.set()
        if self._polling is None:
            self._polling = asyncio.create_task(self._poll_while_waiting(), name="horae-wait")
        try:
            return await future
        finally:
            self._remove(run_id, future)

    def close(self) -> None:
        """Stop polling; all remaining waits raise Unavailable."""
        if self._polling is not None:
            self._polling.cancel()
        self._fail_all(Unavailable("the store was closed before the run ended"))

    def _remove(self, run_id: RunId, future: "asyncio.Future[Run]") -> None:
        others = self._waiting.get(run_id, [])
        if future in others:
            others.remove(future)
        if not others:
            self._waiting.pop(run_id, None)
            self._changed.set()

    async def _poll_while_waiting(self) -> None:
        unsubscribe = self._store.subscribe(self._on_signal)
        try:
            while self._waiting:
                polled_at = asyncio.get_running_loop().time()
                await self._poll()
                await self._pause(polled_at)
        except Exception as exc:  # noqa: BLE001 - raised in every waiter
            self._fail_all(exc)
        finally:
            self._polling = None
            unsubscribe()

    async def _poll(self) -> None:
        """Finish the waits whose run has ended."""
        self._signalled = False
        run_ids = list(self._waiting)
        for start in range(0, len(run_ids), BATCH):
            self._finish(await self._ended(run_ids[start : start + BATCH]))

    async def _ended(self, run_ids: Sequence[RunId]) -> Sequence[Run]:
        try:
            return [*(await self._store.runs(run_ids, ended=True)).values()]
        except Unavailable:
            return ()  # poll again: each waiter has a timeout of its own

    def _finish(self, runs: Sequence[Run]) -> None:
        for run in runs:
            for future in self._waiting.pop(run.id, ()):
                if not future.done():
                    future.set_result(run)

    async def _pause(self, polled_at: float) -> None:
        """Wait until the next poll, which comes earlier when something changes."""
        loop = asyncio.get_running_loop()
        while self._waiting and (seconds := polled_at + self._interval(loop.time()) - loop.time()) > 0:
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._changed.wait()

    def _interval(self, now: float) -> float:
        return SHORTEST if self._signalled else min(max((now - self._newest) * GROWTH, SHORTEST), LONGEST)

    def _on_signal(self, signal: Signal) -> None:
        if signal.kind is Kind.ANY:
            self._signalled = True
            self._changed.set()

    def _fail_all(self, exc: Exception) -> None:
        waiting, self._waiting = self._waiting, {}
        for futures in waiting.values():
            for future in futures:
                if not future.done():
                    future.set_exception(exc)
