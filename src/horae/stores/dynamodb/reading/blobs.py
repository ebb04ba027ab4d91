"""Blobs in the DynamoDB store itself: pieces of what an item may hold, in the order of their keys.

S3 does that better and costs less. A blob lies in a partition by the first segments of its key, so that the log of a
run is one query; each partition has an entry in a journal by age, for retention.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from os import urandom

from horae.stores.dynamodb.database import Database, DeleteItem, PutItem, Range
from horae.stores.dynamodb.items import Item, binary, bytes_of, moment, spread, stamp, text

PIECE = 300_000  # bytes of an item, which may have 400 KB with everything
MOST_BYTES = 10_000_000  # of the pieces in one write, which may have 16 MB
SEGMENTS = 2  # of a key that name its partition
JOURNAL_PARTS = 8
MOST_KNOWN = 10_000  # partitions that are known to be in the journal
AFTER_ALL_KEYS = "~"  # keys consist of [a-z0-9_.-/], which sort before it
PIECES = "~"  # between the key of a blob and the number of a further piece
FIRST = "!"  # sorts before every key


class DynamoBlobs:
    """Blobs as items."""

    def __init__(self, db: Database, wall: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._db = db
        self._wall = wall
        self._known: set[str] = set()

    async def put(self, items: Sequence[tuple[str, bytes]]) -> None:
        """Store blobs; the first piece of each comes last, because it names the others."""
        latest = dict(items)
        at = self._wall()
        groups = {group_of(key) for key in latest}
        new = sorted(groups - self._known)
        await self._db.write([PutItem(self._db.names.blobs, journal_entry(group, at)) for group in new])
        pieces = [_pieces(key, data, at) for key, data in latest.items()]
        await self._write([piece for some in pieces for piece in some[1:]])
        await self._write([some[0] for some in pieces])
        if len(self._known) > MOST_KNOWN:
            self._known.clear()
        self._known |= groups

    async def _write(self, pieces: Sequence[Item]) -> None:
        some: list[PutItem] = []
        size = 0
        for piece in pieces:
            length = len(piece["d"]["B"])
            if some and size + length > MOST_BYTES:
                await self._db.write(some)
                some, size = [], 0
            some.append(PutItem(self._db.names.blobs, piece))
            size += length
        await self._db.write(some)

    async def get(self, key: str) -> bytes | None:
        """Return a blob, or None."""
        first = await self._db.get(self._db.names.blobs, _key(key))
        return None if first is None else await self._whole(key, first)

    async def _whole(self, key: str, first: Item) -> bytes | None:
        """Return a blob by its first piece; None if it was replaced or deleted meanwhile."""
        count = int(first["n"]["N"])
        if count == 1:
            return bytes_of(first["d"])
        keys = [_key(key, first["m"]["S"], number) for number in range(1, count)]
        found = {item["sk"]["S"]: item["d"] for item in await self._db.batch_get(self._db.names.blobs, keys)}
        parts = [found[each["sk"]["S"]] for each in keys if each["sk"]["S"] in found]
        return b"".join(map(bytes_of, [first["d"], *parts])) if len(parts) == count - 1 else None

    async def under(self, prefix: str, *, after: str = "", limit: int = 100) -> list[tuple[str, bytes]]:
        """Return the first blobs with a prefix after a key."""
        found: list[tuple[str, bytes]] = []
        async for key, first in self._firsts(prefix, after):
            if (data := await self._whole(key, first)) is not None:
                found.append((key, data))
            if len(found) == limit:
                break
        return found

    async def _firsts(self, prefix: str, after: str) -> AsyncIterator[tuple[str, Item]]:
        """Yield the first pieces of blobs with a prefix after a key, in the order of their keys."""
        for group in await self._groups(prefix):
            low = max(prefix, f"{after}{FIRST}" if after else "") or FIRST
            which = Range(table=self._db.names.blobs, pk=("pk", group), sk="sk", low=low, high=prefix + AFTER_ALL_KEYS)
            if low > prefix + AFTER_ALL_KEYS or group + AFTER_ALL_KEYS < low:
                continue
            async for page in self._db.pages(which):
                for item in page.items:
                    if PIECES not in item["sk"]["S"]:
                        yield item["sk"]["S"], item

    async def _groups(self, prefix: str) -> list[str]:
        """Return the partitions that may have blobs with a prefix, in the order of their keys.

        Only prefixes of few segments need the journal, and nobody asks for those but who deletes or checks everything.
        """
        if prefix.count("/") >= SEGMENTS:
            return [group_of(prefix)]
        found: set[str] = set()
        for part in range(JOURNAL_PARTS):
            entries = await self._db.items(Range(table=self._db.names.blobs, pk=("pk", journal_partition(part))))
            found |= {entry["g"]["S"] for entry in entries}
        return sorted(group for group in found if group.startswith(prefix))

    async def delete(self, prefix: str) -> None:
        """Delete the blobs with a prefix."""
        for group in await self._groups(prefix):
            low = max(prefix, FIRST)
            which = Range(
                table=self._db.names.blobs,
                pk=("pk", group),
                sk="sk",
                low=low,
                high=prefix + 2 * AFTER_ALL_KEYS,
                attributes=("pk", "sk"),
            )
            await self._db.write([DeleteItem(self._db.names.blobs, item) for item in await self._db.items(which)])

    # --- for quotas and retention

    async def sizes(self, keys: Sequence[str]) -> dict[str, int]:
        """Return the bytes of blobs that are here."""
        wanted = [_key(key) for key in keys]
        items = await self._db.batch_get(self._db.names.blobs, wanted, attributes=("sk", "size"))
        return {item["sk"]["S"]: int(item["size"]["N"]) for item in items}

    async def old_groups(self, before: datetime, limit: int) -> list[Item]:
        """Return entries of the journal of partitions that were begun before a time."""
        found: list[Item] = []
        for part in range(JOURNAL_PARTS):
            which = Range(
                table=self._db.names.blobs, pk=("pk", journal_partition(part)), sk="sk", low=FIRST, high=stamp(before)
            )
            found += await self._db.items(which, limit=limit - len(found))
            if len(found) >= limit:
                break
        return found

    async def delete_old(self, group: str, before: datetime) -> bool:
        """Delete the pieces of a partition that were written before a time; returns whether others are left."""
        which = Range(table=self._db.names.blobs, pk=("pk", group), sk="sk", attributes=("pk", "sk", "at"))
        pieces = await self._db.items(which)
        old = [piece for piece in pieces if int(piece["at"]["N"]) < int(stamp(before))]
        keys = [{name: piece[name] for name in ("pk", "sk")} for piece in old]
        await self._db.write([DeleteItem(self._db.names.blobs, key) for key in keys])
        return len(old) < len(pieces)

    async def move_entry(self, entry: Item, to: datetime | None) -> None:
        """Let an entry of the journal come again at another time, or (None) never."""
        if to is not None:
            await self._db.write([PutItem(self._db.names.blobs, journal_entry(entry["g"]["S"], to))])
        await self._db.write([DeleteItem(self._db.names.blobs, {name: entry[name] for name in ("pk", "sk")})])


def group_of(key: str) -> str:
    """Return the partition of a key, or of a prefix of as many segments.

    A key with further segments is in another than the key of its first ones, so that partitions sort as their keys do.
    """
    segments = key.split("/", SEGMENTS)
    return "/".join(segments[:SEGMENTS]) + ("/" if len(segments) > SEGMENTS else "")


def journal_partition(part: int) -> str:
    """Return one of the partitions of the journal."""
    return f"groups#{part}"


def journal_entry(group: str, at: datetime) -> Item:
    """Return the entry of a partition in the journal; no other replaces it."""
    place = f"{stamp(at)}{urandom(4).hex()}"
    return {"pk": text(journal_partition(spread(group, JOURNAL_PARTS))), "sk": text(place), "g": text(group)}


def _key(key: str, mark: str = "", number: int = 0) -> Item:
    """Return the key of a piece."""
    return {"pk": text(group_of(key)), "sk": text(f"{key}{PIECES}{mark}{number:06d}" if number else key)}


def _pieces(key: str, data: bytes, at: datetime) -> list[Item]:
    """Return the items of a blob; the first names the others by a mark, which no other blob with this key has."""
    mark = urandom(8).hex()
    parts = [data[start : start + PIECE] for start in range(0, max(len(data), 1), PIECE)]
    items = [{**_key(key, mark, number), "d": binary(part), "at": moment(at)} for number, part in enumerate(parts)]
    items[0] |= {"n": {"N": str(len(parts))}, "size": {"N": str(len(data))}, "m": text(mark)}
    return items
