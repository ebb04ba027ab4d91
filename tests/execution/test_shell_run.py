"""`shell.run`: programs in a clean environment, gone when the attempt is."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import psutil  # type: ignore[import-untyped]
import pytest
import uvloop

from horae.core.decisions.results import Failure
from horae.core.model import Outcome
from horae.engine.execution.outcome import AttemptResult, Stopped, Success
from tests.execution.executing import GRACE, Stage, gone, pids_in, stage, until


@pytest.fixture
async def play() -> AsyncIterator[Stage]:
    async with stage() as play:
        yield play


def returned(result: AttemptResult) -> Any:
    assert isinstance(result, Success), result
    assert result.result is not None
    return msgspec.json.decode(result.result)


def failure(result: AttemptResult) -> Failure:
    assert isinstance(result, Failure), result
    return result


async def test_a_program_runs_and_its_output_is_kept(play: Stage) -> None:
    attempt = play.begin("shell.run", command=["sh", "-c", "echo one; echo two >&2; printf three"])
    assert returned(await attempt.result()) == {"exit_code": 0, "output": "one\ntwo\nthree"}
    log = await play.log(attempt, "three")
    assert [line.split(" ", 2)[1:] for line in log.splitlines()] == [["OUT", "one"], ["OUT", "two"], ["OUT", "three"]]


async def test_no_shell_reads_the_arguments(play: Stage, tmp_path: Path) -> None:
    nasty = ["$(touch x)", "`id`", "; exit 1", "a b", "*", "\\", "'", '"', "\n", "&& true", "é"]
    result = returned(await play.result("shell.run", command=["printf", "%s|", *nasty], cwd=str(tmp_path)))
    assert result["output"] == "".join(f"{item}|" for item in nasty)
    assert os.listdir(tmp_path) == []


async def test_the_environment_is_clean_and_names_the_run(play: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "secret")
    attempt = play.begin("shell.run", command=["env"], env={"GREETING": "hi", "HORAE_FENCE": "0"}, attempt=2)
    lines = returned(await attempt.result())["output"].splitlines()
    env = dict(line.split("=", 1) for line in lines)
    assert env.pop("PATH")
    assert env.pop("HOME")
    assert env == {
        "LANG": os.environ.get("LANG", "C.UTF-8"),
        "TZ": os.environ.get("TZ", "UTC"),
        "GREETING": "hi",
        "HORAE_RUN_ID": f"run_{attempt.run.id}",
        "HORAE_JOB_ID": f"job_{attempt.run.id}",
        "HORAE_ATTEMPT": "2",
        "HORAE_DUE_AT": "2026-11-15T20:00:00Z",
        "HORAE_FENCE": "7",
    }


async def test_a_program_gets_its_input_and_its_directory(play: Stage, tmp_path: Path) -> None:
    result = returned(await play.result("shell.run", command=["sh", "-c", "pwd; cat"], stdin="in", cwd=str(tmp_path)))
    assert result["output"] == f"{tmp_path}\nin"
    assert returned(await play.result("shell.run", command=["cat"]))["output"] == ""
    assert returned(await play.result("shell.run", command=["true"], stdin="x" * 1_000_000))["exit_code"] == 0


def test_a_program_may_be_over_before_it_is_given_anything_to_read() -> None:
    """On the loop that a server has: it closes the pipe of a program that has exited at once."""

    async def run_many() -> list[AttemptResult]:
        async with stage() as play:
            attempts = [play.begin("shell.run", command=["true"], stdin="unread" * 100) for _ in range(40)]
            return [await attempt.result() for attempt in attempts]

    assert [returned(result)["exit_code"] for result in uvloop.run(run_many())] == [0] * 40


async def test_another_exit_code_is_a_failure_with_the_last_lines(play: Stage) -> None:
    result = failure(await play.result("shell.run", command=["sh", "-c", "seq 9; exit 3"]))
    assert (result.error.type, result.fatal) == ("ExitCode", False)
    assert result.error.message == "exit code 3: 5\n6\n7\n8\n9"
    killed = failure(await play.result("shell.run", command=["sh", "-c", "kill -9 $$"]))
    assert killed.error.message == "killed by signal 9"


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"command": ["/no/such/program"]}, "cannot run '/no/such/program': No such file or directory"),
        ({"command": ["true"], "cwd": "/no/such/directory"}, "there is no directory '/no/such/directory'"),
        ({"command": ["true", "a\0b"]}, "null byte"),
        ({"command": ["true"], "env": {"A=B": "c"}}, "cannot run 'true'"),
        ({"command": []}, "command"),
        ({"command": "true"}, "command"),
    ],
)
async def test_what_cannot_be_run_fails_for_good(play: Stage, params: dict[str, Any], reason: str) -> None:
    result = failure(await play.result("shell.run", **params))
    assert result.fatal
    assert reason in result.error.message


async def test_programs_are_refused_unless_the_worker_allows_them() -> None:
    async with stage(allow_shell=False) as play:
        result = failure(await play.result("shell.run", command=["true"]))
        assert result.fatal
        assert "HORAE_ALLOW_SHELL" in result.error.message


async def test_a_program_that_is_only_just_starting_is_ended_too(play: Stage) -> None:
    for rounds in range(10):
        attempt = play.begin("shell.run", command=["sleep", "1000"])
        for _ in range(rounds):
            await asyncio.sleep(0)
        attempt.running.stop()
        assert await attempt.result() == Stopped()
        await until(lambda: not play.executor._groups._live and not play.executor._groups._starting)


@pytest.mark.parametrize("timeout", [None, 0.3])
async def test_a_program_and_its_children_end_with_the_attempt(
    play: Stage, tmp_path: Path, timeout: float | None
) -> None:
    command = ["sh", "-c", f"sleep 1000 & echo $$ $! > {tmp_path}/note; wait"]
    attempt = play.begin("shell.run", command=command, timeout=timeout)
    pids = await pids_in(tmp_path / "note", 2)
    if timeout is None:
        attempt.running.stop()
    result = await attempt.result()
    assert result == Stopped() if timeout is None else failure(result).outcome is Outcome.TIMEOUT
    await until(lambda: all(gone(pid) for pid in pids))


async def test_a_deaf_program_is_killed_after_the_grace(play: Stage, tmp_path: Path) -> None:
    command = ["sh", "-c", f"trap '' TERM; read go; echo $$ > {tmp_path}/note; while :; do sleep 0.01; done"]
    attempt = play.begin("shell.run", command=command, stdin="go\n")
    [pid] = await pids_in(tmp_path / "note", 1)
    began = time.monotonic()
    attempt.running.stop()
    assert await attempt.result() == Stopped()
    assert GRACE <= time.monotonic() - began < GRACE + 1
    await until(lambda: gone(pid))
    assert play.executor.abandoned == 0


async def test_kill_does_not_wait_for_the_grace(tmp_path: Path) -> None:
    async with stage(grace=30) as play:
        command = ["sh", "-c", f"trap '' TERM; echo $$ > {tmp_path}/note; while :; do sleep 0.01; done"]
        attempt = play.begin("shell.run", command=command)
        [pid] = await pids_in(tmp_path / "note", 1)
        attempt.running.kill()
        assert attempt.results == [Stopped()]
        await until(lambda: gone(pid))


async def test_what_a_program_leaves_behind_is_killed(play: Stage, tmp_path: Path) -> None:
    command = ["sh", "-c", f"sleep 1000 & echo $! > {tmp_path}/note"]
    assert returned(await play.result("shell.run", command=command))["exit_code"] == 0
    [pid] = await pids_in(tmp_path / "note", 1)
    await until(lambda: gone(pid))


async def test_a_daemon_that_left_the_group_does_not_hold_the_attempt(play: Stage, tmp_path: Path) -> None:
    command = ["sh", "-c", f"setsid sh -c 'echo $$ > {tmp_path}/note; exec sleep 5' & sleep 0.2; echo done"]
    began = time.monotonic()
    assert returned(await play.result("shell.run", command=command))["output"] == "done\n"
    assert time.monotonic() - began < 3
    [pid] = await pids_in(tmp_path / "note", 1)
    os.kill(pid, 9)


async def test_a_flood_is_cut_and_neither_fills_memory_nor_holds_the_loop(play: Stage) -> None:
    memory = psutil.Process().memory_info().rss
    attempt = play.begin("shell.run", command=["yes"])
    longest, began = 0.0, time.monotonic()
    while time.monotonic() - began < 1:
        before = time.monotonic()
        await asyncio.sleep(0.001)
        longest = max(longest, time.monotonic() - before)
    attempt.running.stop()
    assert await attempt.result() == Stopped()
    assert (await play.log(attempt, "truncated")).count("truncated") == 1
    assert longest < 0.3
    assert psutil.Process().memory_info().rss - memory < 30_000_000


async def test_output_of_which_nothing_can_be_kept_does_not_keep_the_worker_busy(play: Stage) -> None:
    attempt = play.begin("shell.run", command=["cat", "/dev/zero"])
    await asyncio.sleep(0.3)
    busy, began = time.process_time(), time.monotonic()
    await asyncio.sleep(1)
    share = (time.process_time() - busy) / (time.monotonic() - began)
    attempt.running.stop()
    assert await attempt.result() == Stopped()
    assert share < 0.6


async def test_garbage_without_line_ends_is_kept_in_pieces(play: Stage) -> None:
    attempt = play.begin("shell.run", command=["head", "-c", "300000", "/dev/urandom"])
    result = returned(await attempt.result())
    assert len(result["output"]) <= 4096
    log = await play.log(attempt, "OUT")
    assert "\0" not in log
    assert "\x1b" not in log


async def test_a_reaper_that_was_killed_is_replaced(play: Stage, tmp_path: Path) -> None:
    first = play.begin("shell.run", command=["sh", "-c", f"echo $$ > {tmp_path}/first; exec sleep 1000"])
    await pids_in(tmp_path / "first", 1)
    await until(lambda: play.executor._groups._reaper)
    reaper = play.executor._groups._reaper
    assert reaper is not None
    reaper.kill()
    reaper.wait()
    assert returned(await play.result("shell.run", command=["true"]))["exit_code"] == 0
    assert play.executor._groups._reaper is not reaper
    first.running.stop()
    assert await first.result() == Stopped()
