"""Events in DynamoDB: numbered without gaps by a counter, so that their order never changes, whatever clocks say.

A writer takes numbers and puts a batch under each, if the number is free. A reader that finds a number without an event
waits for it, and in the end makes it void by the same condition; a writer that comes too late takes a new number. So
nothing can be committed before what a reader has returned.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from time import monotonic

import structlog

from horae.core.changes import NewEvent
from horae.core.errors import HoraeError
from horae.core.events import EventKind
from horae.ports.events import EVENT_LIFE, EventBatch
from horae.stores.common.listing import event_position, last_position_before
from horae.stores.dynamodb.database import Database, Range, Statement
from horae.stores.dynamodb.items import Item, expiry, moment, packed, text, time_of, unpacked

log = structlog.get_logger()

CHUNK = 1_000  # numbers of one partition
MOST_SUBJECTS = 20_000  # of one event: 320 KB, of the 400 that an item may have
PATIENCE = 1.0  # seconds that a reader waits for a number that was taken
LOOKS = 5  # of one read, to see whether the writers of the moment are done
PAUSE = 0.005  # seconds between two looks
TAIL = 300  # numbers that may be taken and not yet written, of all writers together
MOST_MISSING = 1_000  # numbers in a row that writers may have left; more of them were deleted by TTL
LIFE = 2 * EVENT_LIFE  # of an item; readers begin after what has expired, and TTL deletes it later

_COUNTER: Item = {"pk": {"S": "log"}, "sk": {"S": "log"}}
_VOID = "void"


class DynamoEventLog:
    """Writes and reads the event log."""

    def __init__(self, db: Database, wall: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._db = db
        self._wall = wall
        self._waiting: list[tuple[Sequence[NewEvent], asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None
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
            taken, self._waiting = self._waiting, []
            batches = _batches([event for events, _ in taken for event in events])
            try:
                await self._write(batches)
            except HoraeError as exc:
                log.warning("events_not_written", batches=len(batches), error=str(exc))
            finally:
                for _, written in taken:
                    if not written.done():
                        written.set_result(None)

    async def _write(self, batches: Sequence[Item]) -> None:
        left = list(batches)
        while left:
            counter = await self._db.update(self._db.names.meta, _COUNTER, "ADD #n :k", {":k": {"N": str(len(left))}})
            first = int(counter["n"]["N"]) - len(left) + 1
            at = self._wall()
            when = {"at": moment(at), "ttl": expiry(at + LIFE)}
            items = [{**_place(first + number), **batch, **when} for number, batch in enumerate(left)]
            written = await self._put_free(items)
            left = [batch for batch, done in zip(left, written, strict=True) if not done]

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
        since = 0 if after is None else event_position(after)
        last, first = await self._counter()
        if since > last:
            since = 0  # given out by a database that was set back since then
        since = max(since, first - 1)
        for look in range(LOOKS):
            found, is_blocked = await self._settled_after(since, last, owner, limit)
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
            return str(settled)

        async def first_after(position: int) -> datetime | None:
            found = await self._items(max(position, first - 1), settled, 1)
            return time_of(found[0]["at"]) if found else None

        return str(await last_position_before(before, settled, first_after))

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
        self, since: int, last: int, owner: str | None, limit: int
    ) -> tuple[list[EventBatch], bool]:
        """Return batches after a number up to the first that is missing, and whether one is."""
        found: list[EventBatch] = []
        while since < last and len(found) < limit:
            items = await self._items(since, last, CHUNK if owner is not None else limit - len(found))
            for item in items:
                if _number(item) != since + 1 and await self._is_awaited(since + 1, _number(item) - 1):
                    return found, True
                since = _number(item)
                if "k" in item and owner in (None, item["o"]["S"]):
                    found.append(_batch(item))
                    if len(found) == limit:
                        return found, False
            if not items:
                return found, since < last and await self._is_awaited(since + 1, last)
        return found, False

    async def _is_awaited(self, first: int, last: int) -> bool:
        """Whether writers may still come for numbers without an event; those of whom none came are made void."""
        if last - first >= MOST_MISSING:
            return False
        now = monotonic()
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
        for chunk in range((since + 1) // CHUNK, last // CHUNK + 1):
            which = Range(
                table=self._db.names.events,
                pk=("chunk", f"{chunk:020d}"),
                sk="seq",
                low=f"{since + 1:020d}",
                high=f"{last:020d}",
            )
            found += await self._db.items(which, limit=limit - len(found))
            if len(found) >= limit:
                break
        return found


def _batches(events: Iterable[NewEvent]) -> list[Item]:
    """Return one item for each kind and owner, in the order of their first events; of very many subjects several."""
    merged: dict[tuple[EventKind, str], list[str]] = {}
    for event in events:
        merged.setdefault((event.kind, event.owner), []).append(event.subject)
    return [
        {"k": text(kind.value), "o": text(owner), "ids": packed(subjects[start : start + MOST_SUBJECTS])}
        for (kind, owner), subjects in merged.items()
        for start in range(0, len(subjects), MOST_SUBJECTS)
    ]


def _batch(item: Item) -> EventBatch:
    return EventBatch(
        position=str(_number(item)),
        kind=EventKind(item["k"]["S"]),
        owner=item["o"]["S"],
        at=time_of(item["at"]),
        subjects=unpacked(item["ids"]),
    )


def _place(number: int) -> Item:
    return {"chunk": text(f"{number // CHUNK:020d}"), "seq": text(f"{number:020d}")}


def _key_of(item: Item) -> Item:
    return {name: item[name] for name in ("chunk", "seq")}


def _number(item: Item) -> int:
    return int(item["seq"]["S"])


def _insertion(table: str, item: Item) -> Statement:
    """Return the statement that puts an item under a key that is free."""
    names = ", ".join(f"'{name}': ?" for name in item)
    return Statement(f'INSERT INTO "{table}" VALUE {{{names}}}', list(item.values()))
