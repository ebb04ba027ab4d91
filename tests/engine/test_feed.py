"""The feed: each event once and in order for each who listens, whatever they missed, and nothing of others."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from horae.core.decisions.results import succeed
from horae.core.errors import Gone, Unavailable
from horae.core.events import EventKind
from horae.core.model import JobId, Run
from horae.core.values import replace
from horae.events import feed as feed_module
from horae.events.event import SLICE, EventFilter, EventId, EventLoader, FeedEvent, read_event_id, sort_key
from horae.events.feed import Feed, Listener, Tail, TailEntry
from horae.jobs.params import Parameters
from horae.ports.clock import Clock, StoreClock
from horae.ports.events import EVENT_LIFE
from horae.ports.store import Store
from horae.queries.jobs import JobQueries
from tests import acts
from tests.conformance.builders import given_ended, given_job, given_running, one_shot, recurring
from tests.engine.system import System

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
ADA = EventFilter(owner="ada")


class Ears:
    """Listeners over one tail that is moved by hand."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.store = store
        self._clock = clock
        self.tail = Tail(store, clock)
        queries = JobQueries(store=store, blobs=store.blobs, parameters=Parameters(store.blobs), clock=clock)
        self.loader = EventLoader(store, queries)

    async def begin(self) -> EventId:
        await self.tail.tick()
        return await self.here()

    def now(self) -> datetime:
        return self._clock.now()

    async def here(self) -> EventId:
        return EventId(position=await self.store.events.last(), count=0, at=NOW)

    def listener(self, after: EventId, interest: EventFilter = ADA) -> Listener:
        return Listener(self.tail, self.store, self.loader, interest, after)

    async def told(self, listener: Listener, *, tick: bool = True) -> list[FeedEvent]:
        """Everything that a listener is told by now."""
        if tick:
            await self.tail.tick()
        heard: list[FeedEvent] = []
        while some := await listener.next(0.02):
            heard += some
        return heard


@pytest.fixture
def ears(system: System) -> Ears:
    return Ears(system.store, system.clock)


async def settle(store: Store, *running: Run) -> None:
    assert await store.settle([succeed(run, '"done"', NOW) for run in running]) == [True] * len(running)


def kinds(told: Sequence[FeedEvent]) -> list[str]:
    return [happening.kind.value for happening in told]


def runs_of(told: Sequence[FeedEvent]) -> list[str | None]:
    return [happening.run_id for happening in told if happening.kind is EventKind.RUN_SUCCEEDED]


async def test_a_listener_is_told_what_happens_with_the_thing_itself(ears: Ears) -> None:
    listener = ears.listener(await ears.begin())
    [run] = await given_ended(ears.store, one_shot())
    created, ended = await ears.told(listener)
    assert (created.kind, created.job_id, created.run_id) == (EventKind.JOB_CREATED, run.job_id, None)
    assert created.job is not None
    assert (ended.kind, ended.job_id, ended.run_id) == (EventKind.RUN_SUCCEEDED, run.job_id, run.id)
    assert ended.run is not None
    assert ended.run.result == '"done"'


async def test_a_listener_is_told_nothing_of_other_owners(ears: Ears) -> None:
    listener = ears.listener(await ears.begin())
    everybody = ears.listener(await ears.here(), EventFilter(owner=None))
    await given_job(ears.store, recurring(owner="bob"))
    await given_ended(ears.store, one_shot(owner="bob"))
    assert await ears.told(listener) == []
    assert len(await ears.told(everybody)) == 3


async def test_who_listens_from_now_on_is_not_told_the_past(ears: Ears) -> None:
    await given_ended(ears.store, one_shot())
    listener = ears.listener(await ears.begin())
    assert await ears.told(listener) == []


async def test_who_was_here_before_the_first_look_hears_what_it_passed_over(ears: Ears) -> None:
    listener = ears.listener(await ears.here())
    waiting = asyncio.create_task(listener.next(60))
    await asyncio.sleep(0.01)
    job = await given_job(ears.store)
    await ears.tail.tick()
    async with asyncio.timeout(10):
        [told] = await waiting
    assert told.job_id == job.id


async def test_kinds_and_one_job_can_be_chosen(ears: Ears) -> None:
    after = await ears.begin()
    ends = ears.listener(after, dataclasses.replace(ADA, kinds=frozenset({EventKind.RUN_SUCCEEDED})))
    wanted, _ = await given_ended(ears.store, one_shot(), one_shot())
    of_job = ears.listener(after, dataclasses.replace(ADA, job_id=JobId(wanted.job_id)))
    assert kinds(await ears.told(ends)) == ["run.succeeded"] * 2
    assert kinds(await ears.told(of_job)) == ["job.created", "run.succeeded"]


@pytest.mark.parametrize("heard", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("remembered", [True, False])
async def test_who_comes_back_is_told_the_rest_exactly_once(
    ears: Ears, system: System, heard: int, remembered: bool
) -> None:
    """Also within a batch, for the two runs end together; and whether or not the tail still remembers."""
    after = await ears.begin()
    running = await given_running(ears.store, one_shot(), one_shot())
    await settle(ears.store, *running)
    await given_job(ears.store)
    all_of_it = await ears.told(ears.listener(after))
    assert len(all_of_it) == 5
    last = all_of_it[heard - 1].id if heard else after
    assert last is not None
    other = ears if remembered else Ears(ears.store, system.clock)
    rest = await other.told(other.listener(last))
    assert [(told.kind, told.job_id, told.run_id) for told in rest] == [
        (told.kind, told.job_id, told.run_id) for told in all_of_it[heard:]
    ]


async def test_a_position_that_the_tail_has_not_reached_repeats_nothing(ears: Ears, system: System) -> None:
    """Another server told it, which was ahead of this one."""
    await ears.begin()
    await given_ended(ears.store, one_shot())
    listener = ears.listener(await ears.here())
    assert await ears.told(listener, tick=False) == []
    [run] = await given_ended(ears.store, one_shot())
    assert runs_of(await ears.told(listener)) == [run.id]


async def test_a_slow_listener_reads_what_the_tail_has_forgotten(
    ears: Ears, monkeypatch: pytest.MonkeyPatch, system: System
) -> None:
    monkeypatch.setattr(feed_module, "KEPT", 3)
    ears = Ears(ears.store, system.clock)
    slow, quick = ears.listener(await ears.begin()), ears.listener(await ears.here())
    first = await given_ended(ears.store, one_shot())
    assert runs_of(await ears.told(slow)) == [first[0].id]
    ended: list[str | None] = []
    for _ in range(5):
        [run] = await given_ended(ears.store, one_shot())
        ended.append(run.id)
        await ears.told(quick)
    assert runs_of(await ears.told(slow)) == ended
    [last] = await given_ended(ears.store, one_shot())
    assert runs_of(await ears.told(slow)) == [last.id]


async def test_a_large_batch_is_told_in_slices_and_resumed_within(ears: Ears) -> None:
    after = await ears.begin()
    jobs = [one_shot() for _ in range(2 * SLICE + 50)]
    await acts.create(ears.store, jobs)
    await ears.tail.tick()
    listener = ears.listener(after)
    first = await listener.next(1)
    assert len(first) == SLICE
    assert first[-1].id is not None
    rest = await ears.told(ears.listener(first[-1].id))
    assert [told.job_id for told in (*first, *rest)] == [job.job_id for job in jobs]


async def test_where_a_quiet_listener_stands_moves_with_what_it_passed_over(ears: Ears) -> None:
    after = await ears.begin()
    listener = ears.listener(after)
    await given_ended(ears.store, one_shot(owner="bob"))
    assert await ears.told(listener) == []
    seen = listener.resume_id(NOW)
    assert sort_key(seen.position) > sort_key(after.position)
    [run] = await given_ended(ears.store, one_shot())
    assert runs_of(await ears.told(ears.listener(seen))) == [run.id]


async def test_several_listeners_share_what_is_loaded(ears: Ears) -> None:
    after = await ears.begin()
    listeners = [ears.listener(after) for _ in range(5)]
    await given_ended(ears.store, one_shot())
    await ears.tail.tick()
    told = [await ears.told(listener, tick=False) for listener in listeners]
    assert all(each is first for each, first in zip(told[-1], told[0], strict=True))


async def test_starts_and_progress_are_told_as_far_as_they_are_seen(ears: Ears, system: System) -> None:
    ears.tail.owners["ada"] += 1
    [early] = await given_running(ears.store, one_shot())
    listener = ears.listener(await ears.begin())
    [run, _] = await given_running(ears.store, one_shot(), one_shot(owner="bob"))
    system.clock.advance(seconds=1)
    told = await ears.told(listener)
    assert [(one.kind, one.run_id, one.id) for one in told if one.run_id] == [(EventKind.RUN_STARTED, run.id, None)]
    assert await ears.store.start([replace(run, progress=0.5), replace(early, progress=0.1)]) == [True, True]
    system.clock.advance(seconds=1)
    progress = await ears.told(listener)
    assert {(one.kind, one.run_id) for one in progress} == {(EventKind.RUN_PROGRESS, each.id) for each in (run, early)}
    system.clock.advance(seconds=1)
    assert await ears.told(listener) == []


async def test_a_listener_hears_when_the_tail_has_failed(ears: Ears) -> None:
    listener = ears.listener(await ears.begin())
    waiting = asyncio.create_task(listener.next(60))
    await asyncio.sleep(0)
    ears.tail.fail()
    with pytest.raises(Unavailable):
        await waiting


# --- many who listen


class Crowd:
    """Listeners that wait, and how often one of them looks at the tail."""

    def __init__(self, ears: Ears, monkeypatch: pytest.MonkeyPatch) -> None:
        self.looks = 0
        self.heard: list[FeedEvent] = []
        self._ears = ears
        self._tasks: list[asyncio.Task[None]] = []
        entries = ears.tail.entries

        def counted(start: int) -> list[TailEntry] | None:
            self.looks += 1
            return entries(start)

        monkeypatch.setattr(ears.tail, "entries", counted)

    async def join(self, which: EventFilter, count: int, seconds: float = 60) -> None:
        after = await self._ears.begin()
        for _ in range(count):
            self._tasks.append(asyncio.create_task(self._listen(self._ears.listener(after, which), seconds)))
        await asyncio.sleep(0)
        self.looks = 0

    async def _listen(self, listener: Listener, seconds: float) -> None:
        self.heard += await listener.next(seconds)

    async def leave(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@pytest.fixture
async def crowd(ears: Ears, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Crowd]:
    crowd = Crowd(ears, monkeypatch)
    yield crowd
    await crowd.leave()


@pytest.mark.parametrize(
    "which",
    [
        EventFilter(owner="bob"),
        EventFilter(owner="ada", kinds=frozenset({EventKind.RUN_FAILED})),
        EventFilter(owner="ada", job_id=JobId("0" * 32)),
    ],
    ids=["another owner", "another kind", "another job"],
)
async def test_those_whom_an_event_does_not_concern_are_not_woken(ears: Ears, crowd: Crowd, which: EventFilter) -> None:
    await crowd.join(which, 1000)
    await given_job(ears.store)
    await ears.tail.tick()
    await asyncio.sleep(0.01)
    assert crowd.looks == 0


async def test_all_whom_an_event_concerns_are_woken_a_few_at_a_time(
    ears: Ears, crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "WAKE_AT_ONCE", 10)
    await crowd.join(ADA, 95)
    await crowd.join(EventFilter(owner="bob"), 5)
    job, other = await given_job(ears.store), await given_job(ears.store, recurring(owner="bob"))
    for turn in range(1, 11):
        again_at = await ears.tail.tick()
        async with asyncio.timeout(10):
            while len(crowd.heard) < 10 * turn:  # noqa: ASYNC110 - each of the crowd notes it for itself
                await asyncio.sleep(0.001)
        assert len(crowd.heard) == 10 * turn
    assert again_at - ears.now() == feed_module.POLL
    assert [event.job_id for event in crowd.heard[:10]].count(other.id) == 5, "owners take turns"
    assert [event.job_id for event in crowd.heard].count(job.id) == 95


async def test_one_who_waited_in_vain_goes_on_after_what_passed_by(ears: Ears, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the tail has forgotten it meanwhile: the store is not read for it."""
    monkeypatch.setattr(feed_module, "KEPT", 3)
    listener = ears.listener(await ears.begin())
    waiting = asyncio.create_task(listener.next(0.2))
    for _ in range(5):
        await given_job(ears.store, recurring(owner="bob"))
        await ears.tail.tick()
    assert await waiting == []
    assert listener.resume_id(NOW).position == ears.tail.position
    monkeypatch.setattr(ears.store.events, "read", None)
    assert await listener.next(0) == []


# --- the feed itself, which looks at the store while somebody listens


async def following(store: Store) -> Feed:
    clock = StoreClock()
    now = await store.time()
    clock.sync(now, asked_at=clock.elapsed(), answered_at=clock.elapsed())
    queries = JobQueries(store=store, blobs=store.blobs, parameters=Parameters(store.blobs), clock=clock)
    return Feed(store, queries, clock)


def looks() -> int:
    """How many of the feed's loops there are."""
    return sum(1 for task in asyncio.all_tasks() if task.get_name() == "feed")


async def test_the_feed_looks_only_while_somebody_listens(system: System) -> None:
    feed = await following(system.store)
    assert looks() == 0
    with feed.listen(ADA, await feed.position(None)) as one:
        with feed.listen(ADA, await feed.position(None)) as other:
            [run] = await given_ended(system.store, one_shot())
            for listener in (one, other):
                heard: list[FeedEvent] = []
                async with asyncio.timeout(10):
                    while len(heard) < 2:
                        heard += await listener.next(5)
                assert runs_of(heard) == [run.id]
        assert looks() == 1
    async with asyncio.timeout(10):
        while looks():  # noqa: ASYNC110 - nobody waits for the last look
            await asyncio.sleep(0.01)


async def test_waking_the_feed_ends_every_wait(system: System) -> None:
    feed = await following(system.store)
    with feed.listen(ADA, await feed.position(None)) as listener:
        waiting = asyncio.create_task(listener.next(60))
        async with asyncio.timeout(10):
            while not waiting.done():
                feed.wake()
                await asyncio.sleep(0.01)
        assert waiting.result() == []


# --- ids


def test_an_id_is_read_back_as_it_was_written() -> None:
    ident = EventId(position="123.45", count=7, at=NOW)
    assert read_event_id(str(ident), like="1.1", now=NOW) == ident


@pytest.mark.parametrize("text", ["", "7", "7-0", "x-0-1", "7-0-x", "-7-0-1", "7.1-0-1", "7-0-1-1", "9" * 200])
def test_an_id_of_somebody_else_leads_nowhere(text: str) -> None:
    with pytest.raises(Gone, match="without Last-Event-ID"):
        read_event_id(text, like="12", now=NOW)


@pytest.mark.parametrize("age", [EVENT_LIFE, timedelta(days=40), -timedelta(hours=1)])
def test_an_id_that_is_too_old_or_from_the_future_leads_nowhere(age: timedelta) -> None:
    with pytest.raises(Gone, match="without Last-Event-ID"):
        read_event_id(str(EventId(position="7", count=0, at=NOW - age)), like="12", now=NOW)


def test_positions_have_the_order_of_their_numbers() -> None:
    assert sort_key("9.1") < sort_key("10.0") < sort_key("10.2")
