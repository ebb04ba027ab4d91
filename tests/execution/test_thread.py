"""Attempts of plain functions in threads."""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator

import pytest

from horae import Horae, Run
from horae.core.decisions.results import Failure
from horae.core.model import Outcome
from horae.engine.execution.outcome import Stopped, Success
from tests.execution.executing import GRACE, Stage, stage, until

app = Horae()
OPEN = threading.Event()


@app.task("where")
def where() -> str:
    return threading.current_thread().name


@app.task("wait")
def wait() -> str:
    OPEN.wait(10)
    return "done"


@app.task("stumble")
def stumble() -> None:
    OPEN.wait(10)
    raise RuntimeError("too late to be heard")


@app.task("cooperate")
def cooperate(run: Run) -> str:
    while not run.cancelled:
        time.sleep(0.005)
    return "stopped early"


@app.task("exit")
def leave() -> None:
    sys.exit("bye")


@app.task("chatty")
def chatty(run: Run) -> None:
    for n in range(10_001):
        run.progress(n / 10_000)


@pytest.fixture
async def play() -> AsyncIterator[Stage]:
    OPEN.clear()
    async with stage(app, threads=2) as play:
        yield play
        OPEN.set()
        await until(lambda: play.executor.abandoned == 0)


async def test_a_function_runs_in_a_thread(play: Stage) -> None:
    assert await play.result("where") == Success('"horae-task-1"')
    assert await play.result("where") == Success('"horae-task-1"')


async def test_the_loop_goes_on_meanwhile_and_more_work_waits_its_turn(play: Stage) -> None:
    waiting = [play.begin("wait") for _ in range(5)]
    await asyncio.sleep(0.02)
    assert not any(attempt.results for attempt in waiting)
    OPEN.set()
    assert [await attempt.result() for attempt in waiting] == [Success('"done"')] * 5


async def test_system_exit_is_a_failure_like_any_other(play: Stage) -> None:
    result = await play.result("exit")
    assert isinstance(result, Failure)
    assert (result.error.type, result.error.message) == ("SystemExit", "bye")
    assert await play.result("where") == Success('"horae-task-1"')


async def test_a_function_that_looks_is_stopped(play: Stage) -> None:
    attempt = play.begin("cooperate")
    attempt.running.stop()
    assert await attempt.result() == Stopped()
    attempt = play.begin("cooperate", timeout=0.02)
    result = await attempt.result()
    assert isinstance(result, Failure)
    assert result.outcome is Outcome.TIMEOUT
    assert play.executor.abandoned == 0


async def test_a_result_that_owes_nothing_to_the_request_to_stop_is_good(play: Stage) -> None:
    began = play.begin("wait")
    await until(lambda: began.running._begun)
    began.running.stop()
    OPEN.set()
    assert await began.result() == Success('"done"')


@pytest.mark.parametrize("timeout", [None, 0.02])
async def test_a_function_that_does_not_look_is_left_behind_and_counted(play: Stage, timeout: float | None) -> None:
    attempt = play.begin("wait", timeout=timeout)
    await until(lambda: attempt.running._begun)
    began = time.monotonic()
    if timeout is None:
        attempt.running.stop()
    result = await attempt.result()
    assert time.monotonic() - began < GRACE + 0.5
    assert isinstance(result, Stopped if timeout is None else Failure)
    assert play.executor.abandoned == 1
    OPEN.set()
    await until(lambda: play.executor.abandoned == 0)
    assert len(attempt.results) == 1


async def test_a_function_that_was_left_behind_logs_nothing_more(play: Stage) -> None:
    attempt = play.begin("stumble")
    await until(lambda: attempt.running._begun)
    attempt.running.kill()
    OPEN.set()
    await until(lambda: play.executor.abandoned == 0)
    assert not attempt.running.log.write("INFO", "nor can anybody else")
    assert await play.log(attempt) == ""


async def test_a_function_that_waits_for_a_thread_is_withdrawn_at_once(play: Stage) -> None:
    busy = [play.begin("wait") for _ in range(2)]
    queued = play.begin("chatty")
    queued.running.stop()
    assert queued.results == [Stopped()]
    OPEN.set()
    for attempt in busy:
        await attempt.result()
    assert await play.result("where") != Stopped()
    assert queued.progress == []


async def test_progress_is_told_on_the_loop_without_flooding_it(play: Stage) -> None:
    attempt = play.begin("chatty")
    assert await attempt.result() == Success()
    assert attempt.progress[-1] == 1
    assert attempt.progress == sorted(attempt.progress)


def test_a_stuck_thread_does_not_keep_the_program_from_ending() -> None:
    script = """
import asyncio, threading
from tests.execution.executing import stage
from horae import Horae

app = Horae()

@app.task("stuck")
def stuck() -> None:
    threading.Event().wait()

async def main() -> None:
    async with stage(app, grace=0.01) as play:
        play.begin("stuck")
        await asyncio.sleep(0.05)

asyncio.run(main())
"""
    path = [item for item in sys.path if item]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:] = {path!r}\n{script}"],
        timeout=20, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "tasks_left_running" in done.stdout
