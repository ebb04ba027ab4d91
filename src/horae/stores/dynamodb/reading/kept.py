"""What an owner keeps, counted page by page."""

from collections.abc import Sequence

from horae.core.drafts import MAX_INLINE_PARAMS
from horae.core.lifecycle import FINAL
from horae.core.model import JobStatus
from horae.ports.reader import Kept, KeptPage
from horae.stores.common.listing import EARLIEST, Ident, amount_of, decode_cursor, encode_cursor
from horae.stores.dynamodb.items import Item, state_of, text_of
from horae.stores.dynamodb.reading.blobs import DynamoBlobs
from horae.stores.dynamodb.reading.job_lists import HIGHEST, LOWEST
from horae.stores.dynamodb.reading.merge import merged
from horae.stores.dynamodb.reading.rows import RowReader, from_time

_LIVING_JOBS = frozenset({JobStatus.SCHEDULED.value, JobStatus.PAUSED.value})
_AFTER = "!"  # sorts after nothing and before every digit


class KeptPages:
    """Counts what an owner keeps, without reading what others keep."""

    def __init__(self, rows: RowReader, blobs: DynamoBlobs) -> None:
        self._rows = rows
        self._blobs = blobs

    async def page(self, owner: str, part: Kept, *, cursor: str | None, limit: int) -> KeptPage:
        """Count a page; see `Reader.kept_by`."""
        parts = await self._rows.sub_shards(owner, begun=cursor is not None)
        if part is Kept.JOBS:
            low = LOWEST if cursor is None else f"{decode_cursor(cursor, Ident)[0]}{_AFTER}"
            ranges, key = self._rows.of_jobs(parts, low, HIGHEST + _AFTER, forward=True), "job"
        else:
            low = from_time(EARLIEST) if cursor is None else f"{decode_cursor(cursor, str)[0]}{_AFTER}"
            ranges, key = self._rows.by_due("by_owner", parts, low, "~", forward=True), "due"
        places: list[str] = []
        async for entry in merged(self._rows.db, ranges, expect=limit):
            places.append(entry[key]["S"])
            if len(places) == limit:
                break
        items = await (self._rows.jobs(places) if part is Kept.JOBS else self._rows.runs(p[20:] for p in places))
        counts = await self._counted(part, list(items.values()))
        cursor = encode_cursor(places[-1]) if len(places) == limit else None
        return KeptPage(amount=amount_of(part, counts), cursor=cursor)

    async def _counted(self, part: Kept, items: Sequence[Item]) -> list[tuple[str, int, int]]:
        """Return for each row its queue, whether it counts as alive, and its bytes if those are counted."""
        kept: list[tuple[Item, int]] = []
        for item in items:
            if part is Kept.JOBS:
                kept.append((item, item["s"]["S"] in _LIVING_JOBS))
            elif (state_of(item) in FINAL) is (part is Kept.ENDED):
                kept.append((item, part is Kept.LIVE))
        named = {name for item, _ in kept if (name := text_of(item, "pb")) is not None}
        sizes = await self._blobs.sizes(sorted(named))
        return [(item["q"]["S"], int(lives), _bytes_of(item, part, sizes)) for item, lives in kept]


def _bytes_of(item: Item, part: Kept, sizes: dict[str, int]) -> int:
    """Return the bytes of the texts that a user gave or got; parameters elsewhere count as the least that they have."""
    names = ("p", "l", "sec") if part is Kept.JOBS else ("p", "l", "sec", "res")
    texts = [text_of(item, name) for name in names]
    size = sum(len(text.encode()) for text in texts if text is not None) + (0 if "p" in item else len("{}"))
    blob = text_of(item, "pb")
    return size + (0 if blob is None else sizes.get(blob, MAX_INLINE_PARAMS))
