"""Hooks around tasks: where they run, in which order, and what it means when one fails."""

import asyncio
import threading
from collections.abc import Callable
from contextvars import ContextVar

import pytest

from horae import Fatal, Horae, Run
from horae.core.decisions.results import Failure
from horae.core.model import Outcome
from horae.engine.execution.outcome import Stopped, Success
from tests.execution import hooked_cpu_tasks
from tests.execution.executing import stage, until

TENANT: ContextVar[str] = ContextVar("TENANT")


class Noted(list[str]):
    """What happened, in order."""


@pytest.fixture
def noted() -> Noted:
    return Noted()


@pytest.fixture
def app(noted: Noted) -> Horae:
    """Tasks of each kind, and a hook for each event that notes it with its thread."""
    app = Horae()

    @app.task("sync")
    def sync(fail: bool = False) -> str:
        noted.append(f"task in {threading.current_thread().name}")
        if fail:
            raise ValueError("wrong")
        return TENANT.get("nobody")

    @app.task("async")
    async def coroutine(fail: bool = False) -> str:
        noted.append(f"task in {threading.current_thread().name}")
        await asyncio.sleep(0)
        if fail:
            raise ValueError("wrong")
        return TENANT.get("nobody")

    @app.task("forever")
    async def forever() -> None:
        noted.append("begun")
        await asyncio.sleep(60)

    @app.task("unstorable")
    def unstorable() -> object:
        return object()

    return app


def note_everything(app: Horae, noted: Noted) -> None:
    @app.on("task_start")
    def started(run: Run) -> None:
        noted.append(f"start {run.task} in {threading.current_thread().name}")

    @app.on("task_failed")
    def failed(run: Run, error: BaseException) -> None:
        noted.append(f"failed {type(error).__name__} in {threading.current_thread().name}")

    @app.on("task_end")
    def ended(run: Run) -> None:
        noted.append(f"end in {threading.current_thread().name}")


async def test_sync_hooks_of_a_sync_task_run_in_its_thread(app: Horae, noted: Noted) -> None:
    note_everything(app, noted)
    async with stage(app) as play:
        assert await play.result("sync") == Success('"nobody"')
    thread = "horae-task-1"
    assert noted == [f"start sync in {thread}", f"task in {thread}", f"end in {thread}"]


async def test_hooks_of_an_async_task_run_in_its_event_loop(app: Horae, noted: Noted) -> None:
    note_everything(app, noted)
    async with stage(app) as play:
        await play.result("async", fail=True)
    thread = threading.current_thread().name
    assert noted == [
        f"start async in {thread}",
        f"task in {thread}",
        f"failed ValueError in {thread}",
        f"end in {thread}",
    ]


@pytest.mark.parametrize("task", ["sync", "async"])
async def test_async_hooks_run_in_the_event_loop_whatever_the_task_is(app: Horae, noted: Noted, task: str) -> None:
    loop = asyncio.get_running_loop()

    @app.on("task_start")
    async def started(run: Run) -> None:
        await asyncio.sleep(0)
        assert asyncio.get_running_loop() is loop
        noted.append("start")

    @app.on("task_failed")
    async def failed(run: Run, error: BaseException) -> None:
        assert asyncio.get_running_loop() is loop
        noted.append(f"failed with {error}")

    @app.on("task_end")
    async def ended(run: Run) -> None:
        assert asyncio.get_running_loop() is loop
        noted.append("end")

    async with stage(app) as play:
        await play.result(task, fail=True)
    assert [each for each in noted if not each.startswith("task in")] == ["start", "failed with wrong", "end"]


@pytest.mark.parametrize("task", ["sync", "async"])
async def test_a_task_sees_the_context_variables_that_its_hooks_set(app: Horae, task: str) -> None:
    app.on("task_start")(lambda run: TENANT.set("acme"))
    async with stage(app) as play:
        assert await play.result(task) == Success('"acme"')
        assert TENANT.get("nobody") == "nobody"


@pytest.mark.parametrize("task", ["sync", "async"])
async def test_a_task_whose_start_hook_fails_is_not_called_and_its_attempt_fails(
    app: Horae, noted: Noted, task: str
) -> None:
    note_everything(app, noted)

    @app.on("task_start")
    def refuse(run: Run) -> None:
        raise Fatal("there is no tenant")

    async with stage(app) as play:
        result = await play.result(task)
    assert isinstance(result, Failure)
    assert (result.error.type, result.error.message, result.fatal) == ("Fatal", "there is no tenant", True)
    assert [each.split(" in ")[0] for each in noted] == [f"start {task}", "failed Fatal", "end"]


@pytest.mark.parametrize("task", ["sync", "async"])
async def test_a_failing_end_hook_is_logged_and_the_result_stands(app: Horae, noted: Noted, task: str) -> None:
    note_everything(app, noted)

    @app.on("task_end")
    def stumble(run: Run) -> None:
        raise RuntimeError("cannot close")

    async with stage(app) as play:
        attempt = play.begin(task)
        assert await attempt.result() == Success('"nobody"')
        log = await play.log(attempt, "cannot close")
    assert "stumble of task_end failed" in log
    assert noted[-1].startswith("end in"), "the other hooks still run"


async def test_a_timeout_is_a_failure_and_a_requested_stop_is_none(app: Horae, noted: Noted) -> None:
    note_everything(app, noted)
    async with stage(app) as play:
        result = await play.result("forever", timeout=0.01)
        assert isinstance(result, Failure)
        assert result.outcome is Outcome.TIMEOUT
        assert [each.split(" in ")[0] for each in noted] == ["start forever", "begun", "failed TimeoutError", "end"]
        noted.clear()
        attempt = play.begin("forever")
        await until(lambda: "begun" in noted)
        attempt.running.stop()
        assert await attempt.result() == Stopped()
    assert [each.split(" in ")[0] for each in noted] == ["start forever", "begun", "end"]


async def test_a_result_that_cannot_be_kept_is_a_failure_for_hooks_too(app: Horae, noted: Noted) -> None:
    note_everything(app, noted)
    async with stage(app) as play:
        result = await play.result("unstorable")
    assert isinstance(result, Failure)
    assert (result.error.type, result.fatal) == ("InvalidResult", True)
    assert "failed InvalidResult in horae-task-1" in noted


async def test_hooks_of_a_cpu_task_run_in_its_process() -> None:
    async with stage(hooked_cpu_tasks.app) as play:
        assert await play.result("pids") == Success("true")
        attempt = play.begin("pids", fail=True)
        result = await attempt.result()
        assert isinstance(result, Failure)
        assert result.error.message == "wrong"
        log = await play.log(attempt, "ended")
    assert log.index("failed: wrong") < log.index("ended")


def test_a_hook_that_could_never_be_called_is_refused(app: Horae) -> None:
    with pytest.raises(ValueError, match="there is no event 'task_begin'; choose among task_start, task_end"):
        app.on("task_begin")  # type: ignore[arg-type]
    refused: Callable[..., None] = lambda: None  # noqa: E731
    with pytest.raises(TypeError, match=r"a hook of task_failed is called as .*\(run, error\): too many positional"):
        app.on("task_failed")(refused)


async def test_the_end_hook_runs_although_the_failure_hook_is_interrupted(app: Horae, noted: Noted) -> None:
    @app.on("task_failed")
    async def interrupted(run: Run, error: BaseException) -> None:
        raise asyncio.CancelledError

    app.on("task_end")(lambda run: noted.append("end"))
    async with stage(app) as play:
        result = await play.result("async", fail=True)
    assert isinstance(result, Failure)
    assert noted[-1] == "end"
