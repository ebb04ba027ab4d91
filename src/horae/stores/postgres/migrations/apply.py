"""Applies the migrations of PostgreSQL while nodes serve: short locks, rows in batches, indexes without locks."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, NamedTuple

import asyncpg

from horae.core.errors import Misconfigured, Unavailable
from horae.ports.database import Tell
from horae.stores.common.migrations import Migration, Way
from horae.stores.common.schema import pending
from horae.stores.postgres.connection.database import SCHEMA, Address
from horae.stores.postgres.connection.schema import connected, read_status

OLDEST_SERVER = 14
LONGEST_NAME = 57  # bytes of a schema's name: the channel of its signals has six more, and PostgreSQL takes 63
LOCK_WAIT = "300ms"  # for each lock: whoever wants it after us waits behind us
RETRY_AFTER = (0.2, 5.0)  # seconds: the first pause after a lock was not to be had, and the longest
PATIENCE = 600.0  # seconds for all tries of one migration
LONGEST = 7 * 86400.0  # seconds that a statement may take; the driver takes None for the time of other statements
TURN_SECONDS = 0.1  # between two looks whether another process has ended its migrations
TELL_EVERY = 2.0  # seconds between two lines about batches

_INDEX = re.compile(
    r"CREATE (?P<kind>(?:UNIQUE )?INDEX) CONCURRENTLY IF NOT EXISTS (?P<name>\w+) ON \{schema\}\.(?P<table>\w+)"
)
_TAKEN = (
    asyncpg.DuplicateTableError,
    asyncpg.DuplicateObjectError,
    asyncpg.DuplicateFunctionError,
    asyncpg.UndefinedColumnError,  # of a table of versions that is another program's
)
_FORBIDDEN = (asyncpg.InsufficientPrivilegeError, asyncpg.InvalidSchemaNameError)


async def migrate(address: Address, tell: Tell) -> list[int]:
    """Migrate the schema step by step; returns the steps taken. Of several processes one does it, and others wait."""
    async with connected(address) as connection:
        _refuse_old_server(connection)
        migrator = _Migrator(address, connection, tell)
        try:
            if not await migrator.steps():
                return []
            await migrator.create_schema()
            async with _one_at_a_time(address, tell):
                new = await migrator.is_new()
                return [await migrator.apply(step, new=new) for step in await migrator.steps()]
        except _TAKEN as exc:
            raise Misconfigured(
                f"a table where those of Horae should go is not Horae's ({exc}): name a schema for Horae alone, by"
                f" ?search_path={SCHEMA} in HORAE_STORE"
            ) from exc
        except _FORBIDDEN as exc:
            raise Misconfigured(
                f"PostgreSQL does not let this role make the tables of Horae ({exc}): let the owner of the database run"
                f" `CREATE SCHEMA {SCHEMA} AUTHORIZATION` with the name of the role, or name a schema by ?search_path="
            ) from exc


@asynccontextmanager
async def _one_at_a_time(address: Address, tell: Tell) -> AsyncIterator[None]:
    """Hold the lock of migrations, in a transaction of its own that lasts as long as they do.

    Whoever waits for it has no transaction open meanwhile, or the builds of indexes would wait for them in turn.
    """
    async with connected(address) as connection:
        session, told = address.session(connection), False
        while True:
            async with session.transaction():
                if await session.value("lock_migrations"):
                    # It is idle from here on. A plain command also ends the portal of the statement before, and with it
                    # the snapshot that builds of indexes would wait for.
                    await connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
                    yield
                    return
            if not told:
                tell("another process migrates the schema: waiting for it")
                told = True
            await asyncio.sleep(TURN_SECONDS)


class _Migrator:
    """Migrations on one connection, outside of any pool."""

    def __init__(self, address: Address, connection: Any, tell: Tell) -> None:
        self._address = address
        self._connection = connection
        self._tell = tell
        self._session = address.session(connection)

    async def steps(self) -> Sequence[Migration]:
        """The migrations that the schema needs."""
        return pending("postgres", await read_status(self._session))

    async def is_new(self) -> bool:
        """Whether there is no table yet, so that nobody can wait for a lock."""
        return (await read_status(self._session)).version == 0

    async def create_schema(self) -> None:
        """Create the first schema of search_path if there is none."""
        for name, statement in await self._session.rows("schema_to_create"):
            if len(name.encode()) > LONGEST_NAME:
                raise Misconfigured(f"the name of the schema {name} is too long: {LONGEST_NAME} bytes at most")
            try:
                await self._connection.execute(statement)
            except asyncpg.UniqueViolationError:
                return  # another process was first

    async def apply(self, step: Migration, *, new: bool) -> int:
        """Apply a migration in its way, or at once to a new store; returns its number."""
        match step.way:
            case Way.CONCURRENTLY if new:
                await self._in_transaction(partial(self._build_at_once, step), step)
            case Way.TRANSACTION:
                await self._at_once(step)
            case Way.BATCHES:
                await self._in_batches(step)
            case Way.CONCURRENTLY:
                await self._concurrently(step)
        return step.number

    async def _at_once(self, step: Migration) -> None:
        async def attempt() -> None:
            await self._execute(step)
            await self._note(step)

        await self._in_transaction(attempt, step)

    async def _in_batches(self, step: Migration) -> None:
        """Repeat the statement until it changes no row; in the pauses the server is there for others."""
        rows, changed, told_at = -1, 0, time.monotonic()

        async def attempt() -> None:
            nonlocal rows
            rows = int((await self._execute(step)).split()[-1])
            if rows == 0:
                await self._note(step)

        while rows != 0:
            began_at = time.monotonic()
            await self._in_transaction(attempt, step)
            changed += rows
            if time.monotonic() - told_at > TELL_EVERY:
                told_at = time.monotonic()
                self._tell(f"migration {step.number}: {changed:,} rows so far")
            await asyncio.sleep(time.monotonic() - began_at)

    async def _concurrently(self, step: Migration) -> None:
        """Build indexes one by one, those of a partitioned table part by part."""
        if not self._address.pooled:  # a build waits for every transaction that is open, and nobody waits behind it
            await self._connection.execute("SET lock_timeout = 0; SET statement_timeout = 0")
        for index in await self._indexes(step):
            self._tell(f"migration {step.number}: building the index {index.name}")
            if await self._session.value("is_partitioned", index.on):
                await self._build_in_parts(index, step)
            else:
                await self._build(index)
        await self._in_transaction(lambda: self._note(step), step)

    async def _build_at_once(self, step: Migration) -> None:
        """Build the indexes of tables that are empty."""
        for index in await self._indexes(step):
            await self._connection.execute(index.statement("", "ON"))
        await self._note(step)

    async def _indexes(self, step: Migration) -> "list[_Index]":
        schema = await self._session.value("quoted_schema")
        found = [(_INDEX.search(statement), statement) for statement in step.script.split(";\n")]
        return [
            _Index(schema, match["kind"], match["name"], match["table"], statement[match.end() :])
            for match, statement in found
            if match
        ]

    async def _build(self, index: "_Index") -> None:
        """Build one index; one that an earlier try left unfinished is built anew."""
        for (broken,) in await self._session.rows("broken_index", index.path):
            await self._connection.execute(broken, timeout=LONGEST)
        await self._connection.execute(index.statement("CONCURRENTLY", "ON"), timeout=LONGEST)

    async def _build_in_parts(self, index: "_Index", step: Migration) -> None:
        """Build the index of each partition, and attach it; new partitions get theirs by themselves."""
        await self._in_transaction(lambda: self._connection.execute(index.statement("", "ON ONLY")), step)
        for (table,) in await self._session.rows("parts_without_index", index.path, index.on):
            part = index._replace(name=f"{table}_{index.name}", table=table)
            attach = f"ALTER INDEX {index.path} ATTACH PARTITION {part.path}"
            await self._build(part)
            await self._in_transaction(partial(self._connection.execute, attach), step)

    async def _in_transaction(self, attempt: Callable[[], Awaitable[Any]], step: Migration) -> None:
        """Try something in a transaction until it gets its locks, each time for a moment only."""
        pause, longest = RETRY_AFTER
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                async with self._session.transaction():
                    await self._session.rows("lock_briefly", LOCK_WAIT)
                    await attempt()
                return
            except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError) as exc:
                if time.monotonic() > deadline:
                    raise Unavailable(
                        f"migration {step.number} got no lock for {PATIENCE:.0f} s ({exc}): end the transactions that"
                        " pg_stat_activity shows as the oldest, and run it again"
                    ) from exc
                self._tell(f"migration {step.number} waits for a transaction that holds a lock ({exc})")
            await asyncio.sleep(pause)
            pause = min(pause * 2, longest)

    async def _execute(self, step: Migration) -> str:
        done: str = await self._connection.execute(step.script, timeout=LONGEST)
        return done

    async def _note(self, step: Migration) -> None:
        await self._session.rows("create_versions")
        await self._session.rows("create_migrations")
        await self._session.rows("add_migration", step.number)
        if step.since is not None:
            await self._session.rows("add_version", step.since)


class _Index(NamedTuple):
    """An index to build; `rest` of its statement says of what."""

    schema: str  # quoted
    kind: str
    name: str
    table: str
    rest: str

    @property
    def path(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def on(self) -> str:
        return f"{self.schema}.{self.table}"

    def statement(self, how: str, preposition: str) -> str:
        return f"CREATE {self.kind} {how} IF NOT EXISTS {self.name} {preposition} {self.on}{self.rest}"


def _refuse_old_server(connection: Any) -> None:
    version = connection.get_server_version()
    if version.major < OLDEST_SERVER:
        raise Misconfigured(f"PostgreSQL {version.major} is too old: Horae needs {OLDEST_SERVER} or newer")
