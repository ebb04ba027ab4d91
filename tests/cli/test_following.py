"""Whoever waits is told why, and how the last attempt failed."""

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from horae.cli import following
from horae.cli.following import ASK_AFTER_SECONDS, Steps
from horae.client import Client
from tests.cli.test_cli import RunCommand
from tests.live import Live

JsonOf = Callable[..., Any]


def after(seconds: float, act: Callable[[], object]) -> threading.Timer:
    timer = threading.Timer(seconds, act)
    timer.start()
    return timer


def test_a_run_that_waits_says_why(server: Live, command: RunCommand) -> None:
    command("queues", "pause", "held")
    command("jobs", "create", "demo.echo", "--name", "held", "--queue", "held", "--schedule", "@daily")
    with Client(server.url) as client:
        timer = after(ASK_AFTER_SECONDS + 1.5, lambda: client.queues.resume("held"))
        result = command("run", "held", "--follow")
        timer.join()
    assert result.returncode == 0
    steps = [line.partition(" ")[2] for line in result.stderr.splitlines()]
    assert "waits: the queue held is paused; an administrator can resume it" in steps
    assert steps[-1].startswith("succeeded")
    assert len(steps) == len(set(steps)), "nothing is said twice"


def test_a_run_that_is_retried_tells_the_error_of_its_last_attempt(command: RunCommand) -> None:
    words = ("demo.fail", "--name", "flaky", "--schedule", "@daily", "--param", "times=1", "--max-retries", "2")
    command("jobs", "create", *words)
    command("jobs", "edit", "flaky", "--set", "retry.initial_seconds=2", "--set", "retry.jitter=false")
    result = command("run", "flaky", "--follow", "-o", "json")
    assert json.loads(result.stdout)["status"] == "succeeded", "stdout is JSON alone"
    steps = [line.partition(" ")[2] for line in result.stderr.splitlines()]
    assert "retrying after attempt 1: DemoError: attempt 1 failed" in " ".join(steps)
    assert any(step.startswith("waits: attempt 1 failed with DemoError") for step in steps)


def test_a_log_that_is_followed_says_why_there_is_none_yet(server: Live, command: RunCommand, json_of: JsonOf) -> None:
    command("queues", "pause", "silent")
    run_id = json_of("jobs", "create", "demo.echo", "--param", "message=at last", "--queue", "silent")["id"]
    with Client(server.url) as client:
        timer = after(ASK_AFTER_SECONDS + 1.5, lambda: client.queues.resume("silent"))
        result = command("runs", "logs", run_id.replace("job_", "run_"), "--follow")
        timer.join()
    assert "at last" in result.stdout
    assert "waits: the queue silent is paused" in result.stderr


def test_a_backfill_that_is_followed_says_why_it_waits_and_what_failed(server: Live, command: RunCommand) -> None:
    command("queues", "pause", "past")
    words = ("demo.fail", "--name", "of the past", "--queue", "past", "--schedule", "0 * * * *", "--max-retries", "0")
    command("jobs", "create", *words)
    with Client(server.url) as client:
        when = ("--start", "2026-01-05", "--end", "2026-01-05 00:30")
        timer = after(3.0, lambda: client.queues.resume("past"))
        result = command("jobs", "backfill", "of the past", *when, "--follow")
        timer.join()
    assert result.returncode == 1
    assert "waits: the queue past is paused" in result.stderr
    assert "failed: DemoError: attempt 1 failed" in result.stderr
    assert result.stdout.splitlines()[-1].split() == ["ended", "1", "failed"]


def test_a_run_that_is_not_there_is_told_once(command: RunCommand) -> None:
    result = command("runs", "logs", "run_" + "0" * 32, "--follow")
    assert (result.returncode, result.stdout) == (1, "")
    [line] = result.stderr.splitlines()
    assert line.startswith("error: there is no run")


def test_a_log_that_breaks_off_is_told_in_a_sentence(command: RunCommand, capsys: pytest.CaptureFixture[str]) -> None:
    following._print_log("run_" + "0" * 32)
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("the log ends here: there is no run")


class Answers:
    """A client that explains every run in the same words, and counts how often."""

    def __init__(self) -> None:
        self.asked = 0

    def get(self, path: str) -> Any:
        self.asked += 1
        return {"reason": "workers_busy", "detail": "all workers are busy", "expected_at": None}


def test_reasons_are_asked_for_seldom_and_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    answers, now = Answers(), time.monotonic()
    clock = [now]
    steps = Steps(answers, clock=lambda: clock[0])  # type: ignore[arg-type]
    for _ in range(100):
        steps.show({"id": "run_1", "status": "queued", "attempt": 0})
        clock[0] += 0.1
    assert capsys.readouterr().err.splitlines() == ["run_1 queued", "run_1 waits: all workers are busy"]
    assert answers.asked <= 6
