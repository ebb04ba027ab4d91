"""How much all processes together write to what has shards, so that their number follows the load.

One process sees only what it writes itself, and twenty that each write a little may together write far more than a
partition takes. So each adds its count to the row of the directory now and then, and learns the sum of all.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from horae.aws_api.errors import ConditionFailed
from horae.stores.dynamodb import times
from horae.stores.dynamodb.database import Database
from horae.stores.dynamodb.items import Item

REPORT = 50  # writes after which a process reports them: two in a hundred of what they cost
WINDOW = 1.0  # seconds between two reports, at least
BUSY = 200  # writes a second in one shard that double the number of shards; a partition takes 1,000
MOST_SHARDS = 64
MOST_NAMES = 10_000  # that a process counts for


@dataclass(slots=True)
class _Count:
    """What this process wrote to one thing, and what it knows of the others."""

    own: int = 0  # since the last report
    total: int = 0  # of all processes, at the last report
    at: float = 0.0  # of the last report


class Growth:
    """Counts writes by name, and doubles the shards of what is busy; `key_of` is the row that has their number `n`."""

    def __init__(self, db: Database, key_of: Callable[[str], Item], *, most: int = MOST_SHARDS) -> None:
        self._db = db
        self._key_of = key_of
        self._most = most
        self._counts: dict[str, _Count] = {}

    async def wrote(self, counts: Mapping[str, int]) -> dict[str, int]:
        """Count writes; returns the number of shards of each name that was looked at, doubled where it was too low."""
        found = {}
        if len(self._counts) > MOST_NAMES:
            self._counts.clear()
        for name, number in counts.items():
            if (count := self._counts.get(name)) is None:
                count = self._counts[name] = _Count(at=times.steady())
            count.own += number
            if count.own >= REPORT and times.steady() - count.at >= WINDOW:
                found[name] = await self._report(name, count)
        return found

    async def _report(self, name: str, count: _Count) -> int:
        """Add what was written here to the sum of all, and double the shards if together it is too much for them."""
        now, own = times.steady(), count.own
        passed, before = now - count.at, count.total
        count.own, count.at = 0, now
        row = await self._db.update(self._db.names.meta, self._key_of(name), "ADD #w :own", {":own": {"N": str(own)}})
        count.total = int(row["w"]["N"])
        written = own if before == 0 else count.total - before  # at first others' past is unknown
        shards = int(row["n"]["N"]) if "n" in row else 1
        if shards < self._most and written / passed > BUSY * shards:
            return await self._double(name, shards)
        return shards

    async def _double(self, name: str, shards: int) -> int:
        values = {":n": {"N": str(2 * shards)}, ":old": {"N": str(shards)}}
        try:
            await self._db.update(
                self._db.names.meta, self._key_of(name), "SET #n = :n", values, ConditionExpression="#n = :old"
            )
        except ConditionFailed:
            return shards  # somebody was first, and the next look shows it
        return 2 * shards
