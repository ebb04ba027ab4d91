"""Attempts of `cpu=True` tasks in processes."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from horae.core.decisions.results import Failure
from horae.core.model import Outcome
from horae.engine.execution.outcome import AttemptResult, Stopped, Success
from tests.execution.cpu_tasks import app
from tests.execution.executing import GRACE, Stage, gone, pids_in, stage, until

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def play() -> AsyncIterator[Stage]:
    async with stage(app, processes=2) as play:
        yield play


def returned(result: AttemptResult) -> object:
    assert isinstance(result, Success)
    assert result.result is not None
    return msgspec.json.decode(result.result)


async def test_a_cpu_task_runs_in_another_process_which_is_used_again(play: Stage) -> None:
    first, second = returned(await play.result("square", number=12)), returned(await play.result("square", number=12))
    assert isinstance(first, dict)
    assert first["square"] == 144
    assert first["pid"] != os.getpid()
    assert first == second


async def test_there_are_no_more_processes_than_allowed(play: Stage) -> None:
    results = [returned(await attempt.result()) for attempt in [play.begin("square", number=n) for n in range(20)]]
    assert [result["square"] for result in results if isinstance(result, dict)] == [n * n for n in range(20)]
    assert 1 <= len({result["pid"] for result in results if isinstance(result, dict)}) <= 2


async def test_log_and_progress_come_from_afar(play: Stage) -> None:
    attempt = play.begin("tell", attempt=4)
    assert returned(await attempt.result()) == f"run_{attempt.run.id} 4 7"
    assert attempt.progress == [0.25, 1]
    assert await play.log(attempt, "afar") == "2026-11-15T20:00:00.000Z INFO from afar part=1\n"


async def test_a_coroutine_may_be_a_cpu_task(play: Stage) -> None:
    assert returned(await play.result("later")) == "also coroutines"


@pytest.mark.parametrize(
    ("kind", "type_", "fatal"),
    [
        ("plain", "ValueError", False),
        ("fatal", "Fatal", True),
        ("exit", "SystemExit", False),
        ("odd", "InvalidResult", True),
    ],
)
async def test_what_a_task_raises_there_is_a_failure_here(play: Stage, kind: str, type_: str, fatal: bool) -> None:
    result = await play.result("fault", kind=kind)
    assert isinstance(result, Failure)
    assert (result.error.type, result.fatal) == (type_, fatal)


async def test_wrong_parameters_fail_for_good(play: Stage) -> None:
    result = await play.result("square", number="x")
    assert isinstance(result, Failure)
    assert (result.error.type, result.fatal) == ("InvalidParams", True)


@pytest.mark.parametrize(("how", "message"), [("kill", "was killed by signal 9"), ("exit", "exited with code 7")])
async def test_a_process_that_dies_is_a_crash_and_the_next_run_gets_another(
    play: Stage, how: str, message: str
) -> None:
    result = await play.result("crash", how=how)
    assert isinstance(result, Failure)
    assert (result.error.type, result.fatal) == ("crash", False)
    assert message in result.error.message
    assert returned(await play.result("square", number=2))


async def test_a_stopped_task_may_clean_up_and_its_whole_group_is_gone(play: Stage, tmp_path: Path) -> None:
    attempt = play.begin("spin", note=str(tmp_path / "note"), child=True)
    pids = await pids_in(tmp_path / "note", 2)
    attempt.running.stop()
    assert await attempt.result() == Stopped()
    await until(lambda: all(gone(pid) for pid in pids))
    assert (tmp_path / "note.clean").exists()
    assert returned(await play.result("square", number=2))


async def test_a_deaf_task_is_killed_after_the_grace(play: Stage, tmp_path: Path) -> None:
    attempt = play.begin("spin", note=str(tmp_path / "note"), deaf=True)
    pids = await pids_in(tmp_path / "note")
    began = time.monotonic()
    attempt.running.stop()
    assert await attempt.result() == Stopped()
    assert GRACE <= time.monotonic() - began < GRACE + 1
    await until(lambda: gone(pids[0]))
    assert play.executor.abandoned == 0


async def test_a_timeout_ends_the_process(play: Stage, tmp_path: Path) -> None:
    await play.result("square", number=1)  # a process is up, so that all the time is the task's
    attempt = play.begin("spin", note=str(tmp_path / "note"), timeout=0.5)
    pids = await pids_in(tmp_path / "note")
    result = await attempt.result()
    assert isinstance(result, Failure)
    assert result.outcome is Outcome.TIMEOUT
    await until(lambda: gone(pids[0]))


async def test_kill_is_told_at_once(play: Stage, tmp_path: Path) -> None:
    attempt = play.begin("spin", note=str(tmp_path / "note"), deaf=True)
    pids = await pids_in(tmp_path / "note")
    attempt.running.kill()
    assert attempt.results == [Stopped()]
    await until(lambda: gone(pids[0]))


async def test_a_task_that_waits_for_a_process_is_withdrawn_at_once(play: Stage, tmp_path: Path) -> None:
    busy = [play.begin("spin", note=str(tmp_path / f"note{n}")) for n in range(2)]
    queued = play.begin("square", number=1)
    await pids_in(tmp_path / "note0")
    queued.running.stop()
    assert queued.results == [Stopped()]
    for attempt in busy:
        attempt.running.kill()


async def test_a_flood_from_a_process_is_cut_and_the_loop_goes_on() -> None:
    async with stage(app, processes=1, log_limit=20_000) as play:
        attempt = play.begin("flood")
        longest = 0.0
        while not attempt.results:
            before = time.monotonic()
            await asyncio.sleep(0.001)
            longest = max(longest, time.monotonic() - before)
        assert isinstance(attempt.results[0], Success)
        assert len(await play.log(attempt, "truncated")) < 21_000
        assert longest < 0.5


async def test_a_child_that_a_task_forks_speaks_for_nobody(tmp_path: Path) -> None:
    async with stage(app, processes=1) as play:
        assert await play.result("fork", note=str(tmp_path / "note")) == Success('"parent"')
        assert await play.result("nap", seconds=0.3) == Success('"rested"')  # in the same process, meanwhile
        [child] = await pids_in(tmp_path / "note")
        await until(lambda: gone(child))


async def test_a_task_that_garbles_the_pipe_is_ended_and_the_next_run_gets_another_process() -> None:
    async with stage(app, processes=1) as play:
        result = await play.result("garble")
        assert isinstance(result, Failure)
        assert result.error.type == "crash"
        assert "wrote to the pipe" in result.error.message
        assert returned(await play.result("square", number=2))


async def test_what_a_thread_says_after_its_task_is_not_said_by_the_next() -> None:
    async with stage(app, processes=1) as play:
        first = play.begin("murmur")
        assert await first.result() == Success(None)
        second = play.begin("nap", seconds=0.1)
        assert await second.result() == Success('"rested"')
        assert "still here" not in await play.log(second, "rested")
        assert second.progress == []


async def test_endless_recursion_is_a_failure_and_costs_no_process() -> None:
    async with stage(app, processes=1) as play:
        first = returned(await play.result("square", number=2))
        result = await play.result("recurse")
        assert isinstance(result, Failure)
        assert result.error.type == "RecursionError"
        assert returned(await play.result("square", number=2)) == first


async def test_closing_leaves_no_process(tmp_path: Path) -> None:
    async with stage(app, processes=2) as play:
        play.begin("spin", note=str(tmp_path / "note"), deaf=True, child=True)
        pids = await pids_in(tmp_path / "note", 2)
    await until(lambda: all(gone(pid) for pid in pids))


async def test_processes_and_programs_die_with_a_worker_that_is_killed(tmp_path: Path) -> None:
    script = f"""
import asyncio
from tests.execution.cpu_tasks import app
from tests.execution.executing import stage

async def main() -> None:
    async with stage(app) as play:
        play.begin("spin", note={str(tmp_path / "cpu")!r}, deaf=True, child=True)
        play.begin("shell.run", command=["sh", "-c", "sleep 1000 & echo $$ $! > {tmp_path}/shell; wait"])
        await asyncio.Event().wait()

asyncio.run(main())
"""
    path = [item for item in sys.path if item]
    command = [sys.executable, "-c", f"import sys; sys.path[:] = {path!r}\n{script}"]
    worker = await asyncio.create_subprocess_exec(*command)
    pids = [*await pids_in(tmp_path / "cpu", 2), *await pids_in(tmp_path / "shell", 2)]
    worker.kill()
    await worker.wait()
    await until(lambda: all(gone(pid) for pid in pids))


async def test_a_script_can_have_cpu_tasks(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("""
import asyncio
from tests.execution.executing import stage
from horae import Horae

app = Horae()

@app.task(cpu=True)
def double(number: int) -> int:
    return 2 * number

async def main() -> None:
    async with stage(app) as play:
        print(await play.result("script.double", number=21))

if __name__ == "__main__":
    asyncio.run(main())
""")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(item for item in sys.path if item)}
    process = await asyncio.create_subprocess_exec(sys.executable, script, env=env, stdout=subprocess.PIPE)
    output, _ = await asyncio.wait_for(process.communicate(), 20)
    assert output.decode().strip() == "Success(result='42')"
