"""Offers tickets to the queue of what writes to the store have made claimable, after their commit.

The queue holds hints: no write waits for it for long, and none fails because of it. What cannot be offered now is
offered again, and what is lost is found by the watchers of the planners.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import timedelta
from typing import Any, cast

import structlog

from horae.core.changes import Change, Refusal
from horae.core.decisions.results import Settled
from horae.core.errors import Unavailable
from horae.core.model import SHARDS, Run, RunId
from horae.core.signals import Kind, Signal, merged
from horae.core.tickets import Claimable, Ticket, claimable_by_changes, claimable_by_results, tickets_of
from horae.metrics import TicketMetrics
from horae.ports.clock import Clock
from horae.ports.queue import Queue
from horae.ports.store import Store

log = structlog.get_logger(__name__)

MAX_WAITING = 50_000  # tickets that wait for the queue; beyond it the oldest are left to the watchers
BEYOND_HORIZON = timedelta(seconds=1)  # watchers look at what comes within the horizon: no gap between them and us
FIRST_REST, LONGEST_REST = 0.1, 2.0  # seconds between two attempts to offer
LAST_SECONDS = 1.0  # that the tickets which still wait are given when a process ends


class Offers:
    """Tickets, gates and signals on their way to the queue; one task sends them, in batches."""

    def __init__(self, queue: Queue, store: Store, clock: Clock, metrics: TicketMetrics, *, horizon: timedelta) -> None:
        self._queue = queue
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._horizon = horizon + BEYOND_HORIZON
        self._tickets: dict[RunId, Ticket] = {}
        self._gates: dict[str, None] = {}
        self._signals: list[Signal] = []
        self._task: asyncio.Task[None] | None = None
        self._failing = asyncio.Event()

    def add(self, claimable: Claimable) -> None:
        """Offer soon what can be claimed within the horizon, and what comes next in gates."""
        until = self._clock.now() + self._horizon
        self._tickets.update((ticket.run_id, ticket) for ticket in claimable.tickets if ticket.wake_at <= until)
        self._gates.update(dict.fromkeys(claimable.gates))
        self._begin()

    def send(self, signals: Iterable[Signal]) -> None:
        """Send soon what nobody learns from tickets: stop requests, new plans, and that anything may have changed."""
        told = [signal for signal in signals if signal.kind is not Kind.DUE or signal.at is None]
        if told and self._queue.traits.carries_signals:
            self._signals = merged([*self._signals, *told])
            self._begin()

    async def sent(self, within: timedelta) -> None:
        """Wait until all is sent, unless the queue does not answer; not longer than `within`."""
        if self._task is None or self._failing.is_set():
            return
        failing = asyncio.ensure_future(self._failing.wait())
        sent = (self._task, failing)
        await asyncio.wait(sent, timeout=within.total_seconds(), return_when=asyncio.FIRST_COMPLETED)
        failing.cancel()

    async def close(self) -> None:
        """Try once more to send what still waits."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=LAST_SECONDS)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _begin(self) -> None:
        if self._task is None and (self._tickets or self._gates or self._signals):
            self._task = asyncio.create_task(self._send_all(), name="offers")

    async def _send_all(self) -> None:
        rest = FIRST_REST
        try:
            while self._tickets or self._gates or self._signals:
                try:
                    await self._send_some()
                except Unavailable as exc:
                    if not self._failing.is_set():
                        log.warning("tickets_not_offered", reason=str(exc))
                    self._failing.set()
                    self._forget_the_oldest()
                    await asyncio.sleep(rest)
                    rest = min(2 * rest, LONGEST_REST)
                    continue
                if self._failing.is_set():
                    log.info("tickets_offered_again")
                self._failing.clear()
                rest = FIRST_REST
        finally:
            self._task = None

    async def _send_some(self) -> None:
        signals, self._signals = self._signals, []
        with contextlib.suppress(Unavailable):  # they may be lost: whoever waits for them looks by itself
            await self._queue.send(signals)
        now = self._clock.now()
        if self._gates:
            gates = list(self._gates)
            page = await self._store.waiting(
                range(SHARDS), since=None, until=now, cursor=None, limit=len(gates), gates=gates
            )
            for gate in gates:
                self._gates.pop(gate, None)
            for ticket in page.tickets:
                self._tickets.setdefault(ticket.run_id, ticket)
        if self._tickets:
            tickets, self._tickets = self._tickets, {}
            try:
                await self._queue.offer(list(tickets.values()), now=now)
            except Unavailable:
                self._tickets = tickets | self._tickets
                self._metrics.failed(len(tickets))
                raise
            self._metrics.offered(len(tickets))

    def _forget_the_oldest(self) -> None:
        for run_id in list(self._tickets)[: max(len(self._tickets) - MAX_WAITING, 0)]:
            del self._tickets[run_id]


class OfferingStore:
    """A store whose writes offer tickets; everything else passes through."""

    def __init__(self, store: Store, offers: Offers, *, patience: timedelta = timedelta()) -> None:
        """`patience` is how long a write waits until its tickets are offered: its process may end right after it."""
        self._store = store
        self._offers = offers
        self._patience = patience
        if hasattr(store, "enlistment"):
            self.enlistment = store.enlistment  # so that it is seen to be a TransactionalStore

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._store, name)
        setattr(self, name, verb)  # so that the next look-up is direct
        return verb

    async def create(self, runs: Sequence[Run]) -> None:
        await self._store.create(runs)
        await self._offer(Claimable(tickets=tickets_of(runs), gates=[]))

    async def apply(self, changes: Sequence[Change]) -> list[Refusal | None]:
        refusals = await self._store.apply(changes)
        written = [change for change, refusal in zip(changes, refusals, strict=True) if refusal is None]
        self._offers.send([signal for change in written for signal in change.signals])
        await self._offer(claimable_by_changes(written))
        return refusals

    async def settle(self, results: Sequence[Settled]) -> list[bool]:
        answers = await self._store.settle(results)
        written = (result for result, answer in zip(results, answers, strict=True) if answer)
        await self._offer(claimable_by_results(written))
        return answers

    async def _offer(self, claimable: Claimable) -> None:
        if claimable.tickets or claimable.gates:
            self._offers.add(claimable)
        if self._patience:
            await self._offers.sent(self._patience)


@contextlib.asynccontextmanager
async def offering_store(
    store: Store,
    queue: Queue,
    clock: Clock,
    metrics: TicketMetrics,
    *,
    horizon: timedelta,
    patience: timedelta = timedelta(),
) -> AsyncIterator[Store]:
    """Return the store, with its writes offering tickets; at the end, those that still wait are offered."""
    offers = Offers(queue, store, clock, metrics, horizon=horizon)
    try:
        yield cast(Store, OfferingStore(store, offers, patience=patience))
    finally:
        await offers.close()
