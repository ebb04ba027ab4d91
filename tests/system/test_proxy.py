"""The proxy before PostgreSQL injects the faults that it claims to inject."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest

from tests.postgres_server import postgres_url
from tests.system.proxy import Link, Proxy, Side, Trap, TrapAction

LOST = (asyncpg.PostgresConnectionError, asyncpg.InterfaceError, OSError)


@pytest.fixture
def link() -> Iterator[Link]:
    folder = parse_qs(urlsplit(postgres_url()).query)["host"][0]
    with Proxy(str(Path(folder) / ".s.PGSQL.5432")) as proxy:
        yield proxy.link()


@pytest.fixture
async def table() -> AsyncIterator["Table"]:
    connection = await asyncpg.connect(postgres_url())
    await connection.execute("CREATE TABLE proxied (word text)")
    yield Table(connection)
    await connection.execute("DROP TABLE proxied")
    await connection.close()


class Table:
    """What has arrived."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def words(self) -> list[str]:
        return [row[0] for row in await self._connection.fetch("SELECT word FROM proxied")]


async def connected(link: Link) -> Any:
    return await asyncpg.connect(f"postgresql://postgres@127.0.0.1:{link.port}/postgres", timeout=10)


async def write(connection: Any) -> None:
    async with connection.transaction():
        await connection.execute("INSERT INTO proxied VALUES ('here')")


async def sprung(trap: Trap) -> None:
    assert await asyncio.to_thread(trap.sprung.wait, 10)


@pytest.mark.parametrize(("side", "arrived"), [(Side.BEFORE, []), (Side.AFTER, ["here"])])
async def test_a_commit_is_cut_before_or_after_the_server_has_done_it(
    link: Link, table: Table, side: Side, arrived: list[str]
) -> None:
    connection = await connected(link)
    trap = link.set_trap(["commit"], side)
    trap.decide(TrapAction.CUT)
    with pytest.raises(LOST):
        await write(connection)
    await sprung(trap)
    assert await table.words() == arrived
    assert link.fired[f"stopped {side.value} commit"] == 1


async def test_what_a_client_sent_may_arrive_after_its_end(link: Link, table: Table) -> None:
    connection = await connected(link)
    trap = link.set_trap(["insert"], Side.BEFORE)
    asking = asyncio.create_task(connection.execute("INSERT INTO proxied VALUES ('here')"))
    await sprung(trap)
    connection.terminate()
    with pytest.raises(LOST):
        await asking
    assert await table.words() == []
    trap.decide(TrapAction.LATE)
    async with asyncio.timeout(10):
        while await table.words() != ["here"]:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.01)


async def test_a_trap_for_what_commits_lets_the_rest_of_a_transaction_pass(link: Link, table: Table) -> None:
    connection = await connected(link)
    trap = link.set_trap(["insert", "commit"], Side.BEFORE, commits=True)
    trap.decide(TrapAction.CUT)
    with pytest.raises(LOST):
        await write(connection)
    assert trap.caught == "commit"


async def test_a_silent_link_says_nothing_until_it_is_healed_and_then_to_new_ones_only(link: Link) -> None:
    connection = await connected(link)
    link.silent = True
    with pytest.raises(TimeoutError):
        await connection.execute("SELECT 1", timeout=0.2)
    with pytest.raises(TimeoutError):
        await asyncpg.connect(f"postgresql://postgres@127.0.0.1:{link.port}/postgres", timeout=0.2)
    link.heal()
    assert link.fired["half-open"] >= 2
    again = await connected(link)
    assert await again.fetchval("SELECT 1") == 1
    await again.close()
    connection.terminate()


async def test_a_silent_link_does_not_tell_that_the_server_is_gone(link: Link) -> None:
    connection, other = await connected(link), await asyncpg.connect(postgres_url())
    told = asyncio.Event()
    connection.add_termination_listener(lambda _: told.set())
    link.silent = True
    assert await other.fetchval("SELECT pg_terminate_backend($1, 10000)", connection.get_server_pid())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await told.wait()
    await other.close()
    connection.terminate()


async def test_a_reset_ends_every_connection_of_a_link(link: Link) -> None:
    connections = [await connected(link), await connected(link)]
    assert link.reset() == 2
    for connection in connections:
        with pytest.raises(LOST):
            await connection.execute("SELECT 1")


@pytest.mark.parametrize("fault", ["delay", "throttle"])
async def test_a_slow_link_is_slow(link: Link, fault: str) -> None:
    connection = await connected(link)
    link.delay, link.rate = (0.05, 0.0) if fault == "delay" else (0.0, 1000.0)
    began = time.monotonic()
    assert await connection.fetchval("SELECT repeat('x', 100)") == "x" * 100
    assert time.monotonic() - began >= 0.1
    assert link.fired[fault] >= 2
    link.heal()
    await connection.close()
