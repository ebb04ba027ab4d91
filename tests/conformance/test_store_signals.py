"""Signals: what was committed is told, at once in the process and soon in the others."""

import asyncio
from collections.abc import Callable

from horae.core.decisions.firing import Page
from horae.core.decisions.results import give_back, succeed
from horae.core.model import JobStatus, Reason
from horae.core.signals import Kind, Signal
from horae.core.values import replace
from horae.ports.store import Store
from tests import acts
from tests.acts import JobChange, Retraction
from tests.conformance.builders import (
    MINUTE,
    NOW,
    SECOND,
    a_backfill,
    claimed,
    firing,
    given_claimed,
    given_job,
    given_node,
    given_running,
    one_shot,
    recurring,
    retried,
    slot_run,
)
from tests.conformance.conftest import Connect

LATER = NOW + MINUTE


class Ear:
    """Listens to a store."""

    def __init__(self, store: Store) -> None:
        self.heard: list[Signal] = []
        self._news = asyncio.Event()
        self.stop: Callable[[], None] = store.subscribe(self._hear)

    def _hear(self, signal: Signal) -> None:
        self.heard.append(signal)
        self._news.set()

    def clear(self) -> None:
        self.heard.clear()

    async def until(self, wanted: Callable[[Signal], bool]) -> Signal:
        """The first signal of the kind; fails after a while."""
        async with asyncio.timeout(5):
            while True:
                self._news.clear()
                for signal in self.heard:
                    if wanted(signal):
                        return signal
                await self._news.wait()


async def test_new_runs_tell_when_the_first_of_them_wakes(store: Store) -> None:
    ear = Ear(store)
    await acts.create(store, [one_shot(LATER), one_shot(NOW + SECOND)])
    signal = await ear.until(lambda signal: signal.kind is Kind.DUE)
    assert signal.at == NOW + SECOND


async def test_new_jobs_tell_planners_and_workers(store: Store) -> None:
    ear = Ear(store)
    job = recurring(plan_at=LATER)
    await acts.create(store, [firing(job, slot_run(job, NOW + SECOND))])
    assert (await ear.until(lambda signal: signal.kind is Kind.PLAN)).at == LATER
    assert (await ear.until(lambda signal: signal.kind is Kind.DUE)).at == NOW + SECOND


async def test_firings_pages_and_changes_are_told(store: Store) -> None:
    job = await given_job(store)
    backfill = a_backfill(job)
    ear = Ear(store)
    await acts.backfill(store, backfill)
    assert (await ear.until(lambda signal: signal.kind is Kind.PLAN)).at == NOW
    ear.clear()
    await acts.fire(store, [firing(job, slot_run(job, NOW + SECOND), next_fire_at=LATER)])
    assert (await ear.until(lambda signal: signal.kind is Kind.DUE)).at == NOW + SECOND
    ear.clear()
    await acts.fill(store, [Page(backfill=backfill, runs=(slot_run(job, LATER),), start=None, plan_at=NOW)])
    assert (await ear.until(lambda signal: signal.kind is Kind.DUE)).at == LATER
    ear.clear()
    await acts.change(store, JobChange(job=replace(job, revision=2, plan_at=LATER), expected=1))
    assert (await ear.until(lambda signal: signal.kind is Kind.PLAN)).at == LATER


async def test_runs_that_wait_again_are_told(store: Store) -> None:
    [run] = await given_running(store, one_shot())
    [held] = await given_claimed(store, one_shot())
    ear = Ear(store)
    await store.settle([retried(run)])
    assert (await ear.until(lambda signal: signal.kind is Kind.DUE)).at == LATER
    ear.clear()
    await store.settle([give_back(held, NOW)])
    assert (await ear.until(lambda signal: signal.kind is Kind.DUE)).at == NOW


async def test_a_run_that_is_freed_from_its_gate_is_told(store: Store) -> None:
    first, second = one_shot(NOW - SECOND, gate="g"), one_shot(gate="g")
    [held] = await given_running(store, first)
    await acts.create(store, [second])
    await acts.park(store, [second])
    ear = Ear(store)
    await store.settle([succeed(held, None, LATER)])
    assert (await ear.until(lambda signal: signal.kind is Kind.DUE)).at == LATER


async def test_a_run_that_is_freed_by_one_that_is_taken_back_is_told(store: Store) -> None:
    job = recurring()
    await given_job(store, job, replace(slot_run(job, NOW + SECOND), gate="g"))
    [held] = await claimed(store, await given_node(store), until=LATER)
    behind = one_shot(NOW + 2 * SECOND, gate="g")
    await acts.create(store, [behind])
    await acts.park(store, [behind])
    assert (
        await acts.change(store, JobChange(job=replace(job, status=JobStatus.PAUSED, revision=2), expected=1))
        is not None
    )
    ear = Ear(store)
    assert await acts.retract(store, [held], now=NOW) == [Retraction.TAKEN_BACK]
    assert (await ear.until(lambda signal: signal.kind is Kind.DUE)).at == behind.wake_at


async def test_a_stop_names_the_node(store: Store) -> None:
    node = await given_node(store)
    [run] = await given_claimed(store, one_shot(), node=node)
    ear = Ear(store)
    await acts.request_stop(store, [run.id], Reason.CANCELLED)
    assert (await ear.until(lambda signal: signal.kind is Kind.STOP)).node == node


async def test_a_change_that_stops_runs_tells_their_node(store: Store) -> None:
    job = recurring()
    await given_job(store, job, slot_run(job, LATER))
    node = await given_node(store)
    assert len(await claimed(store, node, until=LATER)) == 1
    ear = Ear(store)
    change = JobChange(job=replace(job, revision=2), expected=1, retract_after=NOW, stop=Reason.CANCELLED)
    assert await acts.change(store, change) is not None
    assert (await ear.until(lambda signal: signal.kind is Kind.STOP)).node == node


async def test_other_processes_hear_of_it_too(store: Store, connect: Connect) -> None:
    ear = Ear(await connect())
    await acts.create(store, [one_shot()])
    await ear.until(lambda signal: signal.kind in (Kind.DUE, Kind.ANY))
    ear.clear()
    node = await given_node(store)
    [run] = await claimed(store, node)
    await acts.request_stop(store, [run.id], Reason.CANCELLED)
    await ear.until(lambda signal: signal.kind is Kind.ANY or (signal.kind is Kind.STOP and signal.node == node))


async def test_who_stopped_listening_hears_nothing(store: Store) -> None:
    deaf, ear = Ear(store), Ear(store)
    deaf.stop()
    deaf.stop()
    await acts.create(store, [one_shot()])
    await ear.until(lambda signal: signal.kind is Kind.DUE)
    assert deaf.heard == []


async def test_what_was_not_written_is_not_told(store: Store) -> None:
    job = await given_job(store)
    stale = replace(job, revision=9)
    ear = Ear(store)
    assert await acts.fire(store, [firing(stale, slot_run(stale, NOW), plan_at=NOW)]) == [False]
    assert await acts.change(store, JobChange(job=stale, expected=8)) is None
    await acts.create(store, [one_shot(LATER)])
    await ear.until(lambda signal: signal.at == LATER)
    assert {signal.at for signal in ear.heard if signal.kind is not Kind.ANY} == {LATER}
