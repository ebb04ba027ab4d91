"""Handles: results, failures, states, and the cost of waiting."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import date, timedelta
from typing import Any

import pytest

from horae import Handle, Horae, Invalid, NotFound, RunCancelled, RunFailed, RunSkipped, Task, Unavailable
from horae import Run as TaskRun
from horae.core.model import Run, RunId
from horae.lookup import find_run
from horae.ports.store import Store
from horae.sdk.wait import PollingWaiter
from tests.sdk.conftest import Work, node
from tests.sdk.tasks import Parcel, Tasks, declare


async def eventually(true: Callable[[], Awaitable[bool]], seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while not await true():  # noqa: ASYNC110 - no event tells of a store
            await asyncio.sleep(0.01)


async def test_a_result_comes_back_in_the_type_that_the_task_returns(tasks: Tasks, work: Work) -> None:
    await work()
    assert await (await tasks.add.submit(1, 2)).result(timeout=20) == 3
    parcel = await (await tasks.weigh.submit(Parcel(to="Ann", on=date(2026, 3, 1)))).result(timeout=20)
    assert parcel == Parcel(to="Ann", on=date(2026, 3, 1), grams=101)
    nothing: object = await (await tasks.nothing.submit()).result(timeout=timedelta(seconds=20))  # type: ignore[func-returns-value]
    assert nothing is None


async def test_a_run_that_failed_raises_its_error(tasks: Tasks, work: Work) -> None:
    await work()
    handle = await tasks.fail.submit(why="no rng")
    with pytest.raises(RunFailed, match="failed, tried once: Fatal: no rng") as caught:
        await handle.result(timeout=20)
    error = caught.value
    assert (error.run_id, error.error_type, error.error_message, error.attempts) == (
        handle.run_id,
        "Fatal",
        "no rng",
        1,
    )
    assert await handle.status() == "failed"


async def test_a_run_can_be_cancelled_before_and_while_it_runs(tasks: Tasks, work: Work) -> None:
    waiting = await tasks.add.using(delay=3600).submit(1)
    assert await waiting.status() == "scheduled"
    assert await waiting.cancel() == "cancelled"
    with pytest.raises(RunCancelled, match=waiting.run_id):
        await waiting.result(timeout=5)
    assert await waiting.cancel() == "cancelled"

    running = await tasks.sleep.submit(60)
    assert await running.status() == "queued"
    await work()
    await eventually(lambda: _is(running.status, "running"))
    assert await running.cancel() in ("cancelled", "cancelling")
    with pytest.raises(RunCancelled):
        await running.result(timeout=20)


async def _is(status: Callable[[], Awaitable[str]], wanted: str) -> bool:
    return await status() == wanted


async def test_a_run_that_nobody_started_in_time_was_skipped(tasks: Tasks, store: Store, work: Work) -> None:
    handle = await tasks.add.using(start_within=0).submit(1)
    await eventually(lambda: _later(store, handle.run_id))
    await work()
    with pytest.raises(RunSkipped, match="too_late") as caught:
        await handle.result(timeout=20)
    assert caught.value.reason == "too_late"


async def _later(store: Store, run_id: str) -> bool:
    run = await find_run(store, RunId(run_id.removeprefix("run_")), owner=None)
    assert run is not None
    return await store.time() > run.due_at


async def test_patience_has_an_end(tasks: Tasks) -> None:
    handle = await tasks.add.submit(1)
    with pytest.raises(TimeoutError, match=r"is still queued after 0\.1 s"):
        await handle.result(timeout=0.1)


async def test_a_handle_can_be_had_again_by_its_id(tasks: Tasks, work: Work) -> None:
    submitted = await tasks.add.submit(20, 22)
    await work()
    again = tasks.add.handle(submitted.id)
    assert again == submitted
    assert hash(again) == hash(submitted)
    assert await again.result(timeout=20) == 42
    with pytest.raises(NotFound):
        await tasks.add.handle("job_01a1e1aafe8a75908af42505e25a5a66").status()
    for malformed in ("nonsense", "job_1"):
        with pytest.raises(NotFound):
            tasks.add.handle(malformed)


async def test_another_owner_does_not_see_it(address: str, tasks: Tasks) -> None:
    handle = await tasks.add.submit(1)
    async with Horae(store=address, owner="bob") as theirs:
        with pytest.raises(NotFound):
            await declare(theirs).add.handle(handle.id).cancel()
    assert await handle.status() == "queued"


async def test_a_result_of_other_code_is_no_surprise_of_another_type(app: Horae, work: Work) -> None:
    @app.task("add")
    async def add(left: int) -> Parcel:
        raise AssertionError

    handle = await add.submit(1)
    await work()
    with pytest.raises(Invalid, match="another version of the code"):
        await handle.result(timeout=20)


async def test_tasks_submit_others_through_the_store_of_their_node(address: str) -> None:
    app = Horae(store=address, owner="ada")
    tasks = declare(app)
    async with node(app, address):
        for chained in (await tasks.chain.submit(40), await tasks.chain_sync.submit(40)):
            inner = tasks.add.handle(await chained.result(timeout=20))
            assert await inner.result(timeout=20) == 41


async def test_whoever_waits_on_a_node_that_ends_is_told(address: str) -> None:
    app = Horae(store=address, owner="ada")
    tasks = declare(app)
    async with node(app, address, "planner"):
        waiting = asyncio.create_task((await tasks.add.submit(1)).result())
        await tasks.add.submit(2)
    with pytest.raises(Unavailable, match="closed before the run ended"):
        await waiting


class Counted:
    """A store that counts how often it is asked."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.questions = 0
        self.subscribe = store.subscribe

    async def runs(self, run_ids: Sequence[RunId], *, ended: bool) -> Mapping[RunId, Run]:
        self.questions += 1
        return await self._store.runs(run_ids, ended=ended)


async def test_many_who_wait_share_their_looks_at_the_store(tasks: Tasks, store: Store, work: Work) -> None:
    handles = await tasks.add.submit_many({"left": number} for number in range(500))
    counted = Counted(store)
    waiter = PollingWaiter(counted)  # type: ignore[arg-type]
    waiting = [asyncio.create_task(waiter.wait(RunId(handle.run_id.removeprefix("run_")))) for handle in handles]
    await asyncio.sleep(0.1)
    before = counted.questions
    assert 1 <= before <= 6  # all 500 together, at most once every 20 ms
    await work()
    async with asyncio.timeout(30):
        runs = await asyncio.gather(*waiting)
    assert {run.id for run in runs} == {handle.run_id.removeprefix("run_") for handle in handles}


async def test_whoever_waits_long_is_looked_for_less_often(tasks: Tasks, store: Store) -> None:
    handle = await tasks.add.submit(1)
    counted = Counted(store)
    waiter = PollingWaiter(counted)  # type: ignore[arg-type]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await waiter.wait(RunId(handle.run_id.removeprefix("run_")))
    assert counted.questions < 30  # every 20 ms would be 50


async def test_a_cancel_of_something_that_is_over_says_how_it_ended(tasks: Tasks, work: Work) -> None:
    await work()
    done, failed = await tasks.add.submit(1), await tasks.fail.submit(why="no rng")
    assert await done.result(timeout=20) == 2
    with pytest.raises(RunFailed):
        await failed.result(timeout=20)
    assert await done.cancel() == "succeeded"
    assert await failed.cancel() == "failed"
    with pytest.raises(NotFound):
        await tasks.add.handle("job_01a1e1aafe8a75908af42505e25a5a66").cancel()


async def test_the_progress_of_a_run_is_told(app: Horae, address: str) -> None:
    reported = asyncio.Event()

    def declare_halfway(app: Horae) -> Task[Any, Any, None]:
        @app.task("halfway")
        async def halfway(run: TaskRun) -> None:
            run.progress(0.5)
            await reported.wait()

        return halfway

    theirs = Horae(store=address, owner="ada")
    declare_halfway(theirs)
    handle = await declare_halfway(app).submit()
    assert await handle.progress() is None
    async with node(theirs, address):
        await eventually(lambda: _is_half(handle))
        assert await asyncio.to_thread(handle.progress_sync) == 0.5
        reported.set()
        await handle.result(timeout=20)
    with pytest.raises(NotFound):
        await declare(app).add.handle("job_01a1e1aafe8a75908af42505e25a5a66").progress()


async def _is_half(handle: Handle[None]) -> bool:
    return await handle.progress() == 0.5
