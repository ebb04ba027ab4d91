"""Whoever waits is told why, and how the last attempt failed."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from horae.cli import following
from horae.cli.commands import backfill
from horae.cli.following import Steps
from horae.client import Client
from tests.cli.commands import JsonOf, RunCommand
from tests.live import Live


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look often, and ask for reasons without patience."""
    monkeypatch.setattr(following, "ASK_AFTER_SECONDS", 0.0)
    monkeypatch.setattr(following, "ASK_EVERY_SECONDS", 0.1)
    monkeypatch.setattr(following, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(backfill, "POLL_SECONDS", 0.05)


@pytest.fixture
def paused(
    server: Live, command: RunCommand, impatient: None, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], None]:
    """Pause a queue until whoever waits was told of it."""

    def pause(queue: str) -> None:
        command("queues", "pause", queue)
        explain = Steps.explain

        def explain_and_resume(steps: Steps, run_id: str) -> None:
            explain(steps, run_id)
            if "is paused" in steps._reason:
                with Client(server.url) as client:
                    client.queues.resume(queue)

        monkeypatch.setattr(Steps, "explain", explain_and_resume)

    return pause


def test_a_run_that_waits_says_why(command: RunCommand, paused: Callable[[str], None]) -> None:
    paused("held")
    command("jobs", "create", "demo.echo", "--name", "held", "--queue", "held", "--schedule", "@daily")
    result = command("run", "held", "--follow")
    assert result.returncode == 0
    steps = [line.partition(" ")[2] for line in result.stderr.splitlines()]
    assert "waits: the queue held is paused; an administrator can resume it" in steps
    assert steps[-1].startswith("succeeded")
    assert len(steps) == len(set(steps)), "nothing is said twice"


@pytest.mark.usefixtures("impatient")
def test_a_run_that_is_retried_tells_the_error_of_its_last_attempt(command: RunCommand) -> None:
    words = ("demo.fail", "--name", "flaky", "--schedule", "@daily", "--param", "times=1", "--max-retries", "2")
    command("jobs", "create", *words)
    command("jobs", "edit", "flaky", "--set", "retry.initial_seconds=1", "--set", "retry.jitter=false")
    result = command("run", "flaky", "--follow", "-o", "json")
    assert json.loads(result.stdout)["status"] == "succeeded", "stdout is JSON alone"
    steps = [line.partition(" ")[2] for line in result.stderr.splitlines()]
    assert "retrying after attempt 1: DemoError: attempt 1 failed" in " ".join(steps)
    assert any(step.startswith("waits: attempt 1 failed with DemoError") for step in steps)


def test_a_log_that_is_followed_says_why_there_is_none_yet(
    command: RunCommand, json_of: JsonOf, paused: Callable[[str], None]
) -> None:
    paused("silent")
    run_id = json_of("jobs", "create", "demo.echo", "--param", "message=at last", "--queue", "silent")["id"]
    result = command("runs", "logs", run_id.replace("job_", "run_"), "--follow")
    assert "at last" in result.stdout
    assert "waits: the queue silent is paused" in result.stderr


def test_a_backfill_that_is_followed_says_why_it_waits_and_what_failed(
    command: RunCommand, paused: Callable[[str], None]
) -> None:
    paused("past")
    words = ("demo.fail", "--name", "of the past", "--queue", "past", "--schedule", "0 * * * *", "--max-retries", "0")
    command("jobs", "create", *words)
    when = ("--start", "2026-01-05", "--end", "2026-01-05 00:30")
    result = command("jobs", "backfill", "of the past", *when, "--follow")
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
