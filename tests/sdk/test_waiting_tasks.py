"""Tasks that wait for the results of their own children: they never stand still, whatever the slots."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from horae import Handle, Horae, Queue, RunFailed, Task
from horae.engine.execution.attempt import WAITING_PER_SLOT
from horae.runtime.plan import NodePlan
from horae.runtime.wiring import RunningNode, running_node
from tests.execution.cpu_tasks import cpu_parent
from tests.sdk.conftest import settings

SECONDS = 60


@asynccontextmanager
async def working(app: Horae, address: str, *, concurrency: int) -> AsyncIterator[RunningNode]:
    plan = NodePlan(roles=frozenset({"worker"}), concurrency=concurrency)
    async with running_node(settings(address), plan, app) as running:
        yield running


async def results(handles: list[Handle[Any]]) -> list[Any]:
    async with asyncio.timeout(SECONDS):
        return [await handle.result() for handle in handles]


async def test_parents_that_wait_for_their_children_take_no_slots_from_them(address: str) -> None:
    app = Horae(store=address, owner="ada")

    @app.task("child")
    async def child(number: int) -> int:
        await asyncio.sleep(0.001)
        return number

    @app.task("parent")
    async def parent(number: int) -> int:
        handles = await child.submit_many([{"number": number}] * 5)
        return sum(await asyncio.gather(*(handle.result() for handle in handles)))

    async with working(app, address, concurrency=100):
        handles = await parent.submit_many([{"number": number} for number in range(200)])
        assert await results([*handles]) == [5 * number for number in range(200)]


async def test_functions_in_threads_may_wait_as_well(address: str) -> None:
    app = Horae(store=address, owner="ada")

    @app.task("child")
    def child(number: int) -> int:
        return number

    @app.task("parent")
    def parent(number: int) -> int:
        return child.submit_sync(number).result_sync() + child.submit_sync(1).result_sync()

    async with working(app, address, concurrency=2):
        handles = await parent.submit_many([{"number": number} for number in range(12)])
        assert await results([*handles]) == [number + 1 for number in range(12)]
        first = await child.submit(3)
        assert await results([first]) == [3]


async def test_a_wait_that_exceeds_the_bound_is_refused_with_the_way_to_do_it(address: str) -> None:
    app = Horae(store=address, owner="ada")

    @app.task("depth", max_retries=0)
    async def depth(left: int) -> int:
        if left == 0:
            return 0
        return 1 + await (await depth_of(left - 1)).result()

    async def depth_of(left: int) -> Handle[int]:
        return await depth.submit(left)

    async with working(app, address, concurrency=1):
        assert await results([await depth_of(WAITING_PER_SLOT)]) == [WAITING_PER_SLOT]
        with pytest.raises(RunFailed, match=r"WaitRefused.*raise --concurrency"):
            await results([await depth_of(WAITING_PER_SLOT + 1)])


async def refused(app: Horae, address: str, submit: Callable[[], Awaitable[Handle[Any]]]) -> str:
    """Return why a wait of the submitted task is refused."""
    async with working(app, address, concurrency=4):
        with pytest.raises(RunFailed) as caught:
            await results([await submit()])
    assert caught.value.error_type == "WaitRefused"
    return caught.value.error_message


def family(app: Horae) -> tuple[Task[Any, Any, str], Task[Any, Any, str]]:
    @app.task("child", max_retries=0)
    async def child() -> str:
        return "done"

    @app.task("parent", max_retries=0)
    async def parent(queue: str | None = None, ordering_key: str | None = None) -> str:
        said = child.using(queue=queue, ordering_key=ordering_key)
        return await (await said.submit()).result()

    return parent, child


async def test_a_wait_for_a_run_behind_ones_own_ordering_key_is_refused(address: str) -> None:
    app = Horae(store=address, owner="ada")
    parent, _ = family(app)
    said = parent.using(ordering_key="customer-42")
    why = await refused(app, address, lambda: said.submit(ordering_key="customer-42"))
    assert "ordering key" in why
    async with working(app, address, concurrency=4):
        assert await results([await said.submit(ordering_key="customer-43")]) == ["done"]


async def test_a_wait_within_a_queue_with_a_limit_is_refused(address: str) -> None:
    app = Horae(store=address, owner="ada", queues=[Queue("mail", concurrency=2), Queue("slow", concurrency=1)])
    parent, _ = family(app)
    said = parent.using(queue="mail")
    why = await refused(app, address, lambda: said.submit(queue="mail"))
    assert "the queue mail" in why
    assert "another queue" in why
    async with working(app, address, concurrency=4):
        assert await results([await said.submit(queue="slow")]) == ["done"]


async def test_a_wait_for_what_is_over_is_never_refused(address: str) -> None:
    app = Horae(store=address, owner="ada", queues=[Queue("mail", concurrency=2)])
    _, child = family(app)

    @app.task("late", max_retries=0)
    async def late(job: str) -> str:
        return await child.handle(job).result()

    async with working(app, address, concurrency=1):
        handle = await child.using(queue="mail", ordering_key="k").submit()
        assert await results([handle]) == ["done"]
        assert await results([await late.using(queue="mail", ordering_key="k").submit(handle.id)]) == ["done"]


async def test_a_process_cannot_wait(address: str) -> None:
    app = Horae(store=address, owner="ada")
    parent = app.task("cpu.parent", cpu=True, max_retries=0)(cpu_parent)
    assert "cpu=True" in await refused(app, address, parent.submit)
