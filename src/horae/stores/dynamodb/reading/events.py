"""Events in DynamoDB: numbered without gaps by a counter, so that their order never changes, whatever clocks say.

A writer takes numbers and puts a batch under each, if the number is free. A reader that finds a number without an event
waits for it, and in the end makes it void by the same condition; a writer that comes too late takes a new number. So
nothing can be committed before what a reader has returned.

All events of one write are one item, in groups of a kind and an owner, so that many owners cost no more than one. A
position is the number of an item times PLACES, or between two of these for groups before the last of an item.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from heapq import merge

import msgspec
import structlog

from horae.core.changes import NewEvent
from horae.core.errors import HoraeError
from horae.core.events import EventKind
from horae.ports.events import EVENT_LIFE, EventBatch
from horae.stores.common.listing import event_position, last_position_before
from horae.stores.dynamodb import times
from horae.stores.dynamodb.database import ConditionalStatement, Database, Range
from horae.stores.dynamodb.items import Item, expiry, moment, packed, text, time_of, unpacked

log = structlog.get_logger()

CHUNK = 1_000  # numbers of one partition key
LANES = 4  # partition keys that take turns, because all that is written at a time has neighbouring numbers
PLACES = 1_000  # positions of one number
MOST_SUBJECTS = 15_000  # of one item: 240 KB, of the 400 that it may have
MOST_GROUPS = PLACES - 1
CALLS = 400.0  # a second that all writers together take numbers; the counter's partition allows 1,000
FIRST_PACE, LONGEST_PACE, STEP = 0.02, 2.0, 1.5  # seconds between two writes of one process
PATIENCE = 1.0  # seconds that a reader waits for a number that was taken
LOOKS = 5  # of one read, to see whether the writers of the moment are done
PAUSE = 0.005  # seconds between two looks
TAIL = 300  # numbers that may be taken and not yet written, of all writers together
MOST_MISSING = 1_000  # numbers in a row that writers may have left; more of them were deleted by TTL
LIFE = 2 * EVENT_LIFE  # of an item; readers begin after what has expired, and TTL deletes it later

_COUNTER: Item = {"pk": {"S": "log"}, "sk": {"S": "log"}}
_VOID = "void"

Group = tuple[str, str, int]  # kind, owner, number of subjects
_groups = msgspec.json.Decoder(list[Group]).decode


class DynamoEventLog:
    """Writes and reads the event log."""

    def __init__(self, db: Database, wall: Callable[[], datetime] = lambda: times.wall()) -> None:
        self._db = db
        self._wall = wall
        self._waiting: list[tuple[Sequence[NewEvent], asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None
        self._pace = _Pace()
        self._missing: dict[int, float] = {}  # numbers without an event, and since when we know

    # --- writing

    async def append(self, events: Sequence[NewEvent]) -> None:
        """Write the events of changes that are committed; those of concurrent calls are written together.

        The changes stand whatever becomes of their events, so a failure is logged and not raised.
        """
        if not events:
            return
        written = asyncio.get_running_loop().create_future()
        self._waiting.append((events, written))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_waiting(), name="horae-events")
        await asyncio.shield(written)

    async def _write_waiting(self) -> None:
        while self._waiting:
            await asyncio.sleep(self._pace.wait())
            taken, self._waiting = self._waiting, []
            items = _items_of([event for events, _ in taken for event in events])
            try:
                await self._write(items)
            except HoraeError as exc:
                log.warning("events_not_written", items=len(items), error=str(exc))
            finally:
                for _, written in taken:
                    if not written.done():
                        written.set_result(None)

    async def _write(self, items: Sequence[Item]) -> None:
        left = list(items)
        while left:
            values = {":k": {"N": str(len(left))}, ":one": {"N": "1"}}
            counter = await self._db.update(self._db.names.meta, _COUNTER, "ADD #n :k, #calls :one", values)
            self._pace.learn(int(counter["calls"]["N"]))
            first = int(counter["n"]["N"]) - len(left) + 1
            at = self._wall()
            when = {"at": moment(at), "ttl": expiry(at + LIFE)}
            numbered = [{**_place(first + number), **item, **when} for number, item in enumerate(left)]
            written = await self._put_free(numbered)
            left = [item for item, done in zip(left, written, strict=True) if not done]

    async def _put_free(self, items: Sequence[Item]) -> list[bool]:
        """Put each item if its number is free, and return which of them are there now."""
        done = await self._db.statements([_insertion(self._db.names.events, item) for item in items])
        for number, item in enumerate(items):
            if not done[number]:  # void by now, or the echo of a request that was done
                done[number] = await self._db.get(self._db.names.events, _key_of(item)) == item
        return done

    # --- reading

    async def read(self, *, after: str | None, owner: str | None, limit: int) -> list[EventBatch]:
        """Return the batches after a position; see `EventLog.read`."""
        position = 0 if after is None else event_position(after)
        last, first = await self._counter()
        if position > last * PLACES:
            position = 0  # given out by a database that was set back since then
        position = max(position, (first - 1) * PLACES)
        for look in range(LOOKS):
            found, is_blocked = await self._settled_after(position, last, owner, limit)
            if found or not is_blocked:
                return found
            if look < LOOKS - 1:
                await asyncio.sleep(PAUSE)
        return []

    async def last(self, *, before: datetime | None = None) -> str:
        """Return the position before the first number that is not settled, or an earlier one; see `EventLog.last`."""
        last, first = await self._counter()
        start = max(last - TAIL, first - 1)
        items = await self._items(start, last, TAIL)
        numbers = [_number(item) for item in items]
        settled = start + next(
            (place for place, number in enumerate(numbers) if number != start + place + 1), len(items)
        )
        if not items and start < last:
            settled = (
                last if last - start >= TAIL else start
            )  # nothing is left of what was there, or nothing is written
        if before is None:
            return str(settled * PLACES)

        async def first_after(position: int) -> datetime | None:
            found = await self._items(max(position, first - 1), settled, 1)
            return time_of(found[0]["at"]) if found else None

        return str(await last_position_before(before, settled, first_after) * PLACES)

    async def expire(self, *, now: datetime, limit: int) -> int:
        """Let readers begin after events that are past their life; TTL deletes them. Returns how many."""
        last, first = await self._counter()
        gone = 0
        keep = first
        for item in await self._items(first - 1, last, limit):
            if time_of(item["at"]) >= now - EVENT_LIFE:
                break
            gone += 1
            keep = _number(item) + 1
        if gone:
            await self._db.update(self._db.names.meta, _COUNTER, "SET #first = :first", {":first": {"N": str(keep)}})
        return gone

    async def _counter(self) -> tuple[int, int]:
        """Return the last number that was taken, and the first that has not expired."""
        item = await self._db.get(self._db.names.meta, _COUNTER) or {}
        return int(item.get("n", {"N": "0"})["N"]), int(item.get("first", {"N": "1"})["N"])

    async def _settled_after(
        self, position: int, last: int, owner: str | None, limit: int
    ) -> tuple[list[EventBatch], bool]:
        """Return batches after a position up to the first number that is missing, and whether one is."""
        found: list[EventBatch] = []
        since = position // PLACES
        while since < last and len(found) < limit:
            items = await self._items(since, last, CHUNK if owner is not None else limit - len(found))
            for item in items:
                if _number(item) != since + 1 and await self._is_awaited(since + 1, _number(item) - 1):
                    return found, True
                since = _number(item)
                found += _batches(item, owner, after=position)
                if len(found) >= limit:
                    return found[:limit], False
            if not items:
                return found, since < last and await self._is_awaited(since + 1, last)
        return found, False

    async def _is_awaited(self, first: int, last: int) -> bool:
        """Whether writers may still come for numbers without an event; those of whom none came are made void."""
        if last - first >= MOST_MISSING:
            return False
        now = times.steady()
        self._missing = {number: at for number, at in self._missing.items() if now - at < 60 * PATIENCE}
        if any(now - self._missing.setdefault(number, now) < PATIENCE for number in range(first, last + 1)):
            return True
        at = self._wall()
        when = {"at": moment(at), "ttl": expiry(at + LIFE)}
        await self._put_free([{**_place(number), "s": text(_VOID), **when} for number in range(first, last + 1)])
        return True  # a writer may have been quicker: the next look shows

    async def _items(self, since: int, last: int, limit: int) -> list[Item]:
        """Return the first items after a number up to another, in their order."""
        found: list[Item] = []
        if since >= last:
            return found
        for chunk in range((since + 1) // CHUNK, last // CHUNK + 1):
            lanes = await asyncio.gather(*(self._lane(chunk, lane, since, last, limit) for lane in range(LANES)))
            found += merge(*lanes, key=_number)
            if len(found) >= limit:
                break
        return found[:limit]

    async def _lane(self, chunk: int, lane: int, since: int, last: int, limit: int) -> list[Item]:
        which = Range(
            table=self._db.names.events,
            pk=("chunk", f"{chunk:020d}#{lane}"),
            sk="seq",
            low=f"{since + 1:020d}",
            high=f"{last:020d}",
        )
        return await self._db.items(which, limit=limit)


class _Pace:
    """How long this process collects events between two writes, so that all together keep below CALLS a second."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._next_at = 0.0  # before which nothing is written
        self._calls, self._at = 0, 0.0  # of all processes, at our last write

    def wait(self) -> float:
        """Return the seconds to wait before the next write."""
        return max(self._next_at - times.steady(), 0.0)

    def learn(self, calls: int) -> None:
        """Note how many writes there were of all processes up to ours, which was just now."""
        now = times.steady()
        if self._at and now > self._at:
            rate = (calls - self._calls) / (now - self._at)
            if rate > CALLS:
                self._seconds = min(max(self._seconds * STEP, FIRST_PACE), LONGEST_PACE)
            elif rate < CALLS / STEP / STEP:
                self._seconds = self._seconds / STEP if self._seconds > FIRST_PACE else 0.0
        self._calls, self._at = calls, now
        self._next_at = now + self._seconds


def _items_of(events: Iterable[NewEvent]) -> list[Item]:
    """Return the items of events, grouped by kind and owner in the order of their first events; mostly it is one."""
    merged: dict[tuple[EventKind, str], list[str]] = {}
    for event in events:
        merged.setdefault((event.kind, event.owner), []).append(event.subject)
    items, groups, ids = [], [], []  # type: list[Item], list[Group], list[str]
    for (kind, owner), subjects in merged.items():
        for start in range(0, len(subjects), MOST_SUBJECTS):
            some = subjects[start : start + MOST_SUBJECTS]
            if groups and (len(groups) == MOST_GROUPS or len(ids) + len(some) > MOST_SUBJECTS):
                items.append(_item(groups, ids))
                groups, ids = [], []
            groups.append((kind.value, owner, len(some)))
            ids += some
    return [*items, _item(groups, ids)] if groups else items


def _item(groups: Sequence[Group], ids: Sequence[str]) -> Item:
    return {"v": text(msgspec.json.encode(groups).decode()), "ids": packed(ids)}


def _batches(item: Item, owner: str | None, *, after: int) -> list[EventBatch]:
    """Return the batches of an item that are after a position, of one owner or of all."""
    if "v" not in item:
        return []
    groups, ids = _groups(item["v"]["S"]), unpacked(item["ids"])
    number, found, start = _number(item), [], 0
    for place, (kind, whose, count) in enumerate(groups, 1):
        subjects, start = ids[start : start + count], start + count
        position = number * PLACES if place == len(groups) else (number - 1) * PLACES + place
        if position > after and owner in (None, whose):
            batch = EventBatch(
                position=str(position), kind=EventKind(kind), owner=whose, at=time_of(item["at"]), subjects=subjects
            )
            found.append(batch)
    return found


def _place(number: int) -> Item:
    return {"chunk": text(f"{number // CHUNK:020d}#{number % LANES}"), "seq": text(f"{number:020d}")}


def _key_of(item: Item) -> Item:
    return {name: item[name] for name in ("chunk", "seq")}


def _number(item: Item) -> int:
    return int(item["seq"]["S"])


def _insertion(table: str, item: Item) -> ConditionalStatement:
    """Return the statement that puts an item under a key that is free."""
    names = ", ".join(f"'{name}': ?" for name in item)
    return ConditionalStatement(f'INSERT INTO "{table}" VALUE {{{names}}}', list(item.values()))
