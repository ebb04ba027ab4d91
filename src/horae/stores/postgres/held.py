"""Held runs in PostgreSQL: they have no index of their own, and are looked for among all that may be claimed.

That takes long while much waits, so it is done piece by piece, and only where a node is gone, a limit is new, or a node
does not know what a claim without an answer brought it.
"""

from collections.abc import Sequence
from datetime import datetime

from horae.core.model import NodeId, Run
from horae.stores.postgres.codecs import BEGINNING, ROWS
from horae.stores.postgres.connection.database import Database, Session

LOOK_AT = 50_000  # runs in one statement


async def left_behind(
    session: Session, nodes: Sequence[NodeId], *, last_at: datetime, limit: int | None = None, at_once: int = LOOK_AT
) -> list[Run]:
    """Runs that the nodes hold, of which none wakes later than `last_at`; if there are fewer than `limit`, all."""
    found: list[Run] = []
    for (lane,) in await session.rows("lanes_up_to", last_at):
        place: datetime | None = BEGINNING
        while place is not None and (limit is None or len(found) < limit):
            rows = await session.rows("orphans", nodes, lane, place, last_at, at_once)
            place = rows[0][-1]
            found += [ROWS.run(row) for row in rows if row[0] is not None]
    return found[:limit]


async def count_held(database: Database, queue: str) -> None:
    """Have a new limit of a queue count what is held already; claims that know of the limit see to it themselves."""
    await database.rows("await_claims")
    for lane, last_at in await database.rows("lanes_to_count", queue):
        place = BEGINNING if last_at is not None else None  # else there never was a node
        while place is not None:
            place = await database.value("count_held", lane, place, last_at, LOOK_AT)
