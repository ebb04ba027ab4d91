"""An address may name several servers: whichever takes writes is used, and those that are gone cost a moment once."""

import asyncio
import time
from collections.abc import AsyncIterator
from urllib.parse import parse_qsl, urlsplit

import asyncpg
import pytest

from horae.core.errors import Misconfigured, Unavailable
from horae.stores.postgres.connection import database as postgres_pool
from horae.stores.postgres.connection.connections import Connections
from horae.stores.postgres.connection.database import Address, Database
from horae.stores.postgres.connection.hosts import each_server
from tests.live import free_port
from tests.postgres_server import postgres_url

WRITES = "target_session_attrs=read-write"


@pytest.mark.parametrize(
    ("url", "servers"),
    [
        ("postgres://ada@db/horae", ["postgresql://ada@db/horae"]),
        ("postgresql://ada@/horae?host=/run/a", ["postgresql://ada@/horae?host=/run/a"]),
        (
            "postgresql://ada:p%40w@a:1,b/horae?sslmode=require",
            [f"postgresql://ada:p%40w@{host}/horae?{WRITES}&sslmode=require" for host in ("a:1", "b")],
        ),
        (
            "postgresql://[::1]:1,[::2]:2/horae?target_session_attrs=any",
            [f"postgresql://{host}/horae?target_session_attrs=any" for host in ("[::1]:1", "[::2]:2")],
        ),
        (
            "postgresql://ada@/horae?host=/run/a,b&port=1,2",
            [f"postgresql://ada@/horae?{WRITES}&host=/run/a&port=1", f"postgresql://ada@/horae?{WRITES}&host=b&port=2"],
        ),
        (
            "postgresql://ada@/horae?host=a,b&port=7",
            [f"postgresql://ada@/horae?{WRITES}&host={host}&port=7" for host in "ab"],
        ),
        ("postgresql://ada@/horae?host=a,b", [f"postgresql://ada@/horae?{WRITES}&host={host}" for host in "ab"]),
    ],
)
def test_an_address_names_each_of_its_servers(url: str, servers: list[str]) -> None:
    parts = urlsplit(url)
    assert each_server(parts, dict(parse_qsl(parts.query))) == servers


def test_ports_that_do_not_fit_their_hosts_are_refused() -> None:
    with pytest.raises(Misconfigured, match="3 hosts and 2 ports"):
        Address("postgresql://ada@/horae?host=a,b,c&port=1,2")


@pytest.fixture
async def silent() -> AsyncIterator[int]:
    """The port of a server that takes connections and says nothing, as one whose machine hangs."""

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


def after(port: int) -> str:
    """An address that names a server at that port, and then the one of the tests."""
    [(_, folder)] = parse_qsl(urlsplit(postgres_url()).query)
    return f"postgresql://postgres@/postgres?host=127.0.0.1,{folder}&port={port},5432"


async def test_a_server_that_is_silent_costs_others_of_its_address_a_moment_once(
    silent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_pool, "TIMEOUT", 1.0)
    address = Address(after(silent))
    many = await asyncio.gather(*[address.connect() for _ in range(3)])
    began = time.monotonic()
    again = await address.connect()
    assert time.monotonic() - began < 0.4, "the one that answered is asked first"
    for connection in (*many, again):
        assert await connection.fetchval("SELECT 1") == 1
        await connection.close()


async def test_a_server_that_is_gone_is_passed_over() -> None:
    connection = await Address(after(free_port())).connect()
    assert await connection.fetchval("SELECT 1") == 1
    await connection.close()


async def test_when_none_of_them_is_there_the_store_is_unavailable() -> None:
    database = Database(f"postgresql://ada@127.0.0.1:{free_port()},127.0.0.1:{free_port()}/horae", 1)
    with pytest.raises(Unavailable):
        await database.open()


async def test_a_connection_that_leads_to_a_standby_is_not_used_again() -> None:
    """It would be refused every write for as long as it lives, wherever new ones lead by now."""
    connections = Connections(Address(postgres_url()).connect, size=1, patience=5)
    async with connections.one() as first:
        await first.execute("SET default_transaction_read_only = on")
    with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
        async with connections.one() as again:
            await again.execute("CREATE TABLE nothing ()")
    assert again is first
    async with connections.one() as second:
        assert second is not first
    await connections.close()
