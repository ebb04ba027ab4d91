"""Sub-shards of owners: in how many partitions of the indexes the runs of an owner are listed."""

from collections.abc import Iterable, Mapping

from horae.aws_api.errors import ConditionFailed
from horae.stores.dynamodb import times
from horae.stores.dynamodb.database import Database, Range
from horae.stores.dynamodb.growth import Growth
from horae.stores.dynamodb.items import Item, spread

REMEMBER = 60.0  # seconds after which a writer looks again for how many there are

KEY = "owners"


class Owners:
    """The directory of owners; their sub-shards only ever grow in number."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._known: dict[str, int] = {}
        self._asked_at = times.steady()
        self._growth = Growth(db, _key)

    async def sub_shards(self, owners: Iterable[str]) -> Mapping[str, int]:
        """Return how many sub-shards each owner has; new owners are written to the directory."""
        if times.steady() - self._asked_at > REMEMBER:
            self._known, self._asked_at = {}, times.steady()
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
        """Count rows that were written; owners of whom all processes write very many get more sub-shards."""
        self._known.update(await self._growth.wrote(counts))

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
