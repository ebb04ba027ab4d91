"""The schema in PostgreSQL: its version, and its migrations."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from horae.core.errors import Misconfigured
from horae.stores.common.schema import expected_version, refuse_unreleased
from horae.stores.common.statements import migrations
from horae.stores.postgres.connection.database import Address, Session, door

OLDEST_SERVER = 140000  # PostgreSQL 14


async def read_version(session: Session) -> int:
    """The version of the schema; 0 when there is none."""
    if not await session.value("has_versions"):
        return 0
    return int(await session.value("schema_version"))


async def status(address: Address) -> tuple[int, int]:
    """The version of the schema, and the expected one."""
    async with _connected(address) as connection:
        return await read_version(Session(connection)), expected_version("postgres")


async def migrate(address: Address) -> list[int]:
    """Migrate the schema step by step; returns the steps taken. Several processes may do so at once."""
    async with _connected(address) as connection:
        _refuse_old_server(connection)
        await _create_schema(connection)
        return [version for version, script in migrations("postgres") if await _step(connection, version, script)]


@asynccontextmanager
async def _connected(address: Address) -> AsyncIterator[asyncpg.Connection]:
    with door():
        connection = await address.connect()
        try:
            yield connection
        finally:
            await connection.close()


async def _step(connection: asyncpg.Connection, version: int, script: str) -> bool:
    async with connection.transaction():
        session = Session(connection)
        await session.rows("lock_migrations")
        await session.rows("create_versions")
        current = await session.value("schema_version")
        refuse_unreleased("postgres", current)
        if current >= version:
            return False
        await connection.execute(script, timeout=None)  # a migration may have much to do
        await session.rows("add_version", version)
    return True


async def _create_schema(connection: asyncpg.Connection) -> None:
    statement = await Session(connection).value("schema_to_create")
    if statement is None:
        return
    try:
        await connection.execute(statement)
    except asyncpg.UniqueViolationError:
        return  # another process was first


def _refuse_old_server(connection: asyncpg.Connection) -> None:
    version = connection.get_server_version()
    if version.major * 10000 < OLDEST_SERVER:
        raise Misconfigured(f"PostgreSQL {version.major} is too old: Horae needs {OLDEST_SERVER // 10000} or newer")
