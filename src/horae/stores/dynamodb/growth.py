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
WINDOW = 0.25  # seconds between two reports, at least
MEASURED = 1.0  # seconds over which the rate is measured, at least
BUSY = 350  # writes a second in one shard above which there are to be more; a partition takes 1,000
MOST_SHARDS = 64
MOST_NAMES = 10_000  # that a process counts for


@dataclass(slots=True)
class _Count:
    """What this process wrote to one thing, and what it knows of the others."""

    own: int = 0  # since the last report
    reported_at: float | None = None
    total: int = 0  # of all processes, at the last report
    since: float = 0.0  # from when the rate is measured
    base: int = 0  # the total then


class Growth:
    """Counts writes by name, and raises the number of shards of what is busy.

    `key_of` returns the key of the row that has the number of shards, `n`.
    """

    def __init__(self, db: Database, key_of: Callable[[str], Item], *, most: int = MOST_SHARDS) -> None:
        self._db = db
        self._key_of = key_of
        self._most = most
        self._counts: dict[str, _Count] = {}

    async def wrote(self, counts: Mapping[str, int]) -> dict[str, int]:
        """Count writes; returns the number of shards of each name that was looked at, raised where it was too low."""
        found = {}
        if len(self._counts) > MOST_NAMES:
            self._counts.clear()
        for name, number in counts.items():
            count = self._counts.setdefault(name, _Count())
            count.own += number
            waited = count.reported_at is None or times.steady() - count.reported_at >= WINDOW
            if count.own >= REPORT and waited:
                found[name] = await self._report(name, count)
        return found

    async def _report(self, name: str, count: _Count) -> int:
        """Add what was written here to the sum of all; if together it is too much for the shards, there are more."""
        now, own = times.steady(), count.own
        is_first, before, count.own = count.reported_at is None, count.total, 0
        if is_first or now - count.since > MEASURED:  # from the last report on
            count.since = now if count.reported_at is None else count.reported_at
            count.base = before
        count.reported_at = now
        row = await self._db.update(self._db.names.meta, self._key_of(name), "ADD #w :own", {":own": {"N": str(own)}})
        count.total = int(row["w"]["N"])
        if is_first:
            count.base = count.total - own  # what others wrote before is not known
        rate = (count.total - count.base) / max(now - count.since, MEASURED)
        shards = wanted = int(row["n"]["N"]) if "n" in row else 1
        while wanted < self._most and rate > BUSY * wanted:
            wanted *= 2
        return await self._raise(name, shards, wanted) if wanted > shards else shards

    async def _raise(self, name: str, shards: int, wanted: int) -> int:
        values = {":n": {"N": str(wanted)}, ":old": {"N": str(shards)}}
        try:
            await self._db.update(
                self._db.names.meta, self._key_of(name), "SET #n = :n", values, ConditionExpression="#n = :old"
            )
        except ConditionFailed:
            return shards  # somebody was first, and the next look shows it
        return wanted
