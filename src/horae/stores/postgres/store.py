"""The store on PostgreSQL. Its verbs are in the modules beside this one, by their subject."""

from collections.abc import Callable
from datetime import datetime

from horae.core.signals import Signal
from horae.ports.blobs import Blobs
from horae.ports.database import SchemaStatus, Tell, tell_nobody
from horae.ports.events import EventLog
from horae.stores.common.schema import refuse_unfit
from horae.stores.postgres.apply import PostgresApply
from horae.stores.postgres.blobs import PostgresBlobs
from horae.stores.postgres.claim import PostgresClaim
from horae.stores.postgres.connection import schema
from horae.stores.postgres.create import PostgresCreate
from horae.stores.postgres.events import PostgresEventLog
from horae.stores.postgres.migrations.apply import migrate
from horae.stores.postgres.reads import PostgresReads
from horae.stores.postgres.runs import PostgresRuns
from horae.stores.postgres.tickets import PostgresTickets
from horae.stores.postgres.upkeep import PostgresUpkeep


class PostgresStore(
    PostgresReads,
    PostgresCreate,
    PostgresApply,
    PostgresClaim,
    PostgresRuns,
    PostgresTickets,
    PostgresUpkeep,
):
    """A store in one schema of a PostgreSQL database.

    The address is any that libpq takes; options that it does not know become settings of the server. Without a
    `search_path` the schema is `horae`, or the one that the tables are found in. `pooler=1` is for poolers that change
    connections between transactions. A store that does not listen gets no signals of other processes.
    """

    blobs: Blobs
    events: EventLog

    def __init__(self, url: str, *, pool_size: int = 6, listens: bool = True) -> None:
        super().__init__(url, pool_size=pool_size, listens=listens)
        self.blobs = PostgresBlobs(self._db)
        self.events = PostgresEventLog(self._db)

    async def open(self) -> None:
        """Connect, and check that this version can use the schema."""
        await self._db.open()
        try:
            async with self._db.session() as session:
                refuse_unfit(await schema.read_status(session))
                name = await session.value("current_schema")
            await self._signals.open(name)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Finish what was begun and close every connection."""
        await self._signals.close()
        await self._db.close()

    async def migrate(self, tell: Tell = tell_nobody) -> list[int]:
        """Migrate the schema to the newest version; returns the steps that were taken."""
        return await migrate(self._db.address, tell)

    async def status(self) -> SchemaStatus:
        """The version of the schema, the one that this code expects, and the oldest that may use it."""
        return await schema.status(self._db.address)

    def subscribe(self, heard: Callable[[Signal], None]) -> Callable[[], None]:
        """Call `heard` (on the event loop) for every signal; returns how to stop that."""
        return self._signals.subscribe(heard)

    async def time(self) -> datetime:
        now: datetime = await self._db.value("store_time")
        return now
