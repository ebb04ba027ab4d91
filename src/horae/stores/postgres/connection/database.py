"""Named statements on connections to PostgreSQL: settings, timeouts, transactions, and errors of the driver."""

import functools
import socket
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, ParamSpec, TypeVar
from urllib.parse import parse_qsl, urlsplit

import asyncpg

from horae.core.errors import Misconfigured, Unavailable
from horae.stores.common.listing import too_slow
from horae.stores.common.statements import load
from horae.stores.postgres.connection.connections import Connections
from horae.stores.postgres.connection.hosts import each_server
from horae.stores.postgres.connection.types import set_codecs

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

TIMEOUT = 10.0  # seconds that any one command, or a wait for a connection, may take
LIST_CONNECTIONS = 3  # beside the others: however many lists are asked for, the engine does not wait for them
LIST_TIMEOUT = 2.0  # seconds that one statement of a list may take; those with a bounded look take far less
SCHEMA = "horae"  # of the tables, unless the search_path says otherwise, or they are somewhere else already

# Sent when a connection starts. The statements are made to follow indexes, whatever statistics say: see statements.sql.
SERVER_SETTINGS = {
    "application_name": "horae",
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_incremental_sort": "off",
    "enable_memoize": "off",  # ids do not come twice
    "hash_mem_multiplier": "50",  # groups are few, however many a large table makes the planner expect
    "jit": "off",
    "lock_timeout": "5s",
    # A process that is stopped in the middle of a transaction must not hold its locks for long.
    "idle_in_transaction_session_timeout": "5s",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "TimeZone": "UTC",
}

_COLLIDED = (
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.InvalidCachedStatementError,  # a migration changed what a statement answers; it is prepared anew
)
_GONE = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.OperatorInterventionError,  # shut down, or a statement cancelled
    asyncpg.InsufficientResourcesError,  # disk full, too many connections
    asyncpg.LockNotAvailableError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.ReadOnlySQLTransactionError,  # a standby after a failover
    asyncpg.PostgresIOError,
)
_REFUSED = (
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InvalidParameterValueError,  # of a setting in the address
    asyncpg.UndefinedObjectError,
)


class Collision(Unavailable):
    """The server aborted our transaction because it conflicted with another; nothing of it was written."""


def retried(verb: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Retry a verb once when it collided with another transaction."""

    @functools.wraps(verb)
    async def again(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return await verb(*args, **kwargs)
        except Collision:
            return await verb(*args, **kwargs)

    return again


@contextmanager
def door() -> Iterator[None]:
    """Translate errors of the driver into ours."""
    try:
        yield
    except _COLLIDED as exc:
        raise Collision("PostgreSQL gave up a transaction that collided with another; try again") from exc
    except _REFUSED as exc:
        raise Misconfigured(f"PostgreSQL refused the connection: {exc}; check HORAE_STORE") from exc
    except _GONE as exc:
        raise Unavailable(f"PostgreSQL did not answer ({type(exc).__name__}: {exc})") from exc


class Address:
    """A libpq address, without the options that are ours."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        cache_size = options.pop("statement_cache_size", None)
        # Behind a pooler that changes connections between transactions nothing may be kept in a session: no prepared
        # statements, no settings, no LISTEN.
        self.pooled = options.pop("pooler", "0") not in ("", "0", "false") or cache_size == "0"
        self._is_placed = "search_path" in options  # we know which schema the tables are in
        self._local_path = options.pop("search_path", None) if self.pooled else None  # for each transaction
        ours = {} if self.pooled else SERVER_SETTINGS
        self._settings = {name: value for name, value in ours.items() if name not in options}
        self._servers = each_server(parts, options)  # the one that answered last comes first

    async def connect(self) -> Any:
        """One connection, ready for our statements, to the first server that gives one."""
        # The driver goes through several as well, but spends all its time on one that is silent.
        *others, last = self._servers
        for url in others:
            with suppress(*_GONE):
                return await self._connect(url)
        return await self._connect(last)

    async def _connect(self, url: str) -> Any:
        try:
            connection = await asyncpg.connect(
                url,
                timeout=TIMEOUT / len(self._servers),
                command_timeout=TIMEOUT,
                statement_cache_size=0 if self.pooled else 200,
                max_cached_statement_lifetime=60,  # seconds; a plan of the first moment of a day does not suit its end
                max_cacheable_statement_size=0,
                server_settings=self._settings,
            )
        except ValueError as exc:
            raise Misconfigured(f"HORAE_STORE is no address of PostgreSQL: {exc}") from exc
        await prepare_connection(connection)
        if not self._is_placed:
            await self._place(connection)
        self._servers = [url, *(server for server in self._servers if server != url)]
        return connection

    async def _place(self, connection: Any) -> None:
        """Find the schema of our tables, and lead this connection there, and all later ones if there are any."""
        stays, there = await connection.fetchrow(_STATEMENTS["find_schema"], SCHEMA)
        self._is_placed = stays or there
        if stays:
            return
        if self.pooled:
            self._local_path = SCHEMA
        else:
            await connection.execute(f"SET search_path = {SCHEMA}")
            if there:
                self._settings["search_path"] = SCHEMA

    def session(self, connection: Any, timeout: float | None = None) -> "Session":
        """Named statements on one of our connections, each within `timeout` seconds (None: as the connection says)."""
        if self._local_path is None:
            return Session(connection, timeout)
        return PooledSession(connection, timeout, self._local_path)


async def prepare_connection(connection: Any) -> None:
    """Set the codecs of ids and times, and keepalives that notice a lost peer."""
    await set_codecs(connection)
    transport = getattr(connection, "_transport", None)  # asyncpg offers no other way to the socket
    peer = None if transport is None else transport.get_extra_info("socket")
    if peer is not None and peer.family in (socket.AF_INET, socket.AF_INET6):
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
            if hasattr(socket, option):
                peer.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


class Session:
    """Named statements on one connection."""

    def __init__(self, connection: Any, timeout: float | None = None) -> None:
        self._connection = connection
        self._timeout = timeout  # None: that of the connection

    def transaction(self) -> Any:
        """A block of statements, all or none."""
        return self._connection.transaction()

    async def rows(self, name: str, *arguments: Any) -> list[Any]:
        """The rows of a statement."""
        found: list[Any] = await self._connection.fetch(_STATEMENTS[name], *arguments, timeout=self._timeout)
        return found

    async def batch(self, name: str, encode: Callable[[T], tuple[Any, ...]], items: Collection[T]) -> list[Any]:
        """The rows of a statement that takes the columns of items as arrays; it is left out when there are no items."""
        return await self.rows(name, *zip(*map(encode, items), strict=True)) if items else []

    async def value(self, name: str, *arguments: Any) -> Any:
        """The first column of the first row, or None."""
        return await self._connection.fetchval(_STATEMENTS[name], *arguments)


class PooledSession(Session):
    """Named statements on a connection to a pooler: the search_path is set for each transaction, and ends with it."""

    def __init__(self, connection: Any, timeout: float | None, search_path: str) -> None:
        super().__init__(connection, timeout)
        literal = search_path.replace("'", "''")
        self._set_path = f"SELECT set_config('search_path', '{literal}', true)"

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        async with self._connection.transaction():
            await self._connection.execute(self._set_path)
            yield

    async def rows(self, name: str, *arguments: Any) -> list[Any]:
        if self._connection.is_in_transaction():
            return await super().rows(name, *arguments)
        async with self.transaction():
            return await super().rows(name, *arguments)

    async def value(self, name: str, *arguments: Any) -> Any:
        if self._connection.is_in_transaction():
            return await super().value(name, *arguments)
        async with self.transaction():
            return await super().value(name, *arguments)


class Database:
    """Named statements on a pool of connections."""

    def __init__(self, url: str, pool_size: int) -> None:
        self.address = Address(url)
        self._size = pool_size
        self._connections: Connections | None = None
        self._for_lists: Connections | None = None

    async def open(self) -> None:
        """Connect."""
        connections = Connections(self.address.connect, size=self._size, patience=TIMEOUT)
        with door():
            async with connections.one():
                self._connections = connections
        self._for_lists = Connections(self.address.connect, size=LIST_CONNECTIONS, patience=TIMEOUT)

    async def close(self) -> None:
        """Close every connection, at the latest when busy ones have had their time."""
        opened = [each for each in (self._connections, self._for_lists) if each is not None]
        self._connections = self._for_lists = None
        for connections in opened:
            await connections.close()

    async def rows(self, name: str, *arguments: Any) -> list[Any]:
        """The rows of a statement, which is its own transaction."""
        async with self.session() as session:
            return await session.rows(name, *arguments)

    async def batch(self, name: str, encode: Callable[[T], tuple[Any, ...]], items: Collection[T]) -> list[Any]:
        """As `Session.batch`, in its own transaction."""
        async with self.session() as session:
            return await session.batch(name, encode, items)

    async def value(self, name: str, *arguments: Any) -> Any:
        """The first column of the first row, or None."""
        async with self.session() as session:
            return await session.value(name, *arguments)

    @asynccontextmanager
    async def session(self, timeout: float | None = None) -> AsyncIterator[Session]:
        """Several statements on one connection, each its own transaction, within `timeout` seconds (None: TIMEOUT)."""
        if self._connections is None:
            raise Unavailable("the store is not open")
        with door():
            async with self._connections.one() as connection:
                yield self.address.session(connection, timeout)

    async def browse(self, name: str, *arguments: Any) -> list[Any]:
        """The rows of a statement of a list."""
        async with self.browsing() as session:
            return await session.rows(name, *arguments)

    @asynccontextmanager
    async def browsing(self) -> AsyncIterator[Session]:
        """Several statements of a list, on a connection for lists; raises Unavailable when one takes too long."""
        if self._for_lists is None:
            raise Unavailable("the store is not open")
        with door():
            async with self._for_lists.one() as connection:
                try:
                    yield self.address.session(connection, LIST_TIMEOUT)
                except TimeoutError as exc:
                    raise too_slow(LIST_TIMEOUT) from exc

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Session]:
        """Several statements, all or none."""
        async with self.session() as session, session.transaction():
            yield session


_STATEMENTS = load("postgres")
