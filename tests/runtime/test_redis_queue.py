"""A real node with Redis before its store: runs come by tickets, and nothing stands still while Redis is broken."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio as redis

from horae import Horae, Run
from horae.adapters import make_store
from horae.config import Settings
from horae.metrics import Metrics
from horae.runtime import wiring
from horae.runtime.plan import NodePlan
from horae.runtime.wiring import RunningNode, running_node
from horae.stores.postgres.connection.database import Address
from tests.engines.separate_server import SeparateServer
from tests.engines.servers import fresh_valkey
from tests.engines.tcp_faults import TcpFaults, TcpLink
from tests.postgres_server import migrated_schema, postgres_url
from tests.sdk.conftest import settings as settings_of

AT_ONCE = 1.0  # seconds; usually some milliseconds, but the machine has other work
NOTICED = 6.0  # seconds until a silent connection is given up, and runs start by the store
PLAN = NodePlan(roles=frozenset({"planner", "worker"}))


@dataclass
class Stage:
    """A node, its queue, and what ran."""

    app: Horae
    server: SeparateServer
    link: TcpLink
    settings: Settings
    metrics: Metrics
    task: Any = None  # the one that notes its start
    started: dict[int, float] = field(default_factory=dict)  # number → lateness in seconds
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    numbers: Iterator[int] = field(default_factory=lambda: iter(range(10**6)))

    async def submit(self, count: int, *, delay: float = 0.0) -> list[int]:
        """Submit jobs that are due now, or so many seconds from now."""
        numbers = [next(self.numbers) for _ in range(count)]
        at = None if not delay else datetime.now(UTC) + timedelta(seconds=delay)
        await asyncio.gather(*(self.task.using(at=at).submit(number=number) for number in numbers))
        return numbers

    async def lateness(self, numbers: list[int], *, within: float = 30.0) -> float:
        """Wait until these jobs ran; return how late the last was."""
        deadline = time.monotonic() + within
        while missing := [number for number in numbers if number not in self.started]:
            self.changed.clear()
            assert time.monotonic() < deadline, f"{len(missing)} of {len(numbers)} jobs did not run"
            await asyncio.wait([asyncio.ensure_future(self.changed.wait())], timeout=0.5)
        return max(self.started[number] for number in numbers)

    def count(self, event: str) -> float:
        return self.metrics.registry.get_sample_value("horae_tickets_total", {"event": event}) or 0.0

    async def flush(self) -> None:
        async with redis.Redis(port=self.server.port) as client:
            await client.flushall()

    async def by_tickets(self) -> None:
        """Run some jobs until one of them was claimed by its ticket."""
        before, deadline = self.count("claimed"), time.monotonic() + 20
        while self.count("claimed") == before:
            assert time.monotonic() < deadline, "nothing is claimed by tickets"
            await self.lateness(await self.submit(3))


@pytest.fixture
def server() -> Iterator[SeparateServer]:
    with fresh_valkey() as server:
        yield server


@pytest.fixture
async def stage(tmp_path: Path, server: SeparateServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    address = f"sqlite:///{tmp_path / 'horae.db'}"
    await make_store(address).migrate()
    metrics = Metrics()
    monkeypatch.setattr(wiring, "Metrics", lambda: metrics)
    with TcpFaults(("127.0.0.1", server.port)) as faults:
        link = faults.link()
        app = Horae(store=address)
        settings = replace(settings_of(address), queue=f"{link.url}/0")
        stage = Stage(app, server, link, settings, metrics)

        @app.task("note")
        async def note(run: Run, number: int) -> None:
            stage.started[number] = (datetime.now(UTC) - run.due_at).total_seconds()
            stage.changed.set()

        stage.task = note
        yield stage


@pytest.fixture
async def node(stage: Stage) -> AsyncIterator[RunningNode]:
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(running_node(stage.settings, PLAN, stage.app))
        yield running


async def test_runs_are_claimed_by_their_tickets_and_on_time(stage: Stage, node: RunningNode) -> None:
    await stage.by_tickets()
    before = stage.count("claimed")
    now, later = await stage.submit(50), await stage.submit(50, delay=1.5)
    assert await stage.lateness([*now, *later]) < AT_ONCE
    assert stage.count("claimed") - before == 100
    assert stage.count("failed") == 0


async def test_flushall_loses_nothing(stage: Stage, node: RunningNode) -> None:
    await stage.by_tickets()
    later = await stage.submit(50, delay=3.5)
    await stage.flush()
    assert await stage.lateness(later) < AT_ONCE, "planners noticed, and offered everything again"


async def test_runs_go_on_by_the_store_while_redis_is_down_and_by_tickets_when_it_is_back(
    stage: Stage, node: RunningNode
) -> None:
    await stage.by_tickets()
    later = await stage.submit(20, delay=4)
    stage.server.kill()
    now = await stage.submit(20)
    assert await stage.lateness(now) < NOTICED
    assert await stage.lateness(await stage.submit(20)) < AT_ONCE, "as without a queue"
    assert await stage.lateness(later) < AT_ONCE
    stage.server.start()
    await stage.by_tickets()
    assert await stage.lateness(await stage.submit(20, delay=1.5)) < AT_ONCE


async def test_connections_that_are_cut_again_and_again_lose_nothing(stage: Stage, node: RunningNode) -> None:
    await stage.by_tickets()
    numbers: list[int] = []
    for _ in range(10):
        numbers += await stage.submit(5)
        numbers += await stage.submit(5, delay=0.5)
        stage.link.cut()
        await asyncio.sleep(0.05)
    stage.link.answers_to_lose = 3
    numbers += await stage.submit(20)
    assert await stage.lateness(numbers) < NOTICED
    assert stage.link.fired["cut"] > 0
    await stage.by_tickets()


async def test_a_silent_link_is_noticed_and_runs_go_on_by_the_store(stage: Stage, node: RunningNode) -> None:
    await stage.by_tickets()
    stage.link.silent = True
    assert await stage.lateness(await stage.submit(10)) < NOTICED
    assert await stage.lateness(await stage.submit(10)) < AT_ONCE
    stage.link.heal()
    await stage.by_tickets()


async def test_a_restart_behind_a_broken_link_stops_nothing(stage: Stage, node: RunningNode) -> None:
    """Its driver reports such a connection in another way than a cut one."""
    await stage.by_tickets()
    stage.link.refuses = True
    stage.server.kill()
    stage.link.cut()
    stage.server.start()
    assert await stage.lateness(await stage.submit(10)) < NOTICED
    stage.link.heal()
    await stage.by_tickets()
    assert await stage.lateness(await stage.submit(10)) < AT_ONCE


async def test_a_node_starts_without_redis_and_uses_it_once_it_is_there(stage: Stage) -> None:
    stage.server.kill()
    async with running_node(stage.settings, PLAN, stage.app):
        assert await stage.lateness(await stage.submit(10)) < NOTICED
        stage.server.start()
        await stage.by_tickets()


async def test_an_application_that_only_submits_offers_tickets_too(
    stage: Stage, node: RunningNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stage.by_tickets()
    monkeypatch.setenv("HORAE_QUEUE", stage.settings.queue)
    before = stage.count("offered")
    async with Horae(store=stage.settings.store) as other:

        @other.task("note")
        async def note(number: int) -> None:
            raise AssertionError("it runs on the node")

        numbers = [next(stage.numbers) for _ in range(10)]
        for number in numbers:
            await note.submit(number=number)
    assert await stage.lateness(numbers) < AT_ONCE
    assert stage.count("offered") - before < 10, "most of them were not left to the planner"


async def test_tickets_of_a_worker_that_stops_are_given_back(stage: Stage) -> None:
    async with running_node(stage.settings, PLAN, stage.app):
        await stage.by_tickets()
        later = await stage.submit(5, delay=2.5)
        await asyncio.sleep(0.2)
    async with running_node(stage.settings, PLAN, stage.app):
        assert await stage.lateness(later) < AT_ONCE


async def test_what_a_transaction_of_the_user_submits_is_found_soon(
    server: SeparateServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody offers its ticket when it commits, but PostgreSQL notifies the planners."""
    started: asyncio.Queue[float] = asyncio.Queue()
    async with migrated_schema(postgres_url()) as address:
        app = Horae(store=address)

        @app.task("note")
        async def note(run: Run) -> None:
            started.put_nowait((datetime.now(UTC) - run.due_at).total_seconds())

        metrics = Metrics()
        monkeypatch.setattr(wiring, "Metrics", lambda: metrics)
        settings = replace(settings_of(address), queue=f"{server.url}/0")
        connection = await Address(address).connect()
        async with running_node(settings, PLAN, app):
            await note.submit()
            await asyncio.wait_for(started.get(), 10)
            while not metrics.registry.get_sample_value("horae_tickets_total", {"event": "claimed"}):
                await note.submit()
                await asyncio.wait_for(started.get(), 10)
            for _ in range(3):
                async with connection.transaction():
                    await note.using(tx=connection).submit()
                assert await asyncio.wait_for(started.get(), 10) < AT_ONCE
        await connection.close()
