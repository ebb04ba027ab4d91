"""The schema in PostgreSQL: its versions."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from horae.ports.database import SchemaStatus
from horae.stores.common.schema import status_of
from horae.stores.postgres.connection.database import Address, Session, door


async def read_status(session: Session) -> SchemaStatus:
    """Read the versions of the schema."""
    [(has_versions, has_migrations)] = await session.rows("has_versions")
    oldest = await session.value("oldest_version") if has_versions else 0
    applied = await session.value("schema_version") if has_migrations else 0
    return status_of("postgres", applied=applied, oldest=oldest)


async def status(address: Address) -> SchemaStatus:
    """Read the versions of the schema on a connection of its own."""
    async with connected(address) as connection:
        return await read_status(address.session(connection))


@asynccontextmanager
async def connected(address: Address) -> AsyncIterator[Any]:
    """A connection outside of any pool, with the errors of the driver translated."""
    with door():
        connection = await address.connect()
        try:
            yield connection
        finally:
            await connection.close()
