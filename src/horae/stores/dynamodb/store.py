"""The store on DynamoDB. Its verbs are in the modules beside this one, by their subject."""

from collections.abc import Callable
from datetime import datetime

from horae.core.signals import Signal
from horae.ports.database import SchemaStatus, Tell, tell_nobody
from horae.stores.common.schema import refuse_unfit
from horae.stores.dynamodb.changes.apply import DynamoApply
from horae.stores.dynamodb.claims.claim import DynamoClaim
from horae.stores.dynamodb.claims.tickets import DynamoTickets
from horae.stores.dynamodb.life.plan import DynamoPlan
from horae.stores.dynamodb.life.runs import DynamoRuns
from horae.stores.dynamodb.life.tidy import DynamoTidy
from horae.stores.dynamodb.reading.reads import DynamoReads
from horae.stores.dynamodb.tables import schema


class DynamoStore(
    DynamoReads,
    DynamoApply,
    DynamoClaim,
    DynamoTickets,
    DynamoRuns,
    DynamoPlan,
    DynamoTidy,
):
    """A store in tables of DynamoDB whose names begin with the prefix of the address.

    Signals reach listeners of this process at once, those of others when they next look at a counter.
    """

    async def open(self) -> None:
        """Connect, and check that this version can use the tables."""
        await self._client.open()
        try:
            refuse_unfit(await schema.status(self._db))
        except BaseException:
            await self._client.close()
            raise

    async def close(self) -> None:
        """Finish what was begun and close every connection."""
        await self._signals.close()
        await self._client.close()

    async def migrate(self, tell: Tell = tell_nobody) -> list[int]:
        """Make the tables and indexes that are missing, and set what the address says of them."""
        await self._client.open()
        try:
            return await schema.migrate(self._db, self._options, tell)
        finally:
            await self._client.close()

    async def status(self) -> SchemaStatus:
        """Return the version of the tables, the one that this code expects, and the oldest that may use them."""
        await self._client.open()
        try:
            return await schema.status(self._db)
        finally:
            await self._client.close()

    def subscribe(self, heard: Callable[[Signal], None]) -> Callable[[], None]:
        """Call `heard` (on the event loop) for every signal; returns how to stop that."""
        return self._signals.subscribe(heard)

    async def time(self) -> datetime:
        """Return the clock of this machine, after a request that shows whether it can be right."""
        await schema.status(self._db)
        return self._clock.now()
