"""What happens, for whoever listens: one look at the store for all of them, and none while nobody does."""

import asyncio
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

import structlog

from horae.core.errors import Unavailable
from horae.core.signals import Signal
from horae.events.event import EventId, Happening, Interest, Loader, place_of, read_event_id
from horae.events.progress import SIGHTED, Sightings
from horae.loop import Loop
from horae.ports.clock import Clock
from horae.ports.events import EventBatch
from horae.ports.store import Store
from horae.queries.jobs import Inspection

log = structlog.get_logger(__name__)

POLL = timedelta(milliseconds=200)
GAP = timedelta(milliseconds=40)  # between a signal and the look that it causes, so that many cause one
LOOK = timedelta(milliseconds=500)  # between two looks at what runs
PAGE = 100  # batches read at a time; each may tell of 10,000 jobs
KEPT = 50_000  # events that the tail remembers; who is further behind reads the store


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A batch that was committed, or runs that were sighted."""

    position: str  # of what was committed last
    before: str
    batch: EventBatch | None = None
    sighted: Sequence[Happening] = ()

    @property
    def size(self) -> int:
        return len(self.sighted) if self.batch is None else len(self.batch.subjects)


class Tail:
    """The latest events of everybody, read once for all listeners."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._entries: deque[Entry] = deque()
        self._size = 0  # events in the entries
        self._news = asyncio.Event()
        self._sightings = Sightings(store)
        self._look_at = clock.now()
        self.position: str | None = None  # of what was committed last; None before the first look
        self.end = 0  # grows with every entry: their numbers are below
        self.owners: Counter[str | None] = Counter()  # whose starts and progress somebody wants to hear of
        self.failed = False

    async def tick(self) -> datetime:
        """Read what is new; when to look again."""
        now = self._clock.now()
        if self.position is None:
            self.position = await self._store.last_event()
            self.end += 1  # what happened until here is news for who was here before
            self.wake()
        batches = await self._store.events(after=self.position, owner=None, limit=PAGE)
        for batch in batches:
            self._add(Entry(position=batch.position, before=self.position, batch=batch))
        if now >= self._look_at:
            self._look_at = now + LOOK
            await self._look(now, self.position)
        return now if len(batches) == PAGE else now + POLL

    def fail(self) -> None:
        """Nothing more will come."""
        self.failed = True
        self.wake()

    def wake(self) -> None:
        """Have every listener look."""
        self._news.set()
        self._news = asyncio.Event()

    async def wait(self, end: int, seconds: float) -> None:
        """Until there are more entries than `end`, somebody wakes everybody, or time is up."""
        if self.end == end and not self.failed:
            try:
                await asyncio.wait_for(self._news.wait(), seconds)
            except TimeoutError:
                return

    def knows(self, place: tuple[int, ...]) -> bool:
        """Whether everything after a place is remembered here."""
        first = self._entries[0].before if self._entries else self.position
        return first is not None and place >= place_of(first)

    def entries(self, start: int) -> list[Entry] | None:
        """The entries from the one with this number on; None when some of them are forgotten."""
        first = self.end - len(self._entries)
        return None if start < first else list(islice(self._entries, start - first, None))

    def number_after(self, place: tuple[int, ...]) -> int:
        """The number of the first entry that a listener at a place has not heard."""
        heard = sum(1 for entry in self._entries if place_of(entry.position) <= place)
        return self.end - len(self._entries) + heard

    def _add(self, entry: Entry) -> None:
        self._entries.append(entry)
        self._size += entry.size
        while self._size > KEPT and len(self._entries) > 1:
            self._size -= self._entries.popleft().size
        self.position = entry.position
        self.end += 1
        self.wake()

    async def _look(self, now: datetime, position: str) -> None:
        sighted = await self._sightings.look(self.owners.keys(), now) if self.owners else []
        if sighted:
            self._add(Entry(position=position, before=position, sighted=sighted))


class Listener:
    """One who listens, however slowly: what the tail has forgotten is read from the store."""

    def __init__(self, tail: Tail, store: Store, loader: Loader, interest: Interest, after: EventId) -> None:
        self._tail = tail
        self._store = store
        self._loader = loader
        self._interest = interest
        self._position = after.position
        self._skip = after.count  # subjects of the next batch that were told already
        self._seen_at = after.at
        self._number: int | None = None  # of the next entry of the tail; None while catching up
        self._waiting: deque[Entry] = deque()

    async def next(self, seconds: float) -> list[Happening]:
        """What comes next; nothing when nothing of interest was found within so many seconds."""
        deadline = asyncio.get_running_loop().time() + seconds
        while True:
            while self._waiting:
                told = await self._tell(self._waiting[0])
                if told or asyncio.get_running_loop().time() > deadline:
                    return told
            end = self._tail.end
            await self._fetch()
            if not self._waiting:
                await self._tail.wait(end, deadline - asyncio.get_running_loop().time())
                if self._tail.failed:
                    raise Unavailable("the events cannot be read at the moment")
                if self._tail.end == end:
                    return []

    def seen(self, now: datetime) -> EventId:
        """Where to come back to when everything that was told until now has arrived."""
        if self._number is not None and not self._waiting:
            self._seen_at = now
        return EventId(position=self._position, count=self._skip, at=self._seen_at)

    async def _fetch(self) -> None:
        """Take what the tail has, or while it has forgotten some of it, what the store has."""
        if not self._joins():
            await self._catch_up()
        if self._joins():
            place = place_of(self._position)
            entries = self._tail.entries(self._number or 0) or []
            self._number = self._tail.end
            self._waiting.extend(entry for entry in entries if entry.batch is None or place_of(entry.position) > place)

    def _joins(self) -> bool:
        """Whether everything that comes next is in the tail."""
        if self._number is not None and self._tail.entries(self._number) is None:
            self._number = None
        place = place_of(self._position)
        if self._number is None and self._skip == 0 and not self._waiting and self._tail.knows(place):
            self._number = self._tail.number_after(place)
        return self._number is not None

    async def _catch_up(self) -> None:
        """Read on in the store."""
        place = place_of(self._position)
        reached = self._tail.position  # before the read: if it brings nothing, there is nothing up to here
        before = self._position
        for batch in await self._store.events(after=before, owner=self._interest.owner, limit=PAGE):
            self._waiting.append(Entry(position=batch.position, before=before, batch=batch))
            before = batch.position
        if not self._waiting and self._skip == 0 and reached is not None and place_of(reached) > place:
            self._position = reached

    async def _tell(self, entry: Entry) -> list[Happening]:
        """The next events of the first entry that waits, which is taken away when it is told to its end."""
        batch = entry.batch
        if batch is None:
            self._waiting.popleft()
            return [happening for happening in entry.sighted if self._interest.concerns(happening)]
        self._seen_at = batch.at
        if not self._interest.may_concern(batch.kind, batch.owner):
            self._passed(entry)
            return []
        found = await self._loader.load(batch, self._skip, entry.before)
        self._skip += len(found)
        if self._skip >= len(batch.subjects):
            self._passed(entry)
        return [happening for happening in found if self._interest.concerns(happening)]

    def _passed(self, entry: Entry) -> None:
        self._waiting.popleft()
        self._position, self._skip = entry.position, 0


class _Session:
    """A tail that is kept up to date."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.tail = Tail(store, clock)
        self.listeners = 0
        self._clock = clock
        self._loop = Loop("feed", self.tail.tick, clock, idle=POLL)
        self._looping = asyncio.create_task(self._loop.run(), name="feed")
        self._looping.add_done_callback(self._ended)
        self._unsubscribe = store.subscribe(self._heard)

    def stop(self) -> None:
        """End after the look that is under way."""
        self._unsubscribe()
        self._loop.stop()

    def _heard(self, signal: Signal) -> None:
        self._loop.wake(self._clock.now() + GAP)

    def _ended(self, looping: asyncio.Task[None]) -> None:
        if not looping.cancelled() and (error := looping.exception()) is not None:
            log.error("feed_failed", exc_info=error)
            self.tail.fail()


class Feed:
    """Lets anybody listen, and looks at the store only while somebody does."""

    def __init__(self, store: Store, inspection: Inspection, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._loader = Loader(store, inspection)
        self._session: _Session | None = None

    async def position(self, last_id: str | None) -> EventId:
        """Where to begin: after an event that was told, or now; raises Gone when the id leads nowhere."""
        last = await self._store.last_event()
        now = self._clock.now()
        if last_id is None:
            return EventId(position=last, count=0, at=now)
        return read_event_id(last_id, like=last, now=now)

    @contextmanager
    def listen(self, interest: Interest, after: EventId) -> Iterator[Listener]:
        """Somebody who listens from a position on. Leaving waits for nothing, for it may happen in a cancellation."""
        session = self._session
        if session is None or session.tail.failed:
            session = self._session = _Session(self._store, self._clock)
        watched = Counter([interest.owner] if interest.kinds & SIGHTED else [])
        session.listeners += 1
        session.tail.owners += watched
        try:
            yield Listener(session.tail, self._store, self._loader, interest, after)
        finally:
            session.tail.owners -= watched
            session.listeners -= 1
            if not session.listeners:
                session.stop()
                self._session = None if self._session is session else self._session

    def wake(self) -> None:
        """Have every listener return from its wait."""
        if self._session is not None:
            self._session.tail.wake()
