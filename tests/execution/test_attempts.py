"""Attempts of coroutines: one result each, on time, whatever the task does."""

import asyncio
import contextvars
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime

import pytest

from horae import Fatal, Horae, RetryAfter, Run
from horae.core.decisions.results import Failure
from horae.core.model import Outcome
from horae.engine.execution.outcome import Stopped, Success
from tests.execution.executing import GRACE, NOW, Stage, stage, until

app = Horae()
SECRET: contextvars.ContextVar[str] = contextvars.ContextVar("SECRET", default="unset")


@dataclass
class Order:
    """A parameter with a shape."""

    item: str
    at: datetime
    count: int = 1


@app.task("add")
async def add(left: int, right: int = 1) -> int:
    return left + right


@app.task("order")
async def order(order: Order) -> str:
    return f"{order.count} {order.item} at {order.at:%H:%M}"


@app.task("report")
async def report(run: Run) -> dict[str, object]:
    run.log.info("working on %s", "it", part=2, name="a b")
    run.progress(0.5)
    return {"id": run.id, "job": run.job_id, "attempt": run.attempt, "fence": run.fence, "due": run.due_at}


@app.task("raise")
async def raise_it(kind: str) -> None:
    errors: dict[str, BaseException] = {
        "plain": ValueError("no good"),
        "fatal": Fatal("never"),
        "later": RetryAfter(2.5),
        "far": RetryAfter(float("inf")),
        "exit": SystemExit(3),
        "interrupt": KeyboardInterrupt(),
        "cancel": asyncio.CancelledError(),
        "long": ValueError("é\0" * 20_000),
        "rude": Rude(),
    }
    raise errors[kind]


class Rude(Exception):
    """Cannot even be printed."""

    def __str__(self) -> str:
        raise RuntimeError("no")


@app.task("forever")
async def forever() -> None:
    await asyncio.Event().wait()


@app.task("stubborn")
async def stubborn(seconds: float) -> None:
    until_then = time.monotonic() + seconds
    while time.monotonic() < until_then:
        try:
            await asyncio.sleep(0.02)
        except asyncio.CancelledError:
            continue


@app.task("tidy")
async def tidy(run: Run) -> str:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        run.log.info(f"cancelled is {run.cancelled}")
        return "gave up"
    return "never"


@app.task("whisper")
async def whisper() -> str:
    before = SECRET.get()
    SECRET.set("mine")
    return before


@app.task("odd")
async def odd() -> object:
    return object()


@app.task("huge")
async def huge() -> str:
    return "x" * 2_000_000


@pytest.fixture
async def play() -> AsyncIterator[Stage]:
    async with stage(app) as play:
        yield play


async def test_a_task_gets_its_parameters_and_its_result_is_kept_as_json(play: Stage) -> None:
    assert await play.result("add", left=2) == Success("3")
    assert await play.result("add", left=2, right=3) == Success("5")
    assert await play.result("demo.sleep", seconds=0) == Success("0.0")


async def test_parameters_become_what_the_task_declares(play: Stage) -> None:
    assert await play.result("order", order={"item": "tea", "at": "2026-01-01T09:30:00Z"}) == Success(
        '"1 tea at 09:30"'
    )


async def test_a_task_sees_its_run_and_reports(play: Stage) -> None:
    attempt = play.begin("report", attempt=3)
    result = await attempt.result()
    assert isinstance(result, Success)
    ids = f'"id":"run_{attempt.run.id}","job":"job_{attempt.run.job_id}"'
    assert result.result == f'{{{ids},"attempt":3,"fence":7,"due":"{NOW:%Y-%m-%dT%H:%M:%S}Z"}}'
    assert attempt.progress == [0.5]
    assert await play.log(attempt, "working") == "2026-11-15T20:00:00.000Z INFO working on it part=2 name='a b'\n"


async def test_wrong_parameters_fail_for_good_and_name_every_fault(play: Stage) -> None:
    result = await play.result("add", left="two", wrong=1)
    assert isinstance(result, Failure)
    assert (result.fatal, result.error.type) == (True, "InvalidParams")
    assert result.error.message == (
        "params/left: must be a whole number, not text; params/wrong: is not a known name; known are left, right"
    )


async def test_large_parameters_come_from_their_blob(play: Stage) -> None:
    play.blobs.kept["params/1"] = b'{"left": 40, "right": 2}'
    assert await play.result("add", blob="params/1") == Success("42")


async def test_parameters_that_are_lost_fail_for_good_and_an_outage_does_not(play: Stage) -> None:
    lost = await play.result("add", blob="params/none")
    assert isinstance(lost, Failure)
    assert (lost.fatal, lost.error.type) == (True, "ParamsLost")
    play.blobs.failing = True
    outage = await play.result("add", blob="params/1")
    assert isinstance(outage, Failure)
    assert (outage.fatal, outage.error.type) == (False, "Unavailable")
    play.blobs.failing = False


async def test_an_unknown_task_fails_for_good(play: Stage) -> None:
    result = await play.result("nowhere", any="thing")
    assert isinstance(result, Failure)
    assert (result.fatal, result.error.type) == (True, "NoSuchTask")


@pytest.mark.parametrize(
    ("kind", "type_", "message", "fatal", "after"),
    [
        ("plain", "ValueError", "no good", False, None),
        ("fatal", "Fatal", "never", True, None),
        ("later", "RetryAfter", "the task asked for a retry after 2.5 s", False, 2.5),
        ("far", "RetryAfter", "the task asked for a retry after inf s", False, 3653 * 86400),
        ("exit", "SystemExit", "3", False, None),
        ("interrupt", "KeyboardInterrupt", "", False, None),
        ("cancel", "CancelledError", "the task was cancelled, but not by Horae", False, None),
        ("rude", "Rude", "(its message cannot be printed: RuntimeError)", False, None),
    ],
)
async def test_whatever_a_task_raises_is_a_failure(
    play: Stage, kind: str, type_: str, message: str, fatal: bool, after: float | None
) -> None:
    result = await play.result("raise", kind=kind)
    assert isinstance(result, Failure)
    assert (result.error.type, result.error.message, result.fatal) == (type_, message, fatal)
    assert (result.retry_after and result.retry_after.total_seconds()) == after
    assert result.outcome is Outcome.FAILED


async def test_a_long_message_is_cut(play: Stage) -> None:
    result = await play.result("raise", kind="long")
    assert isinstance(result, Failure)
    assert 9_900 < len(result.error.message.encode()) <= 10_000
    assert "\0" not in result.error.message


async def test_the_traceback_is_in_the_log(play: Stage) -> None:
    attempt = play.begin("raise", kind="plain")
    assert "raise errors[kind]" in await play.log(attempt, "ValueError: no good")


async def test_a_result_that_json_cannot_hold_fails_for_good(play: Stage) -> None:
    for task, reason in (("odd", "JSON cannot hold"), ("huge", "2000002 bytes")):
        result = await play.result(task)
        assert isinstance(result, Failure)
        assert (result.fatal, result.error.type) == (True, "InvalidResult")
        assert reason in result.error.message


async def test_a_timeout_cancels_the_task_and_counts_as_one(play: Stage) -> None:
    result = await play.result("forever", timeout=0.05)
    assert isinstance(result, Failure)
    assert (result.outcome, result.error.type) == (Outcome.TIMEOUT, "timeout")
    assert result.error.message == "it took longer than its timeout of 0.05 s"
    assert play.executor.abandoned == 0


async def test_a_stopped_task_ends_as_stopped(play: Stage) -> None:
    attempt = play.begin("tidy")
    await asyncio.sleep(0)
    attempt.running.stop()
    attempt.running.stop()
    assert await attempt.result() == Stopped()
    assert "cancelled is True" in await play.log(attempt, "cancelled")


async def test_a_task_that_has_not_begun_is_withdrawn_at_once(play: Stage) -> None:
    for act in ("stop", "kill"):
        attempt = play.begin("report")
        getattr(attempt.running, act)()
        assert attempt.results == [Stopped()]
    loading = play.begin("report", blob="params/none")
    loading.running.stop()
    assert loading.results == [Stopped()]
    await asyncio.sleep(0.01)
    assert len(loading.results) == 1
    assert not attempt.progress


@pytest.mark.parametrize("timeout", [None, 0.05])
async def test_a_task_that_ignores_the_request_is_left_behind_and_counted(play: Stage, timeout: float | None) -> None:
    attempt = play.begin("stubborn", seconds=3 * GRACE, timeout=timeout)
    await asyncio.sleep(0)
    if timeout is None:
        attempt.running.stop()
    result = await attempt.result()
    assert isinstance(result, Stopped if timeout is None else Failure)
    assert play.executor.abandoned == 1
    await until(lambda: play.executor.abandoned == 0)
    assert len(attempt.results) == 1


async def test_a_killed_task_is_told_at_once(play: Stage) -> None:
    attempt = play.begin("forever")
    await asyncio.sleep(0)
    attempt.running.kill()
    assert attempt.results == [Stopped()]
    await until(lambda: play.executor.abandoned == 0)


async def test_the_result_never_comes_before_begin_returns(play: Stage) -> None:
    for task in ("add", "nowhere", "odd"):
        attempt = play.begin(task, left=1)
        assert attempt.results == []
        await attempt.result()


async def test_each_attempt_has_a_context_of_its_own(play: Stage) -> None:
    SECRET.set("the worker's")
    assert await play.result("whisper") == Success('"unset"')
    assert await play.result("whisper") == Success('"unset"')
    assert SECRET.get() == "the worker's"


async def test_a_task_begins_in_the_next_round_of_the_loop(play: Stage) -> None:
    attempt = play.begin("report")
    await asyncio.sleep(0)
    assert attempt.progress == [0.5]


async def test_closing_leaves_nothing_running() -> None:
    async with stage(app) as play:
        attempts = [play.begin("forever") for _ in range(10)]
        await asyncio.sleep(0)
    assert all(attempt.results == [Stopped()] for attempt in attempts)
    assert len(asyncio.all_tasks()) == 1


async def test_demo_tasks_do_what_they_say(play: Stage) -> None:
    attempt = play.begin("demo.echo", message="hello")
    assert await attempt.result() == Success('"hello"')
    assert "INFO hello" in await play.log(attempt, "hello")
    assert await play.result("demo.echo") == Success('""')
    assert await play.result("demo.fail", times=2, attempt=3) == Success("3")
    for options in ({"times": 2, "attempt": 2}, {"attempt": 99}):
        result = await play.result("demo.fail", **options)
        assert isinstance(result, Failure)
        assert (result.error.type, result.fatal) == ("DemoError", False)
