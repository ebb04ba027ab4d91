"""Signals between processes by a counter that listeners look at: what is near raises it, once a second at most."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from datetime import timedelta
from typing import Any

import structlog

from horae.core.errors import HoraeError
from horae.core.signals import Kind, Signal, merged
from horae.stores.common.subscribers import Subscribers
from horae.stores.dynamodb import times
from horae.stores.dynamodb.database import Database
from horae.stores.dynamodb.items import Item

log = structlog.get_logger(__name__)

NEAR = timedelta(seconds=3)  # what wakes later is found by the looks that everybody takes anyway
RAISE_EVERY = 1.0  # seconds between two raises of one process
LOOK_EVERY = 1.0  # seconds between two looks of a listener while nothing happens
LOOK_OFTEN = 0.25  # the same, for a while after something happened
AWAKE = 5.0  # seconds

_COUNTER: Item = {"pk": {"S": "signals"}, "sk": {"S": "last"}}


class SharedSignals:
    """Tells listeners of this process at once, and those of others that something happened."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._subscribers = Subscribers()
        self._raised = 0  # by this process, as far as it has seen the counter
        self._tasks: set[asyncio.Task[None]] = set()
        self._to_raise = False
        self._is_raising = False
        self._is_listening = False
        self._closed = False

    def subscribe(self, heard: Callable[[Signal], None]) -> Callable[[], None]:
        """Call `heard` for every signal; returns how to stop that."""
        stop = self._subscribers.add(heard)
        if not self._is_listening:
            self._is_listening = True
            self._begin(self._listen(), "horae-signals")
        return stop

    def send(self, signals: Iterable[Signal]) -> None:
        """Tell everybody."""
        given = merged(signals)
        self._subscribers.tell(given)
        near = times.wall() + NEAR
        if self._closed or not any(each.at is None or each.at <= near for each in given):
            return
        self._to_raise = True
        if not self._is_raising:
            self._is_raising = True
            self._begin(self._raise(), "horae-signals-raise")

    async def close(self) -> None:
        """Stop listening."""
        self._closed = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _raise(self) -> None:
        """Raise the counter, and again after a while if there was more."""
        while self._to_raise:
            self._to_raise = False
            try:
                await self._db.update(self._db.names.meta, _COUNTER, "ADD #n :one", {":one": {"N": "1"}})
                self._raised += 1
            except HoraeError as exc:
                log.warning("signal_not_sent", error=str(exc))
            await asyncio.sleep(RAISE_EVERY)
        self._is_raising = False

    async def _listen(self) -> None:
        """Look at the counter, and tell our listeners when others raised it."""
        seen: int | None = None
        woke_at = times.steady()
        while True:
            own = self._raised
            try:
                item = await self._db.get(self._db.names.meta, _COUNTER, consistent=False)
            except HoraeError as exc:
                log.debug("signals_not_read", error=str(exc))
                await asyncio.sleep(LOOK_EVERY)
                continue
            count = int(item["n"]["N"]) if item is not None else 0
            if seen is None or count - own > seen:  # at first: what happened since we were asked to listen is not known
                woke_at = times.steady()
                self._subscribers.tell([Signal(kind=Kind.ANY)])
            seen = count - own if seen is None else max(seen, count - own)
            await asyncio.sleep(LOOK_OFTEN if times.steady() - woke_at < AWAKE else LOOK_EVERY)
