"""Queues with a limit in DynamoDB: a set of what nodes hold of each, so that no claim takes too many.

An entry names a run and the fence that a claim gives it. Of those who want the same run one wins that fence, and their
entries are one. A fence is never used again, so an entry whose fence is past can be removed at any time.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from horae.aws_api.client import ServiceClient
from horae.aws_api.errors import ConditionFailed
from horae.core.lifecycle import FINAL, HELD
from horae.core.model import Run
from horae.core.records import QueueSettings
from horae.stores.dynamodb.base import DynamoBase
from horae.stores.dynamodb.items import Item, run_of, text

TRIES = 6  # to find room while others take it


def room_key(queue: str) -> Item:
    """The key of what nodes hold of a queue with a limit."""
    return {"pk": text(f"room#{queue}"), "sk": text("held")}


def entry_of(run: Run) -> str:
    """The entry of a run that a node holds."""
    return f"{run.id}:{run.fence}"


def _wanted(run: Run) -> str:
    """The entry of a run that is about to be claimed."""
    return f"{run.id}:{run.fence + 1}"


def _entries(item: Item | None) -> list[str]:
    return list((item or {}).get("ids", {"SS": ()})["SS"])


class DynamoRooms(DynamoBase):
    """What the parts of the store do with queues that have a limit."""

    def __init__(self, url: str, *, client: ServiceClient | None = None) -> None:
        super().__init__(url, client=client)
        self._suspects: dict[str, set[str]] = {}  # entries that nobody seemed to have claimed at the last look

    async def _rooms(self, settings: Mapping[str, QueueSettings], queues: Iterable[str]) -> dict[str, int]:
        """How many more runs may be held of each of the queues that has a limit."""
        limits = {
            queue: known.concurrency
            for queue in set(queues)
            if (known := settings.get(queue)) is not None and known.concurrency is not None
        }
        self._limited = frozenset(queue for queue, known in settings.items() if known.concurrency is not None)
        items = await self._db.batch_get(self._db.names.meta, [room_key(queue) for queue in sorted(limits)])
        held = {item["pk"]["S"].removeprefix("room#"): len(_entries(item)) for item in items}
        return {queue: limit - held.get(queue, 0) for queue, limit in limits.items()}

    async def _enter_rooms(self, settings: Mapping[str, QueueSettings], runs: Sequence[Run]) -> set[str]:
        """Count runs as held before they are claimed; returns those for which there is no room any more."""
        by_queue: defaultdict[str, list[Run]] = defaultdict(list)
        for run in runs:
            known = settings.get(run.spec.queue)
            if known is not None and known.concurrency is not None:
                by_queue[run.spec.queue].append(run)
        shut_out: set[str] = set()
        for queue, some in by_queue.items():
            entered = await self._enter(queue, settings[queue].concurrency or 0, [_wanted(run) for run in some])
            shut_out |= {run.id for run in some if _wanted(run) not in entered}
        return shut_out

    async def _enter(self, queue: str, limit: int, entries: Sequence[str]) -> set[str]:
        """Add as many entries to the set of a queue as fit; returns those that others have not added before."""
        for _ in range(TRIES):
            if not entries:
                break
            values: dict[str, Item] = {":ids": {"SS": list(entries)}, ":most": {"N": str(limit - len(entries))}}
            condition = "attribute_not_exists(#ids) OR size(#ids) <= :most"
            try:
                await self._db.update(
                    self._db.names.meta, room_key(queue), "ADD #ids :ids", values, ConditionExpression=condition
                )
            except ConditionFailed:
                there = _entries(await self._db.get(self._db.names.meta, room_key(queue)))
                fresh = [entry for entry in entries if entry not in there]
                entries = fresh[: max(limit - len(there), 0)]
            else:
                return set(entries)
        return set()

    async def _leave_unclaimed(self, runs: Iterable[Run]) -> None:
        """Remove the entries of runs that others have claimed, or changed, before this claim could."""
        limited = [run for run in runs if run.spec.queue in self._limited]
        found = {run.id: run for run in map(run_of, await self._rows_of(limited))}
        by_queue: defaultdict[str, list[str]] = defaultdict(list)
        for run in limited:
            if _is_past(_wanted(run), found.get(run.id)):
                by_queue[run.spec.queue].append(_wanted(run))
        await self._remove(by_queue)

    async def _leave_rooms(self, runs: Iterable[Run]) -> None:
        """Count runs as held no longer; for queues of which this process knows no limit there is nothing to do."""
        by_queue: defaultdict[str, list[str]] = defaultdict(list)
        for run in runs:
            if run.spec.queue in self._limited:
                by_queue[run.spec.queue].append(entry_of(run))
        await self._remove(by_queue)

    async def _tidy_rooms(self, queues: Iterable[str]) -> None:
        """Remove entries of what nobody holds; where that may be claimed at this moment, only at the second look."""
        for queue in queues:
            entries = _entries(await self._db.get(self._db.names.meta, room_key(queue)))
            keys = [{"id": text(ident)} for ident in dict.fromkeys(entry[:32] for entry in entries)]
            found = {item["id"]["S"]: run_of(item) for item in await self._db.batch_get(self._db.names.runs, keys)}
            past = {entry for entry in entries if _is_past(entry, found.get(entry[:32]))}
            held = {entry_of(run) for run in found.values() if run.state in HELD}
            suspects = set(entries) - past - held
            past |= suspects & self._suspects.get(queue, set())
            self._suspects[queue] = suspects
            await self._remove({queue: sorted(past)})

    async def _remove(self, by_queue: Mapping[str, Sequence[str]]) -> None:
        for queue, entries in by_queue.items():
            if entries:
                values: dict[str, Item] = {":ids": {"SS": sorted(set(entries))}}
                await self._db.update(self._db.names.meta, room_key(queue), "DELETE #ids :ids", values)

    async def _rows_of(self, runs: Sequence[Run]) -> list[Item]:
        keys = [{"id": text(ident)} for ident in dict.fromkeys(run.id for run in runs)]
        return await self._db.batch_get(self._db.names.runs, keys)


def _is_past(entry: str, found: Run | None) -> bool:
    """Whether nobody can hold the run of an entry under its fence any more."""
    if found is None or found.state in FINAL:
        return True
    fence = int(entry[33:])
    return found.fence > fence or (found.fence == fence and found.state not in HELD)
