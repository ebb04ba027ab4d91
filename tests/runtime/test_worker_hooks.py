"""Hooks around a worker: where a connection pool opens and closes."""

import asyncio
import threading
from pathlib import Path

import pytest

from horae import Horae, Run
from horae.core.errors import Misconfigured
from horae.runtime.plan import NodePlan
from horae.runtime.wiring import running_node
from horae.testing import System
from tests.sdk.conftest import settings


class Pool:
    """Something that the tasks of a worker share."""

    def __init__(self) -> None:
        self.story: list[str] = []
        self.threads: list[str] = []
        self.begun: asyncio.Queue[str] = asyncio.Queue()  # ids of the jobs that use it
        self.open = False


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'horae.db'}"


@pytest.fixture
def pool() -> Pool:
    return Pool()


@pytest.fixture
def app(address: str, pool: Pool) -> Horae:
    app = Horae(store=address)

    @app.on("worker_start")
    async def open_pool() -> None:
        await asyncio.sleep(0)
        pool.open = True
        pool.story.append("open")

    @app.on("worker_start")
    def warm_up() -> None:
        pool.threads.append(threading.current_thread().name)
        pool.story.append("warm")

    @app.on("worker_stop")
    async def close_pool() -> None:
        pool.open = False
        pool.story.append("close")

    @app.task("use")
    async def use(run: Run) -> bool:
        pool.begun.put_nowait(run.job_id)
        await asyncio.sleep(0.05)
        pool.story.append("used")
        return pool.open

    return app


async def test_a_pool_is_open_before_the_first_run_and_closed_after_the_last(
    app: Horae, pool: Pool, address: str
) -> None:
    use = app.registry.get("use")
    assert use is not None
    handle = await use.submit()  # type: ignore[attr-defined]
    await app.close()
    async with running_node(settings(address), NodePlan(), app):
        assert pool.story[:2] == ["open", "warm"]
        assert await handle.result(timeout=10) is True
        assert pool.begun.get_nowait() == handle.id
        last = await use.submit()  # type: ignore[attr-defined]
        assert await asyncio.wait_for(pool.begun.get(), 10) == last.id
    assert pool.story == ["open", "warm", "used", "used", "close"]
    assert pool.threads != [threading.current_thread().name], "a function may block, so it is not for the event loop"


async def test_a_node_that_runs_no_tasks_calls_no_worker_hooks(app: Horae, pool: Pool, address: str) -> None:
    async with running_node(settings(address), NodePlan(roles=frozenset({"planner"})), app):
        pass
    assert pool.story == []


async def test_a_worker_whose_start_hook_fails_does_not_start(app: Horae, pool: Pool, address: str) -> None:
    @app.on("worker_start")
    def unreachable() -> None:
        raise ConnectionRefusedError("nobody listens")

    with pytest.raises(Misconfigured, match=r"unreachable failed with ConnectionRefusedError: nobody listens"):
        async with running_node(settings(address), NodePlan(), app):
            pass


async def test_a_failing_stop_hook_keeps_no_other_from_running(app: Horae, pool: Pool, address: str) -> None:
    app.on("worker_stop")(lambda: pool.story.append("early"))

    @app.on("worker_stop")
    def stumble() -> None:
        raise RuntimeError("cannot close")

    async with running_node(settings(address), NodePlan(), app):
        pass
    assert pool.story[-2:] == ["early", "close"], "what was declared last comes first"


def test_worker_hooks_run_in_virtual_time_too(app: Horae, pool: Pool) -> None:
    use = app.registry.get("use")
    with System().use(app) as system:
        handle = system.submit(use)  # type: ignore[arg-type, var-annotated]
        system.advance(seconds=1)
        assert system.run(handle).result is True
    assert pool.story == ["open", "warm", "used", "close"]
