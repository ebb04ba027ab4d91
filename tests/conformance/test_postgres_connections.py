"""Connections that are handed round: one user at a time, none too many, and only those that are fit for use."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from horae.core.errors import Unavailable
from horae.core.signals import Kind, Signal
from horae.stores.postgres.connection import connections as postgres_connections
from horae.stores.postgres.connection.connections import Connections
from horae.stores.postgres.connection.database import Address, Database, Session
from horae.stores.postgres.connection.notify import Signals
from tests.postgres_server import postgres_url


@pytest.fixture
async def two() -> AsyncIterator[Connections]:
    connections = Connections(Address(postgres_url()).connect, size=2, patience=5)
    yield connections
    await connections.close()


async def server_process(connection: Any) -> int:
    return int(await connection.fetchval("SELECT pg_backend_pid()"))


async def doing(process: int) -> str | None:
    """What a process of the server waits for, empty if it does not; None when it is gone."""
    connection = await asyncpg.connect(postgres_url())
    rows = await connection.fetch("SELECT coalesce(wait_event, '') FROM pg_stat_activity WHERE pid = $1", process)
    await connection.close()
    return rows[0][0] if rows else None


async def until_doing(process: int, what: str | None) -> None:
    async with asyncio.timeout(10):
        while await doing(process) != what:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.01)


async def until_gone(process: int) -> None:
    await until_doing(process, None)


async def test_a_connection_that_was_left_is_taken_up_again(two: Connections) -> None:
    async with two.one() as first, two.one():
        pass
    async with two.one() as again:
        assert again is first


async def test_when_all_are_at_work_the_next_waits_for_the_first_that_is_left(two: Connections) -> None:
    async def third() -> Any:
        async with two.one() as connection:
            return connection

    async with two.one():
        async with two.one() as second:
            waiting = asyncio.create_task(third())
            await asyncio.sleep(0)
            assert not waiting.done()
        assert await waiting is second


async def test_who_waits_too_long_is_told_so() -> None:
    connections = Connections(Address(postgres_url()).connect, size=1, patience=0.05)
    async with connections.one():
        with pytest.raises(TimeoutError):
            async with connections.one():
                pass
    await connections.close()


async def test_an_error_of_a_statement_leaves_its_connection_fit(two: Connections) -> None:
    with pytest.raises(asyncpg.UndefinedTableError):
        async with two.one() as first:
            await first.execute("SELECT FROM no_such_table")
    async with two.one() as again:
        assert again is first


async def test_a_connection_whose_statement_was_interrupted_is_not_used_again(two: Connections) -> None:
    started = asyncio.get_running_loop().create_future()

    async def slow() -> None:
        async with two.one() as connection:
            started.set_result(await server_process(connection))
            await connection.execute("SELECT pg_sleep(60)")

    sleeper = asyncio.create_task(slow())
    process = await started
    await until_doing(process, "PgSleep")
    sleeper.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sleeper
    async with two.one() as one, two.one() as other:
        assert process not in (await server_process(one), await server_process(other))
    await until_gone(process)  # nor does the server go on with it


async def test_when_one_has_no_answer_those_that_nobody_used_since_are_let_go() -> None:
    """A server that fell silent costs whoever waits for it once, not once for every connection."""
    connections = Connections(Address(postgres_url()).connect, size=3, patience=0.5)
    async with connections.one() as first, connections.one() as second, connections.one() as third:
        pass

    async def wait_in_vain() -> None:
        async with connections.one() as taken:
            assert taken is first
            await taken.execute("SELECT pg_sleep(60)", timeout=1)

    waiting = asyncio.create_task(wait_in_vain())
    await asyncio.sleep(0.7)
    async with connections.one() as used:
        assert used is second
    with pytest.raises(TimeoutError):
        await waiting
    assert third.is_closed()
    async with connections.one() as again:
        assert again is second
    await connections.close()


async def test_a_connection_left_in_a_transaction_is_not_used_again(two: Connections) -> None:
    async with two.one() as first:
        process = await server_process(first)
        await first.execute("BEGIN")
    await until_gone(process)


async def test_a_connection_that_was_cut_while_free_is_replaced(two: Connections) -> None:
    async with two.one() as first:
        process = await server_process(first)
    killer = await asyncpg.connect(postgres_url())
    await killer.execute("SELECT pg_terminate_backend($1)", process)
    await killer.close()
    async with asyncio.timeout(10):
        while not first.is_closed():  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.01)
    async with two.one() as second:
        assert await server_process(second) != process


async def test_a_connection_that_cannot_be_made_takes_no_place() -> None:
    async def refuse() -> Any:
        raise ConnectionRefusedError

    connections = Connections(refuse, size=1, patience=0.05)
    for _ in range(2):
        with pytest.raises(ConnectionRefusedError):
            async with connections.one():
                pass
    await connections.close()


async def test_what_nobody_needed_for_long_is_closed(two: Connections, monkeypatch: pytest.MonkeyPatch) -> None:
    async with two.one() as first, two.one() as second:
        kept, process = await server_process(first), await server_process(second)
    monkeypatch.setattr(postgres_connections, "IDLE", 0.0)
    async with two.one():
        pass
    await until_gone(process)
    assert await doing(kept) is not None


async def test_closing_waits_for_those_at_work() -> None:
    connections = Connections(Address(postgres_url()).connect, size=2, patience=5)
    async with connections.one() as connection:
        closing = asyncio.create_task(connections.close())
        await asyncio.sleep(0)
        assert await connection.fetchval("SELECT 1") == 1
        assert not closing.done()
    await closing
    assert connection.is_closed()


async def test_closing_does_not_wait_for_ever() -> None:
    connections = Connections(Address(postgres_url()).connect, size=1, patience=0.05)
    async with connections.one() as connection:
        await connections.close()
        assert connection.is_closed()


async def test_a_store_that_is_closed_says_so() -> None:
    database = Database(postgres_url(), 1)
    await database.open()
    await database.close()
    with pytest.raises(Unavailable, match="not open"):
        await database.value("store_time")


async def test_a_connection_for_signals_that_is_lost_again_and_again_is_asked_for_less_and_less_often() -> None:
    times: list[float] = []

    class Flapping(Address):
        """Lets everybody in, and hangs up on them at once."""

        async def connect(self) -> Any:
            times.append(asyncio.get_running_loop().time())
            connection = await super().connect()
            asyncio.get_running_loop().call_soon(connection.terminate)
            return connection

    signals = Signals(Flapping(postgres_url()), listens=True)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await signals.open("public")
    await signals.close()
    waits = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert len(times) >= 3
    assert waits[-1] >= 0.05 * 2 ** (len(waits) - 1) / 2  # the longest so far but for its jitter


async def test_who_has_nothing_to_signal_does_not_ask_the_server() -> None:
    asked: list[str] = []
    told = asyncio.Event()

    class Counting(Session):
        """Notes the statements of the connection for signals."""

        async def value(self, name: str, *arguments: Any) -> Any:
            asked.append(name)
            return await super().value(name, *arguments)

        async def rows(self, name: str, *arguments: Any) -> list[Any]:
            asked.append(name)
            told.set()
            return await super().rows(name, *arguments)

    class Counted(Address):
        def session(self, connection: Any, timeout: float | None = None) -> Session:
            return Counting(connection, timeout)

    signals = Signals(Counted(postgres_url()), listens=True)
    await signals.open("public")
    for _ in range(100):  # as many settles as a busy worker has in a second
        signals.send([])
        await asyncio.sleep(0)  # the sender gets its turn
    signals.send([Signal(kind=Kind.DUE)])
    async with asyncio.timeout(10):
        await told.wait()
    await signals.close()
    assert asked == ["notify"]
