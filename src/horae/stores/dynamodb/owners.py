"""Sub-shards of owners: in how many partitions of the indexes the runs of an owner are listed."""

from collections import Counter
from collections.abc import Iterable, Mapping
from time import monotonic

from horae.aws_api.errors import ConditionFailed
from horae.stores.dynamodb.database import Database, Range
from horae.stores.dynamodb.items import Item, spread

MOST = 64  # sub-shards of one owner
BUSY = 200  # writes per second in one sub-shard that double their number
WINDOW = 2.0  # seconds over which writes are counted
REMEMBER = 60.0  # seconds after which a writer looks again for how many there are

KEY = "owners"


class Owners:
    """The directory of owners; their sub-shards only ever grow in number."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._known: dict[str, int] = {}
        self._asked_at = monotonic()
        self._counts: Counter[str] = Counter()
        self._counting_since = monotonic()

    async def sub_shards(self, owners: Iterable[str]) -> Mapping[str, int]:
        """Return how many sub-shards each owner has; new owners are written to the directory."""
        if monotonic() - self._asked_at > REMEMBER:
            self._known, self._asked_at = {}, monotonic()
        known = self._known  # it may be replaced while we ask
        if missing := set(owners) - known.keys():
            keys = [_key(owner) for owner in sorted(missing)]
            for item in await self._db.batch_get(self._db.names.meta, keys):
                known[item["sk"]["S"]] = int(item["n"]["N"])
            for owner in missing - known.keys():
                known[owner] = await self._raise_to(owner, 1)
        return known

    async def of(self, owner: str, ident: str) -> int:
        """Return the sub-shard of a new row of an owner."""
        return spread(ident, (await self.sub_shards([owner]))[owner])

    async def wrote(self, counts: Mapping[str, int]) -> None:
        """Count rows that were written, and double the sub-shards of owners who write very many."""
        self._counts.update(counts)
        passed = monotonic() - self._counting_since
        if passed < WINDOW:
            return
        busy = [owner for owner, count in self._counts.items() if count / passed > BUSY * self._known.get(owner, 1)]
        self._counts.clear()
        self._counting_since = monotonic()
        for owner in busy:
            if (now := self._known.get(owner, 1)) < MOST:
                self._known[owner] = await self._raise_to(owner, 2 * now)

    async def all(self) -> dict[str, int]:
        """Return every owner with the number of its sub-shards, as they are now."""
        items = await self._db.items(Range(table=self._db.names.meta, pk=("pk", KEY)))
        return {item["sk"]["S"]: int(item["n"]["N"]) for item in items}

    async def _raise_to(self, owner: str, number: int) -> int:
        """Raise the number of an owner's sub-shards, unless it is as high already; returns what it is."""
        condition = {"ConditionExpression": "attribute_not_exists(#n) OR #n < :n"}
        try:
            await self._db.update(
                self._db.names.meta, _key(owner), "SET #n = :n", {":n": {"N": str(number)}}, **condition
            )
        except ConditionFailed:
            item = await self._db.get(self._db.names.meta, _key(owner))
            number = number if item is None else int(item["n"]["N"])
        return number


def _key(owner: str) -> Item:
    return {"pk": {"S": KEY}, "sk": {"S": owner}}
