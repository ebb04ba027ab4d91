"""Queues: pauses and limits bind all nodes through the claim; how much waits, and how late it starts."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from horae.core.decisions.release import Rival
from horae.core.decisions.results import cancel, give_back, start, succeed
from horae.core.model import JobStatus, NodeId, Run
from horae.core.records import QueueSettings
from horae.core.signals import Kind
from horae.core.values import replace
from horae.lookup import queue_settings
from horae.ports.reader import QueueDepth
from horae.ports.store import Store
from tests import acts
from tests.acts import JobChange, Retraction
from tests.conformance.builders import (
    DAY,
    MINUTE,
    NOW,
    ODD,
    SECOND,
    claimed,
    claims_of,
    failed,
    given_job,
    given_node,
    given_running,
    ids,
    one_shot,
    recurring,
    retried,
    slot_run,
)
from tests.conformance.conftest import Connect
from tests.conformance.test_store_claim import owners
from tests.conformance.test_store_signals import Ear

LATER = NOW + MINUTE
TICK = timedelta(microseconds=1)


async def pause(store: Store, queue: str = "default", **changes: Any) -> None:
    await acts.set_queue(store, replace(QueueSettings(queue=queue, paused=True), **changes))


async def limit(store: Store, concurrency: int | None, queue: str = "default") -> None:
    await acts.set_queue(store, QueueSettings(queue=queue, concurrency=concurrency))


async def given_waiting(store: Store, count: int, **changes: Any) -> list[Run]:
    """Runs that are due, one microsecond after another; the last at NOW."""
    runs = [one_shot(NOW - (count - 1 - n) * TICK, **changes) for n in range(count)]
    await acts.create(store, runs)
    return runs


async def succeeded(store: Store, *runs: Run, at: datetime = NOW) -> None:
    results = [succeed(start(run, at), None, at) for run in runs]
    assert await store.settle(results) == [True] * len(runs)


# --- settings


async def test_a_queue_of_which_nothing_was_said_is_as_usual(store: Store) -> None:
    assert await queue_settings(store, "default") == QueueSettings(queue="default")
    assert list(await store.queues(now=NOW)) == []


@pytest.mark.parametrize(("paused", "concurrency"), [(True, None), (False, 3), (True, 1), (False, None)])
async def test_what_was_said_last_holds(store: Store, paused: bool, concurrency: int | None) -> None:
    said = QueueSettings(queue=ODD, paused=paused, concurrency=concurrency)
    await acts.set_queue(store, QueueSettings(queue=ODD, paused=not paused, concurrency=9))
    await acts.set_queue(store, said)
    assert await queue_settings(store, ODD) == said
    assert await queue_settings(store, "default") == QueueSettings(queue="default")


async def test_of_a_queue_only_what_is_named_is_said(store: Store) -> None:
    """Of two administrators at one instant neither takes back what the other says."""
    await acts.set_queue(store, QueueSettings(queue=ODD, paused=True, concurrency=9), fields=("paused",))
    assert await queue_settings(store, ODD) == QueueSettings(queue=ODD, paused=True)
    await acts.set_queue(store, QueueSettings(queue=ODD, concurrency=4), fields=("concurrency",))
    assert await queue_settings(store, ODD) == QueueSettings(queue=ODD, paused=True, concurrency=4)
    await acts.set_queue(store, QueueSettings(queue=ODD), fields=())
    assert await queue_settings(store, ODD) == QueueSettings(queue=ODD, paused=True, concurrency=4)
    await acts.set_queue(store, QueueSettings(queue=ODD, paused=True), fields=("concurrency",))
    await acts.set_queue(store, QueueSettings(queue=ODD, concurrency=7), fields=("paused",))
    assert await queue_settings(store, ODD) == QueueSettings(queue=ODD)


async def test_a_queue_with_settings_is_listed_although_it_is_empty(store: Store) -> None:
    await pause(store, "b")
    await limit(store, 2, "a")
    await limit(store, None, "as usual")
    assert list(await store.queues(now=NOW)) == [
        QueueDepth(queue="a", depth=0, oldest_due_at=None, running=0, concurrency=2),
        QueueDepth(queue="b", depth=0, oldest_due_at=None, running=0, paused=True),
    ]
    assert list(await store.queues(now=NOW, owner="ada")) == []


# --- pauses


async def test_nothing_is_claimed_from_a_paused_queue(store: Store, connect: Connect) -> None:
    [run] = await given_waiting(store, 1, queue="mail")
    [other] = await given_waiting(store, 1)
    await pause(await connect(), "mail")
    node = await given_node(store)

    claims = await claims_of(store, node)

    assert ids(claims.runs) == [other.id]
    assert not claims.more
    assert await claimed(store, node, queues=["mail"]) == []
    await limit(store, None, "mail")
    assert ids(await claimed(store, node, queues=["mail"])) == [run.id]


async def test_a_paused_queue_gives_no_next_time(store: Store) -> None:
    await acts.create(store, [one_shot(LATER, queue="mail"), one_shot(LATER + SECOND)])
    node = await given_node(store)
    assert (await claims_of(store, node)).next_at == LATER
    await pause(store, "mail")
    assert (await claims_of(store, node)).next_at == LATER + SECOND


async def test_what_a_node_holds_when_its_queue_is_paused_goes_on(store: Store) -> None:
    [run] = await given_running(store, one_shot())
    await pause(store)
    assert await store.start([run]) == [True]
    assert await store.settle([succeed(run, None, NOW)]) == [True]


async def test_what_woke_during_a_pause_is_claimed_after_it_although_it_lies_below_the_floor(store: Store) -> None:
    node = await given_node(store)
    await pause(store)
    runs = await given_waiting(store, 2, priority=1)
    assert await claimed(store, node, now=LATER, until=LATER, floor=LATER - SECOND) == []
    await limit(store, None)
    assert ids(await claimed(store, node, now=LATER, until=LATER, floor=LATER - SECOND)) == ids(runs)


# --- limits


async def test_no_more_runs_of_a_queue_are_held_than_its_limit(store: Store, connect: Connect) -> None:
    await limit(store, 3)
    runs = await given_waiting(store, 10)
    mine, yours, other = await given_node(store), await given_node(store), await connect()

    first = await claimed(store, mine, limit=2)
    second = await claimed(other, yours)

    assert ids([*first, *second]) == ids(runs[:3])
    claims = await claims_of(store, mine)
    assert (list(claims.runs), claims.more) == ([], False)
    await succeeded(store, first[0])
    assert ids(await claimed(other, yours)) == [runs[3].id]
    assert await claimed(other, yours) == []


async def test_a_limit_is_shared_by_the_priorities_of_its_queue(store: Store) -> None:
    await limit(store, 3)
    low, high = await given_waiting(store, 2, priority=-5), await given_waiting(store, 2, priority=5)
    node = await given_node(store)
    assert ids(await claimed(store, node)) == ids([*high, low[0]])
    assert await claimed(store, node) == []


async def test_a_limit_is_shared_by_the_owners_of_its_queue(store: Store) -> None:
    ada, bob = owners(2)
    await limit(store, 4)
    flood = await given_waiting(store, 20, owner=ada)
    late = [one_shot(owner=bob) for _ in range(3)]
    await acts.create(store, late)
    node = await given_node(store)
    taken = await claimed(store, node)
    assert set(ids(run for run in taken if run.owner == ada)) == set(ids(flood[:2]))
    assert len([run for run in taken if run.owner == bob]) == 2
    assert await claimed(store, node) == []


async def test_a_full_queue_does_not_stand_in_the_way_of_others(store: Store) -> None:
    await limit(store, 1, "narrow")
    await given_waiting(store, 50, queue="narrow", priority=9)
    wide = await given_waiting(store, 5, queue="wide")
    node = await given_node(store)
    taken = await claimed(store, node, limit=6)
    assert sorted(run.spec.queue for run in taken) == ["narrow", *["wide"] * 5]
    assert sorted(ids(run for run in taken if run.spec.queue == "wide")) == sorted(ids(wide))


async def test_what_waits_for_a_place_is_claimed_although_it_lies_below_the_floor(store: Store) -> None:
    await limit(store, 1)
    runs = await given_waiting(store, 2)
    node = await given_node(store)
    [first] = await claimed(store, node)
    await succeeded(store, first)
    assert ids(await claimed(store, node, now=LATER, until=LATER, floor=LATER - SECOND)) == [runs[1].id]


async def test_a_place_is_free_when_a_run_leaves_its_node_in_whatever_way(store: Store) -> None:
    await limit(store, 1)
    runs = await given_waiting(store, 4)
    node = await given_node(store)
    [first] = await claimed(store, node)
    assert ids([first]) == [runs[0].id]
    await store.settle([retried(start(first, NOW))])
    [second] = await claimed(store, node)
    await store.settle([failed(start(second, NOW))])
    [third] = await claimed(store, node)
    await store.settle([give_back(third, NOW)])
    assert len(await claimed(store, node)) == 1
    assert [second.id, third.id] == ids(runs[1:3])


async def test_a_limit_of_zero_lets_nothing_through(store: Store) -> None:
    await limit(store, 0)
    await given_waiting(store, 2)
    assert await claimed(store, await given_node(store)) == []


async def test_a_lower_limit_takes_nothing_back(store: Store) -> None:
    runs = await given_waiting(store, 5)
    node = await given_node(store)
    held = await claimed(store, node, limit=4)
    await limit(store, 2)
    assert await claimed(store, node) == []
    await succeeded(store, *held[:2])
    assert await claimed(store, node) == [], "two are still held"
    await succeeded(store, held[2])
    assert ids(await claimed(store, node)) == [runs[4].id]


async def test_runs_that_wait_behind_others_take_no_place_of_their_queue(store: Store) -> None:
    mine, yours = await given_node(store), await given_node(store)
    [ahead] = await given_waiting(store, 1, gate="g", queue="other")
    assert ids(await claimed(store, mine)) == [ahead.id]
    await limit(store, 1)
    blocked = await given_waiting(store, 3, gate="g")
    free = one_shot(NOW)
    await acts.create(store, [free])

    claims = await claims_of(store, yours)
    await acts.park(store, [item.run for item in claims.contested])
    again = await claims_of(store, yours)
    await acts.park(store, [item.run for item in again.contested])
    last = await claims_of(store, yours)

    assert ids([*claims.runs, *again.runs, *last.runs]) == [free.id]
    assert blocked[0].id in ids([item.run for item in [*claims.contested, *again.contested, *last.contested]])


async def test_nodes_that_claim_at_once_do_not_exceed_a_limit(store: Store, connect: Connect) -> None:
    await limit(store, 5)
    await given_waiting(store, 60)
    stores = [store, await connect(), await connect()]
    nodes = [await given_node(store) for _ in range(6)]

    async def claim(number: int, node: NodeId) -> list[Run]:
        return await claimed(stores[number % 3], node, limit=4)

    for _ in range(4):
        taken = await asyncio.gather(*(claim(number, node) for number, node in enumerate(nodes)))
        runs = [run for each in taken for run in each]
        assert len(runs) == 5
        assert len(set(ids(runs))) == 5
        await succeeded(store, *runs)


# --- signals


async def heard_due(store: Store, ear: Ear) -> bool:
    signal = await ear.until(lambda signal: signal.kind is Kind.DUE)
    return signal.at is None or signal.at <= max(NOW, await store.time())


async def test_the_end_of_a_pause_and_a_higher_limit_wake_the_workers(store: Store) -> None:
    await pause(store)
    ear = Ear(store)
    for concurrency in (1, 2, None):
        ear.clear()
        await limit(store, concurrency)
        assert await heard_due(store, ear)


@pytest.mark.parametrize("how", ["succeeds", "is tried again", "is given back"])
async def test_a_run_that_leaves_a_limited_queue_wakes_the_workers(store: Store, how: str) -> None:
    await limit(store, 1)
    await given_waiting(store, 2)
    [run] = await claimed(store, await given_node(store))
    ear = Ear(store)
    started = start(run, NOW)
    results = {"succeeds": succeed(started, None, NOW), "is tried again": retried(started), "is given back": None}
    assert await store.settle([results[how] or give_back(run, NOW)]) == [True]
    assert await heard_due(store, ear)


async def test_a_run_that_is_taken_back_to_its_schedule_wakes_the_workers(store: Store) -> None:
    await limit(store, 1)
    job = recurring(next_fire_at=LATER + MINUTE)
    await given_job(store, job, slot_run(job, LATER))
    [run] = await claimed(store, await given_node(store), until=LATER)
    paused = replace(job, status=JobStatus.PAUSED, plan_at=None, revision=2)
    assert await acts.change(store, JobChange(job=paused, expected=1)) is not None
    ear = Ear(store)
    assert await acts.retract(store, [run], now=NOW) == [Retraction.TAKEN_BACK]
    assert await heard_due(store, ear)


# --- how much waits


def depth(queue: str, waiting: int = 0, oldest: datetime | None = None, running: int = 0, **said: Any) -> QueueDepth:
    return QueueDepth(queue=queue, depth=waiting, oldest_due_at=oldest, running=running, **said)


async def test_settings_are_told_with_the_depth(store: Store) -> None:
    await given_waiting(store, 2, queue="a")
    await given_waiting(store, 1, queue="b")
    await pause(store, "a", concurrency=7)
    assert list(await store.queues(now=NOW)) == [
        depth("a", 2, NOW - TICK, paused=True, concurrency=7),
        depth("b", 1, NOW),
    ]


async def test_an_owner_is_told_of_own_runs_only(store: Store) -> None:
    node = await given_node(store)
    await acts.create(
        store,
        [
            *(
                one_shot(NOW - n * SECOND, queue="mail", priority=n, owner=owner)
                for n in range(3)
                for owner in ("ada", "bob")
            ),
            one_shot(NOW - MINUTE, queue="mail", owner="bob"),
            one_shot(LATER, queue="mail"),
            one_shot(LATER, queue="later"),
            one_shot(LATER, queue="theirs", owner="bob"),
            one_shot(NOW - MINUTE, queue="paused", paused=True),
            one_shot(NOW - MINUTE, queue="retrying"),
            *(one_shot(NOW - MINUTE, queue="held", owner=owner) for owner in ("ada", "ada", "bob")),
        ],
    )
    line = [one_shot(NOW - MINUTE, queue="line", gate="g"), one_shot(NOW, queue="line", gate="g")]
    await acts.create(store, line)
    await acts.park(store, [line[1]])
    [first] = await claimed(store, node, queues=["retrying"])
    await store.settle([retried(start(first, NOW))])
    held = await claimed(store, node, queues=["held"])
    await store.start([start(next(run for run in held if run.owner == "ada"), NOW)])
    await limit(store, 5, "mail")

    assert list(await store.queues(now=NOW, owner="ada")) == [
        depth("held", 1, NOW - MINUTE, running=1),
        depth("later"),
        depth("line", 2, NOW - MINUTE),
        depth("mail", 3, NOW - 2 * SECOND, concurrency=5),
        depth("paused"),
        depth("retrying"),
    ]
    assert list(await store.queues(now=NOW, owner="bob")) == [
        depth("held", 1, NOW - MINUTE),
        depth("mail", 4, NOW - MINUTE, concurrency=5),
        depth("theirs"),
    ]
    assert list(await store.queues(now=NOW, owner="eve")) == []
    everybody = {each.queue: each for each in await store.queues(now=NOW)}
    assert everybody["mail"] == depth("mail", 7, NOW - MINUTE, concurrency=5)
    assert everybody["held"] == depth("held", 2, NOW - MINUTE, running=1)


async def test_what_has_ended_is_in_no_queue(store: Store) -> None:
    [run] = await given_running(store, one_shot(queue="over"))
    await store.settle([failed(run)])
    assert list(await store.queues(now=NOW)) == list(await store.queues(now=NOW, owner="ada")) == []


# --- how much is to come


async def test_what_comes_due_within_a_while_is_counted_by_queue(store: Store) -> None:
    node = await given_node(store)
    await acts.create(
        store,
        [
            *(one_shot(NOW + n * SECOND, queue="mail", priority=n, owner=owner) for n in (1, 2) for owner in "ab"),
            one_shot(NOW, queue="mail"),  # due by now
            one_shot(NOW + MINUTE, queue="last"),
            one_shot(NOW + MINUTE + TICK, queue="later"),
            one_shot(NOW + SECOND, queue="paused", paused=True),
            one_shot(NOW - MINUTE, queue="retried"),
            one_shot(NOW + SECOND, queue="held"),
        ],
    )
    [first] = await claimed(store, node, queues=["retried"])
    await store.settle([retried(start(first, NOW), NOW)])
    await claimed(store, node, until=NOW + SECOND, queues=["held"])
    assert await store.due_soon(now=NOW, within=MINUTE) == {"last": 1, "mail": 4}


async def test_recurring_jobs_count_before_their_runs_are_planned(store: Store) -> None:
    for moment in (NOW, NOW + SECOND, NOW + MINUTE, NOW + DAY):
        await given_job(store, recurring(next_fire_at=moment, queue="reports"))
    resting = recurring(next_fire_at=NOW + SECOND, queue="reports", status=JobStatus.PAUSED, plan_at=None)
    await given_job(store, resting)
    planned = recurring(next_fire_at=NOW + MINUTE + SECOND, queue="mail")
    await given_job(store, planned, slot_run(planned, NOW + SECOND))
    assert await store.due_soon(now=NOW, within=MINUTE) == {"mail": 1, "reports": 2}


# --- how late


async def given_late(store: Store, latenesses: Sequence[timedelta], **changes: Any) -> None:
    """Runs that started so much after they were due, one a second up to NOW, and ended."""
    count = len(latenesses)
    runs = [one_shot(NOW - (count - 1 - n) * SECOND, **changes) for n in range(count)]
    await acts.create(store, runs)
    node = await given_node(store)
    queue = changes.get("queue", "default")
    held = {run.id: run for run in await claimed(store, node, queues=[queue], limit=2 * count)}
    started = [start(held[run.id], run.due_at + late) for run, late in zip(runs, latenesses, strict=True)]
    assert all(await store.settle([succeed(run, None, LATER) for run in started]))


def milliseconds(*values: float) -> list[timedelta]:
    return [timedelta(milliseconds=value) for value in values]


async def test_lateness_is_that_of_ninety_nine_in_a_hundred(store: Store) -> None:
    await given_late(store, milliseconds(*range(100, 0, -1)), queue="a")
    await given_late(store, milliseconds(*[1] * 100, *[70] * 2), queue="b")
    await given_late(store, milliseconds(5), queue="c")
    assert await store.queue_lateness(since=NOW - DAY) == {
        "a": timedelta(milliseconds=99),
        "b": timedelta(milliseconds=70),
        "c": timedelta(milliseconds=5),
    }


async def test_lateness_is_of_runs_due_lately_that_started_and_ended(store: Store) -> None:
    await given_late(store, milliseconds(9000, 8000, 2, 1))
    await given_late(store, milliseconds(60_000), queue="long ago")
    node = await given_node(store)
    await acts.create(store, [one_shot(NOW + SECOND), one_shot(NOW + SECOND), one_shot(NOW + SECOND)])
    cancelled, given_up, running = await claimed(store, node, now=LATER, until=LATER)
    await store.settle([cancel(cancelled, LATER), failed(start(given_up, NOW + SECOND + 7 * TICK))])
    await store.start([start(running, LATER)])

    assert await store.queue_lateness(since=NOW - 2 * SECOND) == {"default": timedelta(milliseconds=2)} | {
        "long ago": timedelta(seconds=60)
    }
    assert await store.queue_lateness(since=NOW) == {"default": 7 * TICK}
    assert await store.queue_lateness(since=LATER) == {}


async def test_lateness_is_of_the_first_attempt(store: Store) -> None:
    await acts.create(store, [one_shot(NOW)])
    node = await given_node(store)
    [run] = await claimed(store, node)
    await store.settle([retried(start(run, NOW + SECOND), NOW + SECOND)])
    [again] = await claimed(store, node, now=NOW + DAY, until=NOW + DAY)
    await succeeded(store, again, at=NOW + DAY)
    assert await store.queue_lateness(since=NOW - DAY) == {"default": SECOND}


async def test_lateness_is_taken_from_a_thousand_runs_at_most(store: Store) -> None:
    await given_late(store, milliseconds(*[5000] * 500, *[3] * 1000))
    assert await store.queue_lateness(since=NOW - DAY) == {"default": timedelta(milliseconds=3)}


async def test_an_owner_is_told_of_the_lateness_of_own_runs(store: Store) -> None:
    await given_late(store, milliseconds(3))
    await given_late(store, milliseconds(8), owner="bob")
    await given_late(store, milliseconds(9), owner="bob", queue="theirs")
    assert await store.queue_lateness(since=NOW - DAY, owner="ada") == {"default": timedelta(milliseconds=3)}
    assert await store.queue_lateness(since=NOW - DAY, owner="eve") == {}
    assert await store.queue_lateness(since=NOW - DAY) == {
        "default": timedelta(milliseconds=8),
        "theirs": timedelta(milliseconds=9),
    }


# --- overlap


async def test_a_run_that_overlaps_is_told_of_although_its_queue_is_full(store: Store) -> None:
    """Or it would wait for a place, and run when it should have been skipped."""
    await limit(store, 1)
    job = recurring()
    first, second = slot_run(job, NOW - SECOND, gate="g"), slot_run(job, NOW, gate="g")
    await given_job(store, job, first, second)
    node = await given_node(store)
    [run] = await claimed(store, node)
    await store.start([start(run, NOW - SECOND)])

    for each in (node, await given_node(store)):
        claims = await claims_of(store, each)
        assert list(claims.runs) == []
        [contested] = claims.contested
        assert contested.run.id == second.id
        assert list(contested.rivals) == [Rival(id=first.id, job_id=job.id, started_at=NOW - SECOND)]


async def test_what_only_waits_for_a_place_is_no_contest(store: Store) -> None:
    await limit(store, 1)
    await given_waiting(store, 1)
    await given_waiting(store, 1, gate="g")
    node = await given_node(store)
    await claimed(store, node, limit=1)
    claims = await claims_of(store, node)
    assert (list(claims.runs), list(claims.contested)) == ([], [])
