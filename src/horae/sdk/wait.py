"""Waiting for runs to end: one look at the store for all that wait, soon at first and then less and less often."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Protocol

from horae.core.errors import Unavailable
from horae.core.model import Run, RunId
from horae.core.signals import Kind, Signal
from horae.ports.store import Store

SHORTEST, LONGEST = 0.02, 1.0  # seconds between two looks
PATIENCE = 0.1  # of the time that the freshest has waited: how long until the next look
BATCH = 1000  # runs that one question to the store is about


class Ends(Protocol):
    """How somebody hears of the end of a run."""

    async def of(self, run_id: RunId) -> Run:
        """The run, once it has ended; whoever does not want to wait any longer cancels this."""


class Watch:
    """Asks the store for all runs that somebody waits for."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[RunId, list[asyncio.Future[Run]]] = {}
        self._freshest = 0.0  # when somebody last began to wait
        self._hinted = False  # whether something was committed elsewhere since the last look
        self._stirred = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None

    async def of(self, run_id: RunId) -> Run:
        """The run, once it has ended."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Run] = loop.create_future()
        self._waiting.setdefault(run_id, []).append(future)
        self._freshest = loop.time()
        self._stirred.set()
        if self._looking is None:
            self._looking = asyncio.create_task(self._look_while_somebody_waits(), name="horae-ends")
        try:
            return await future
        finally:
            self._leave(run_id, future)

    def close(self) -> None:
        """Tell everybody who still waits that nobody looks any more."""
        if self._looking is not None:
            self._looking.cancel()
        self._give_up(Unavailable("the store was closed before the run ended"))

    def _leave(self, run_id: RunId, future: "asyncio.Future[Run]") -> None:
        others = self._waiting.get(run_id, [])
        if future in others:
            others.remove(future)
        if not others:
            self._waiting.pop(run_id, None)
            self._stirred.set()

    async def _look_while_somebody_waits(self) -> None:
        unsubscribe = self._store.subscribe(self._heard)
        try:
            while self._waiting:
                looked_at = asyncio.get_running_loop().time()
                await self._look()
                await self._rest(looked_at)
        except Exception as exc:  # noqa: BLE001 - raised where somebody waits
            self._give_up(exc)
        finally:
            self._looking = None
            unsubscribe()

    async def _look(self) -> None:
        """Tell everybody whose run has ended."""
        self._hinted = False
        asked = list(self._waiting)
        for start in range(0, len(asked), BATCH):
            self._tell(await self._ended(asked[start : start + BATCH]))

    async def _ended(self, run_ids: Sequence[RunId]) -> Sequence[Run]:
        try:
            return await self._store.ended(run_ids)
        except Unavailable:
            return ()  # a store that is away for a moment ends no run, and whoever waits has a limit of their own

    def _tell(self, runs: Sequence[Run]) -> None:
        for run in runs:
            for future in self._waiting.pop(run.id, ()):
                if not future.done():
                    future.set_result(run)

    async def _rest(self, looked_at: float) -> None:
        """Wait for the time of the next look, which comes nearer when something stirs."""
        loop = asyncio.get_running_loop()
        while self._waiting and (seconds := looked_at + self._interval(loop.time()) - loop.time()) > 0:
            self._stirred.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._stirred.wait()

    def _interval(self, now: float) -> float:
        return SHORTEST if self._hinted else min(max((now - self._freshest) * PATIENCE, SHORTEST), LONGEST)

    def _heard(self, signal: Signal) -> None:
        if signal.kind is Kind.ANY:
            self._hinted = True
            self._stirred.set()

    def _give_up(self, exc: Exception) -> None:
        waiting, self._waiting = self._waiting, {}
        for futures in waiting.values():
            for future in futures:
                if not future.done():
                    future.set_exception(exc)
