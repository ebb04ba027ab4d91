"""Events: what happened to jobs and runs, in an order that never changes, for whoever listens or comes back later."""

import asyncio
from collections import Counter
from datetime import date, timedelta

import pytest

from horae.core.decisions.new_runs import manual_run, requeued
from horae.core.decisions.results import cancel, give_back, skip, start, succeed
from horae.core.errors import Invalid
from horae.core.events import EventKind
from horae.core.model import JobStatus, Reason, Run
from horae.core.records import IdempotencyRecord
from horae.core.values import replace
from horae.lookup import find_run
from horae.ports.events import EVENT_LIFE, EventBatch
from horae.ports.store import Store
from tests import acts
from tests.acts import JobChange, Resolution, WithRecord
from tests.conformance.builders import (
    MINUTE,
    NOW,
    ODD,
    SECOND,
    claimed,
    failed,
    firing,
    given_claimed,
    given_job,
    given_node,
    given_running,
    new_id,
    one_shot,
    recurring,
    retried,
    slot_run,
)
from tests.conformance.conftest import Connect

Told = tuple[EventKind, str, str]  # kind, owner, subject


async def batches_of(store: Store, after: str | None = None, owner: str | None = None) -> list[EventBatch]:
    """Everything that is told, page by page."""
    found: list[EventBatch] = []
    while page := await store.events.read(after=found[-1].position if found else after, owner=owner, limit=3):
        assert len(page) <= 3
        found += page
    return found


def each_of(batches: list[EventBatch]) -> list[Told]:
    return [(batch.kind, batch.owner, subject) for batch in batches for subject in batch.subjects]


async def told(store: Store, after: str | None = None, owner: str | None = None) -> list[Told]:
    """What is told, subject by subject."""
    return each_of(await batches_of(store, after, owner))


class Listener:
    """Follows a store from now on."""

    def __init__(self, store: Store, position: str) -> None:
        self._store = store
        self._position = position

    async def news(self) -> list[Told]:
        """What happened since the last time."""
        batches = await batches_of(self._store, self._position)
        self._position = batches[-1].position if batches else self._position
        return each_of(batches)


async def listening(store: Store) -> Listener:
    return Listener(store, await store.events.last())


# --- kinds


async def test_new_jobs_are_told_of(store: Store) -> None:
    listener = await listening(store)
    run, job = one_shot(), recurring()
    await acts.create(store, [run, firing(job, slot_run(job, NOW))])
    assert sorted(await listener.news()) == sorted(
        [(EventKind.JOB_CREATED, "ada", run.job_id), (EventKind.JOB_CREATED, "ada", job.id)]
    )


async def test_runs_of_jobs_are_no_new_jobs(store: Store) -> None:
    job = await given_job(store)
    listener = await listening(store)
    await acts.create(store, [manual_run(job, now=NOW, new_id=new_id)])
    await acts.fire(store, [firing(job, slot_run(job, NOW))])
    assert await listener.news() == []


async def test_what_was_not_created_is_not_told_of(store: Store) -> None:
    run, job = one_shot(key="k"), recurring()
    record = IdempotencyRecord(owner="ada", key="r", fingerprint="f", answer="a", created_at=NOW)
    await acts.create(store, [run, firing(job), WithRecord(item=one_shot(), record=record)])
    listener = await listening(store)

    fresh = one_shot()
    await acts.create(store, [one_shot(key="k"), WithRecord(item=one_shot(), record=record)])
    await acts.create(store, [run, fresh, firing(job)])

    assert await listener.news() == [(EventKind.JOB_CREATED, "ada", fresh.job_id)], "a batch may be sent again"


@pytest.mark.parametrize(
    ("how", "kind"),
    [
        ("succeed", EventKind.RUN_SUCCEEDED),
        ("fail", EventKind.RUN_FAILED),
        ("cancel", EventKind.RUN_CANCELLED),
        ("skip", EventKind.RUN_SKIPPED),
    ],
)
async def test_the_end_of_a_run_is_told_of_once(store: Store, how: str, kind: EventKind) -> None:
    [run] = await given_claimed(store, one_shot())
    started = start(run, NOW)
    ends = {
        "succeed": lambda: succeed(started, None, NOW),
        "fail": lambda: failed(started),
        "cancel": lambda: cancel(started, NOW),
        "skip": lambda: skip(run, Reason.OVERLAP, NOW),
    }
    listener = await listening(store)
    result = ends[how]()
    assert await store.settle([result]) == [True]
    assert await store.settle([result]) == [True], "sent again after a doubt"
    assert await store.settle([replace(result, run=replace(result.run, fence=9))]) == [False]
    assert await listener.news() == [(kind, "ada", run.id)]


async def test_the_end_of_a_run_that_waits_is_told_of(store: Store) -> None:
    runs = [one_shot(), one_shot()]
    await acts.create(store, runs)
    listener = await listening(store)
    results = [cancel(runs[0], NOW), skip(runs[1], Reason.TOO_LATE, NOW)]
    assert await store.settle([*results, cancel(one_shot(), NOW)]) == [True, True, False]
    assert sorted(await listener.news()) == [
        (EventKind.RUN_CANCELLED, "ada", runs[0].id),
        (EventKind.RUN_SKIPPED, "ada", runs[1].id),
    ]


async def test_what_goes_on_is_not_told_of(store: Store) -> None:
    runs = await given_running(store, one_shot(), one_shot())
    listener = await listening(store)
    await store.start(runs)
    await store.settle([retried(runs[0]), give_back(runs[1], NOW)])
    assert await listener.news() == []


@pytest.mark.parametrize("kind", [EventKind.JOB_UPDATED, EventKind.JOB_PAUSED, EventKind.JOB_CANCELLED, None])
async def test_a_change_of_a_job_is_told_of_as_it_says(store: Store, kind: EventKind | None) -> None:
    job = await given_job(store)
    listener = await listening(store)
    change = JobChange(job=replace(job, revision=2), expected=1, event=kind)
    assert await acts.change(store, change) is not None
    assert await acts.change(store, change) is None
    assert await listener.news() == ([(kind, "ada", job.id)] if kind else [])


@pytest.mark.parametrize("kind", [EventKind.JOB_UPDATED, EventKind.JOB_RESUMED, None])
async def test_a_change_of_a_one_shot_is_told_of_as_it_says(store: Store, kind: EventKind | None) -> None:
    run = one_shot()
    await acts.create(store, [run])
    listener = await listening(store)
    changed = replace(run, revision=2)
    assert await acts.change_one_shot(store, changed, expected=1, event=kind)
    assert not await acts.change_one_shot(store, changed, expected=1, event=kind)
    assert await listener.news() == ([(kind, "ada", run.job_id)] if kind else [])


async def test_a_firing_is_told_of_as_it_says_if_it_holds(store: Store) -> None:
    jobs = [await given_job(store) for _ in range(3)]
    listener = await listening(store)
    resumed = firing(jobs[0], next_fire_at=NOW + MINUTE, event=EventKind.JOB_RESUMED)
    finished = firing(jobs[1], next_fire_at=None, plan_at=None, status=JobStatus.FINISHED, event=EventKind.JOB_FINISHED)
    silent = firing(jobs[2], next_fire_at=NOW + MINUTE)
    assert await acts.fire(store, [resumed, finished, silent]) == [True] * 3
    assert await acts.fire(store, [resumed]) == [False]
    assert await listener.news() == [
        (EventKind.JOB_RESUMED, "ada", jobs[0].id),
        (EventKind.JOB_FINISHED, "ada", jobs[1].id),
    ]


async def test_a_requeued_letter_is_no_new_job(store: Store) -> None:
    [run] = await given_running(store, one_shot())
    letter = failed(run).run
    await store.settle([failed(run)])
    listener = await listening(store)
    successor = requeued(letter, now=NOW, new_id=new_id)
    assert await acts.resolve(store, [Resolution(run_id=letter.id, successor=successor)], now=NOW) == [True]
    assert await listener.news() == []


# --- order and resuming


async def test_events_come_in_the_order_in_which_they_happened(store: Store) -> None:
    listener = await listening(store)
    expected: list[Told] = []
    node = await given_node(store)
    for _ in range(5):
        run = one_shot()
        await acts.create(store, [run])
        [held] = await claimed(store, node)
        await store.settle([succeed(start(held, NOW), None, NOW)])
        expected += [(EventKind.JOB_CREATED, "ada", run.id), (EventKind.RUN_SUCCEEDED, "ada", run.id)]
    assert await listener.news() == expected


async def test_a_batch_is_one_event_for_each_owner_and_kind(store: Store) -> None:
    position = await store.events.last()
    runs = [one_shot(owner=("ada", "bob")[n % 2]) for n in range(100)]
    await acts.create(store, runs)
    held = await claimed(store, await given_node(store))
    await store.settle([succeed(start(run, NOW), None, NOW) for run in held])

    batches = await batches_of(store, position)

    assert Counter((batch.kind, batch.owner, len(batch.subjects)) for batch in batches) == Counter(
        (kind, owner, 50) for kind in (EventKind.JOB_CREATED, EventKind.RUN_SUCCEEDED) for owner in ("ada", "bob")
    )
    assert {subject for batch in batches for subject in batch.subjects} == {run.id for run in runs}


async def test_a_listener_may_come_back_at_any_position(store: Store) -> None:
    for _ in range(7):
        await acts.create(store, [one_shot(), one_shot(owner="bob")])
    batches = await batches_of(store)
    assert len(batches) == 14
    for number, batch in enumerate(batches):
        assert await batches_of(store, batch.position) == batches[number + 1 :]
    theirs = [batch for batch in batches if batch.owner == "bob"]
    for batch in batches:
        rest = [each for each in theirs if batches.index(each) > batches.index(batch)]
        assert await batches_of(store, batch.position, "bob") == rest


async def test_positions_are_all_different(store: Store) -> None:
    await acts.create(store, [one_shot(), one_shot(owner="bob")])
    await acts.create(store, [one_shot()])
    positions = [batch.position for batch in await batches_of(store)]
    assert len(set(positions)) == 3


async def test_the_last_position_is_before_all_that_happens_from_now_on(store: Store) -> None:
    assert await told(store, await store.events.last()) == []
    await acts.create(store, [one_shot()])
    position = await store.events.last()
    assert await told(store, position) == []
    run = one_shot()
    await acts.create(store, [run])
    assert await told(store, position) == [(EventKind.JOB_CREATED, "ada", run.id)]


async def test_owners_are_told_of_their_own(store: Store) -> None:
    mine, yours, odd = one_shot(), one_shot(owner="bob"), one_shot(owner=ODD)
    await acts.create(store, [mine, yours, odd])
    assert await told(store, owner="ada") == [(EventKind.JOB_CREATED, "ada", mine.id)]
    assert await told(store, owner="bob") == [(EventKind.JOB_CREATED, "bob", yours.id)]
    assert await told(store, owner=ODD) == [(EventKind.JOB_CREATED, ODD, odd.id)]
    assert await told(store, owner="eve") == []
    assert len(await told(store)) == 3


@pytest.mark.parametrize("position", ["", "x", "-1", "1.5", "١", " 1", "9" * 30, "0x1", "1\x00"])
async def test_a_position_that_nobody_gave_out_is_refused(store: Store, position: str) -> None:
    with pytest.raises(Invalid):
        await store.events.read(after=position, owner=None, limit=10)


async def test_a_position_of_a_database_that_was_set_back_begins_anew(store: Store) -> None:
    """As after a restore: better everything once more than nothing for a long time."""
    run = one_shot()
    await acts.create(store, [run])
    assert await told(store, "4711") == [(EventKind.JOB_CREATED, "ada", run.id)]


async def test_of_what_is_undone_nothing_is_told(store: Store) -> None:
    listener = await listening(store)
    good, bad = one_shot(), replace(one_shot(), id=None)
    with pytest.raises(Exception, match=r".+"):
        await acts.create(store, [good, bad])
    assert await find_run(store, good.id, owner=None) is None
    assert await listener.news() == []


async def test_a_listener_beside_busy_writers_gets_each_event_once(store: Store, connect: Connect) -> None:
    stores = [await connect() for _ in range(3)]
    done = asyncio.Event()
    expected: Counter[Told] = Counter()

    async def write(one: Store, owner: str) -> None:
        node = await given_node(one)
        for _ in range(8):
            runs = [one_shot(owner=owner, queue=owner) for _ in range(3)]
            await acts.create(one, runs)
            held = await claimed(one, node, queues=[owner])
            await one.settle([succeed(start(run, NOW), None, NOW) for run in held])
            ends = (EventKind.JOB_CREATED, EventKind.RUN_SUCCEEDED)
            expected.update((kind, owner, run.id) for kind in ends for run in runs)

    async def listen() -> list[Told]:
        listener, heard = await listening(store), list[Told]()
        ready.set()
        async with asyncio.timeout(20):
            while not done.is_set() or len(heard) < expected.total():
                heard += await listener.news()
                await asyncio.sleep(0.002)
        return heard + await listener.news()

    ready = asyncio.Event()
    listener = asyncio.create_task(listen())
    await ready.wait()
    await asyncio.gather(*(write(one, f"owner-{number}") for number, one in enumerate(stores)))
    done.set()
    heard = await listener

    assert Counter(heard) == expected
    assert heard == await told(store), "the order that was seen is the order that stays"
    for number in range(3):
        mine = [event for event in heard if event[1] == f"owner-{number}"]
        assert await told(store, owner=f"owner-{number}") == mine
        for run in {subject for _, _, subject in mine}:
            kinds = [kind for kind, _, subject in mine if subject == run]
            assert kinds == [EventKind.JOB_CREATED, EventKind.RUN_SUCCEEDED]


# --- time


async def test_events_tell_when_they_happened(store: Store) -> None:
    before = await store.time()
    await acts.create(store, [one_shot()])
    [batch] = await batches_of(store)
    assert before - SECOND <= batch.at <= await store.time() + SECOND


async def given_events(store: Store, count: int) -> list[EventBatch]:
    for _ in range(count):
        await acts.create(store, [one_shot()])
    return await batches_of(store)


async def test_events_are_kept_for_a_day(store: Store) -> None:
    batches = await given_events(store, 3)
    first = min(batch.at for batch in batches)
    last = max(batch.at for batch in batches)
    assert await store.prune(before=date.min, now=first + EVENT_LIFE, limit=10) == 0
    assert await batches_of(store) == batches
    assert await store.prune(before=date.min, now=last + EVENT_LIFE + timedelta(microseconds=1), limit=10) == 3
    assert await batches_of(store) == []


async def test_events_expire_in_bounded_steps_the_oldest_first(store: Store) -> None:
    batches = await given_events(store, 7)
    now = batches[-1].at + EVENT_LIFE + MINUTE
    steps = []
    while gone := await store.prune(before=date.min, now=now, limit=3):
        steps.append(gone)
        assert await batches_of(store) == batches[sum(steps) :]
    assert steps == [3, 3, 1]


async def test_positions_are_not_given_again(store: Store) -> None:
    """Or a listener would miss what has the position of something that it has seen."""
    batches = await given_events(store, 3)
    position = await store.events.last()
    assert await store.prune(before=date.min, now=batches[-1].at + EVENT_LIFE + MINUTE, limit=10) == 3
    assert await batches_of(store, batches[0].position) == []
    run = one_shot()
    await acts.create(store, [run])
    assert await told(store, position) == [(EventKind.JOB_CREATED, "ada", run.id)]
    assert await told(store, batches[-1].position) == [(EventKind.JOB_CREATED, "ada", run.id)]
    assert await told(store) == [(EventKind.JOB_CREATED, "ada", run.id)]


async def test_large_batches_are_told_of(store: Store) -> None:
    runs: list[Run] = [one_shot() for _ in range(5000)]
    await acts.create(store, runs)
    [batch] = await batches_of(store)
    assert sorted(batch.subjects) == sorted(run.id for run in runs)


async def test_a_position_before_a_time_is_found(store: Store) -> None:
    """No event from that time on comes before it, and what is much older does not come after it."""
    begin = await store.events.last()
    await acts.create(store, [one_shot()])
    [first] = await batches_of(store, begin)
    for _ in range(20):
        await acts.create(store, [one_shot()])
    batches = await batches_of(store, begin)
    assert len(batches) == 21
    long_ago = await store.events.last(before=first.at - timedelta(days=1))
    assert [batch.position for batch in await batches_of(store, long_ago)][-21:] == [
        batch.position for batch in batches
    ]
    middle = await store.events.last(before=batches[10].at)
    assert {batch.position for batch in batches[10:]} <= {batch.position for batch in await batches_of(store, middle)}
    later = await store.events.last(before=batches[-1].at + timedelta(hours=1))
    assert await batches_of(store, later) == []
    assert await store.events.last(before=batches[-1].at + timedelta(hours=1)) == await store.events.last()
