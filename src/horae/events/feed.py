"""The event feed: one poll of the store serves all listeners, and without listeners there is none."""

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from itertools import chain, islice

import structlog

from horae.core.errors import Gone, Unavailable
from horae.core.events import EventKind
from horae.core.schedule.timestamps import rfc3339
from horae.core.signals import Signal
from horae.events.event import MARGIN, EventFilter, EventId, EventLoader, FeedEvent, read_event_id, sort_key
from horae.events.progress import BEST_EFFORT, ProgressPoll
from horae.loop import Loop
from horae.ports.clock import Clock
from horae.ports.events import EVENT_LIFE, EventBatch
from horae.ports.store import Store
from horae.queries.jobs import JobQueries

log = structlog.get_logger(__name__)

POLL = timedelta(milliseconds=200)
SIGNAL_DELAY = timedelta(milliseconds=40)  # between a signal and its poll, so that many signals cause one
PROGRESS_POLL = timedelta(milliseconds=500)
PAGE = 100  # batches per read; each may hold 10,000 events
KEPT = 50_000  # events in the tail; a listener that is further behind reads the store
WAKE_AT_ONCE, WAKE_EVERY = 25, timedelta(milliseconds=20)  # so many listeners, so that there is time for other work


@dataclass(frozen=True, kw_only=True)
class TailEntry:
    """A batch of stored events, or some best-effort events."""

    position: str  # of the last stored batch
    before: str
    batch: EventBatch | None = None
    best_effort: Sequence[FeedEvent] = ()

    @property
    def size(self) -> int:
        return len(self.best_effort) if self.batch is None else len(self.batch.subjects)

    @cached_property
    def owners(self) -> frozenset[str]:
        """Whose events these are."""
        return frozenset([self.batch.owner] if self.batch else [event.owner for event in self.best_effort])

    @cached_property
    def _kinds(self) -> frozenset[EventKind]:
        return frozenset([self.batch.kind] if self.batch else [event.kind for event in self.best_effort])

    @cached_property
    def _jobs(self) -> frozenset[str | None] | None:
        """The jobs that the events are about; None when that is known only after their runs are read."""
        if self.batch is None:
            return frozenset(event.job_id for event in self.best_effort)
        return frozenset(self.batch.subjects) if self.batch.kind.startswith("job.") else None

    def concerns(self, which: EventFilter) -> bool:
        """Whether a listener has to look at it."""
        return (
            (which.owner is None or which.owner in self.owners)
            and not which.kinds.isdisjoint(self._kinds)
            and (which.job_id is None or self._jobs is None or which.job_id in self._jobs)
        )


@dataclass(slots=True, eq=False)
class _Waiter:
    """A listener that waits for entries."""

    which: EventFilter
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    found: bool = False  # whether an entry has come that concerns it


class Tail:
    """The latest events of all owners, read once for all listeners."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._entries: deque[TailEntry] = deque()
        self._size = 0  # how many events the entries hold
        self._waiters: defaultdict[str | None, set[_Waiter]] = defaultdict(set)  # by the owner that they listen to
        self._called: dict[str | None, deque[_Waiter]] = {}  # that are still to be woken, in the turns of their owners
        self._progress = ProgressPoll(store)
        self._poll_progress_at = clock.now()
        self.position: str | None = None  # of the last stored batch; None before the first poll
        self.end = 0  # the number of the next entry
        self.owners: Counter[str | None] = Counter()  # whose best-effort events are listened to
        self.failed = False

    async def tick(self) -> datetime:
        """Read new events, and return when to poll again."""
        now = self._clock.now()
        if self.position is None:
            self.position = await self._store.events.last()
            self.end += 1
            self._call(self._all_waiters())  # also those that resume before this position
        batches = await self._store.events.read(after=self.position, owner=None, limit=PAGE)
        for batch in batches:
            self._add(TailEntry(position=batch.position, before=self.position, batch=batch))
        if now >= self._poll_progress_at:
            self._poll_progress_at = now + PROGRESS_POLL
            await self._add_progress(now, self.position)
        self._wake_some()
        return now if len(batches) == PAGE else now + (WAKE_EVERY if self._called else POLL)

    def fail(self) -> None:
        """Let every listener raise Unavailable: the tail is no longer read."""
        self.failed = True
        self.wake()

    def wake(self) -> None:
        """Let every listener that waits return."""
        for waiter in self._all_waiters():
            waiter.woken.set()

    async def wait(self, which: EventFilter, seconds: float) -> bool:
        """Wait for an entry for a listener; False when the time is up, or `wake` is called, before one comes."""
        waiter = _Waiter(which)
        self._waiters[which.owner].add(waiter)
        try:
            async with asyncio.timeout(seconds):
                await waiter.woken.wait()
        except TimeoutError:
            pass  # an entry may have come at the last moment
        finally:
            self._waiters[which.owner].discard(waiter)
            if not self._waiters[which.owner]:
                del self._waiters[which.owner]
        return waiter.found

    def covers(self, key: tuple[int, ...]) -> bool:
        """Whether the tail still holds everything after a position."""
        first = self._entries[0].before if self._entries else self.position
        return first is not None and key >= sort_key(first)

    def entries(self, start: int) -> list[TailEntry] | None:
        """Return the entries from number `start` on; None when some of them were dropped."""
        first = self.end - len(self._entries)
        return None if start < first else list(islice(self._entries, start - first, None))

    def number_after(self, key: tuple[int, ...]) -> int:
        """Return the number of the first entry after a position."""
        passed = sum(1 for entry in self._entries if sort_key(entry.position) <= key)
        return self.end - len(self._entries) + passed

    def _add(self, entry: TailEntry) -> None:
        self._entries.append(entry)
        self._size += entry.size
        while self._size > KEPT and len(self._entries) > 1:
            self._size -= self._entries.popleft().size
        self.position = entry.position
        self.end += 1
        listening = (self._waiters.get(owner, ()) for owner in (None, *entry.owners))
        self._call(waiter for waiter in chain(*listening) if entry.concerns(waiter.which))

    def _all_waiters(self) -> Iterator[_Waiter]:
        return chain(*self._waiters.values())

    def _call(self, waiters: Iterable[_Waiter]) -> None:
        for waiter in waiters:
            if not waiter.found:
                waiter.found = True
                self._called.setdefault(waiter.which.owner, deque()).append(waiter)

    def _wake_some(self) -> None:
        """Wake a few of the listeners that entries concern, of each owner in turn: one owner may have thousands."""
        for _ in range(WAKE_AT_ONCE):
            if not self._called:
                return
            owner = next(iter(self._called))
            line = self._called.pop(owner)
            line.popleft().woken.set()
            if line:
                self._called[owner] = line  # behind the others

    async def _add_progress(self, now: datetime, position: str) -> None:
        events = await self._progress.poll(self.owners.keys(), now) if self.owners else []
        if events:
            self._add(TailEntry(position=position, before=position, best_effort=events))


class Listener:
    """One subscriber of the feed; one that is behind the tail reads from the store."""

    def __init__(self, tail: Tail, store: Store, loader: EventLoader, which: EventFilter, after: EventId) -> None:
        self._tail = tail
        self._store = store
        self._loader = loader
        self._filter = which
        self._position = after.position
        self._skip = after.count  # events of the next batch that were delivered already
        self._read_at = after.at
        self._number: int | None = None  # of the next entry of the tail; None while catching up
        self._waiting: deque[TailEntry] = deque()

    async def next(self, seconds: float) -> list[FeedEvent]:
        """Return the next events that match; none when there are none within so many seconds."""
        deadline = asyncio.get_running_loop().time() + seconds
        while True:
            while self._waiting:
                events = await self._matching_in(self._waiting[0])
                if events or asyncio.get_running_loop().time() > deadline:
                    return events
            end = self._tail.end
            await self._fetch()
            if self._waiting or self._tail.end != end:
                continue
            found = not self._tail.failed and await self._tail.wait(
                self._filter, deadline - asyncio.get_running_loop().time()
            )
            if self._tail.failed:
                raise Unavailable("events cannot be read at the moment")
            if not found:
                self._pass_by()
                return []

    @property
    def caught_up(self) -> bool:
        """Whether everything that has happened was returned."""
        return self._number is not None and not self._waiting and self._number == self._tail.end

    def resume_id(self, now: datetime) -> EventId:
        """Return the id to resume after once everything that was returned so far has been delivered."""
        if self._number is not None and not self._waiting:
            self._read_at = now
        return EventId(position=self._position, count=self._skip, at=self._read_at)

    async def _fetch(self) -> None:
        """Queue new entries: from the tail if it still holds them, otherwise from the store."""
        if not self._joins_tail():
            await self._catch_up()
        if self._joins_tail():
            key = sort_key(self._position)
            entries = self._tail.entries(self._number or 0) or []
            self._number = self._tail.end
            self._waiting.extend(entry for entry in entries if entry.batch is None or sort_key(entry.position) > key)

    def _joins_tail(self) -> bool:
        """Whether the tail holds everything that comes next."""
        if self._number is not None and self._tail.entries(self._number) is None:
            self._number = None
        key = sort_key(self._position)
        if self._number is None and self._skip == 0 and not self._waiting and self._tail.covers(key):
            self._number = self._tail.number_after(key)
        return self._number is not None

    async def _catch_up(self) -> None:
        """Queue the next batches of the store."""
        key = sort_key(self._position)
        reached = self._tail.position  # taken before the read: if that finds nothing, nothing lies up to here
        before = self._position
        for batch in await self._store.events.read(after=before, owner=self._filter.owner, limit=PAGE):
            self._waiting.append(TailEntry(position=batch.position, before=before, batch=batch))
            before = batch.position
        if not self._waiting and self._skip == 0 and reached is not None and sort_key(reached) > key:
            self._position = reached

    async def _matching_in(self, entry: TailEntry) -> list[FeedEvent]:
        """Return the next matching events of the first queued entry, and drop it when it is read to its end."""
        batch = entry.batch
        if batch is None:
            self._waiting.popleft()
            return [event for event in entry.best_effort if self._filter.matches(event)]
        self._read_at = batch.at
        if not entry.concerns(self._filter):
            self._pass(entry)
            return []
        found = await self._loader.load(batch, self._skip, entry.before)
        self._skip += len(found)
        if self._skip >= len(batch.subjects):
            self._pass(entry)
        return [event for event in found if self._filter.matches(event)]

    def _pass_by(self) -> None:
        """Go to the end of the tail: nothing for this listener has come since it joined the tail and waits."""
        if self._number is not None and self._tail.position is not None:
            self._number = self._tail.end
            self._position = max(self._position, self._tail.position, key=sort_key)  # another node may be ahead of ours

    def _pass(self, entry: TailEntry) -> None:
        self._waiting.popleft()
        self._position, self._skip = entry.position, 0


class _Session:
    """A tail and the loop that polls for it."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.tail = Tail(store, clock)
        self.listeners = 0
        self._clock = clock
        self._loop = Loop("feed", self.tail.tick, clock, idle=POLL)
        self._polling = asyncio.create_task(self._loop.run(), name="feed")
        self._polling.add_done_callback(self._ended)
        self._unsubscribe = store.subscribe(self._on_signal)

    def stop(self) -> None:
        """Stop after the poll that is under way."""
        self._unsubscribe()
        self._loop.stop()

    def _on_signal(self, signal: Signal) -> None:
        self._loop.wake(self._clock.now() + SIGNAL_DELAY)

    def _ended(self, polling: asyncio.Task[None]) -> None:
        if not polling.cancelled() and (error := polling.exception()) is not None:
            log.error("feed_failed", exc_info=error)
            self.tail.fail()


class Feed:
    """Hands out listeners, and polls the store only while there are any."""

    def __init__(self, store: Store, queries: JobQueries, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._loader = EventLoader(store, queries)
        self._session: _Session | None = None

    async def position(self, last_id: str | None) -> EventId:
        """Return where to start: after the event with this id, or now; raises Gone when the events after it expired."""
        last = await self._store.events.last()
        now = self._clock.now()
        if last_id is None:
            return EventId(position=last, count=0, at=now)
        return read_event_id(last_id, like=last, now=now)

    async def position_at(self, since: datetime) -> EventId:
        """Return where to start for what happened since a time; raises Gone if such events may have expired."""
        now = self._clock.now()
        if since < now - EVENT_LIFE + MARGIN:
            hours = EVENT_LIFE // timedelta(hours=1)
            raise Gone(f"events are kept for {hours} h, so ask for a later time than {rfc3339(since)}")
        return EventId(position=await self._store.events.last(before=since), count=0, at=min(since, now))

    @contextmanager
    def listen(self, which: EventFilter, after: EventId) -> Iterator[Listener]:
        """Open a listener for events after an id. Closing it never awaits, as it may happen during a cancellation."""
        session = self._session
        if session is None or session.tail.failed:
            session = self._session = _Session(self._store, self._clock)
        watched = Counter([which.owner] if which.kinds & BEST_EFFORT else [])
        session.listeners += 1
        session.tail.owners += watched
        try:
            yield Listener(session.tail, self._store, self._loader, which, after)
        finally:
            session.tail.owners -= watched
            session.listeners -= 1
            if not session.listeners:
                session.stop()
                self._loader.forget()
                self._session = None if self._session is session else self._session

    def wake(self) -> None:
        """Let every waiting listener return."""
        if self._session is not None:
            self._session.tail.wake()
