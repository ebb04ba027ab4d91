"""What operators watch: queues, nodes, tasks, events, and all of it on one screen."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.cells import cell_len

from horae.cli.client import CommandClient
from horae.cli.commands.watch import top
from horae.cli.commands.watch.frame import frame
from horae.cli.commands.watch.snapshot import SAMPLE, Pace, Snapshot, pace_of
from horae.client import Problem, RateLimited
from tests.cli.commands import JsonOf, RunCommand, until
from tests.live import HORAE, Live, environment, free_port, live_horae

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
ROWS, COLUMNS = 24, 80


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """One of its own, because `horae top` shows all that there is."""
    with live_horae(tmp_path_factory.mktemp("watch"), "dev", "--no-demo") as live:
        yield live


@pytest.fixture(autouse=True)
def _interruptible() -> Iterator[None]:
    """Let commands be interrupted also where the tests run in the background, which ignores Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def queue_named(json_of: JsonOf, name: str) -> Any:
    [found] = [queue for queue in json_of("queues")["items"] if queue["name"] == name]
    return found


# --- queues


def test_a_queue_is_paused_limited_and_resumed(command: RunCommand, json_of: JsonOf) -> None:
    paused = command("queues", "pause", "slow")
    assert paused.returncode == 0
    assert paused.stdout.splitlines()[:2] == ["queue    slow", "state    paused"]
    json_of("jobs", "create", "demo.echo", "--queue", "slow")
    waiting = queue_named(json_of, "slow")
    assert (waiting["depth"], waiting["paused"]) == (1, True)
    assert json_of("queues", "set", "slow", "--concurrency", "3")["concurrency"] == 3
    lines = command("queues", COLUMNS="80").stdout.splitlines()
    assert lines[0].split() == ["QUEUE", "WAITING", "OLDEST", "RUNNING", "LIMIT", "LATE", "P99", "STATE"]
    [shown] = [line.split() for line in lines if line.startswith("slow ")]
    assert (shown[1], shown[-3:]) == ("1", ["3", "–", "paused"])
    assert all(cell_len(line) <= 80 for line in lines)
    assert json_of("queues", "set", "slow", "--concurrency", "none", "--paused", "no")["concurrency"] is None
    assert json_of("queues", "resume", "slow")["paused"] is False
    assert command("queues", "ls").stdout.startswith("QUEUE ")


def test_queues_come_in_pages(command: RunCommand, json_of: JsonOf) -> None:
    for name in ("a-first", "a-second"):
        json_of("queues", "set", name, "--concurrency", "9")
    first = command("queues", "ls", "--limit", "1")
    assert first.stdout.splitlines()[1].startswith("a-first ")
    option, cursor = first.stderr.split()[-2:]
    assert command("queues", "ls", "--limit", "1", option, cursor).stdout.splitlines()[1].startswith("a-second ")


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (("set", "slow"), 2, "say what to change: --concurrency or --paused"),
        (("set", "slow", "--concurrency", "0"), 2, "must be a number from 1, or none"),
        (("set", "slow", "--concurrency", "9" * 5000), 2, "must be a number from 1, or none"),
        (("pause", "no such name"), 1, "there is no queue no such name"),
    ],
)
def test_a_wrong_change_of_a_queue_is_told(
    command: RunCommand, words: tuple[str, ...], code: int, complaint: str
) -> None:
    result = command("queues", *words)
    assert (result.returncode, result.stdout) == (code, "")
    assert complaint in result.stderr


# --- nodes and tasks


def test_workers_are_listed_with_their_slots_and_last_heartbeat(command: RunCommand, json_of: JsonOf) -> None:
    result = command("workers", COLUMNS="80")
    assert result.returncode == 0
    title, shown = result.stdout.splitlines()
    assert title.split()[:5] == ["HOST:PROCESS", "STATE", "SLOTS", "SEEN", "QUEUES"]
    [worker] = json_of("workers", "ls")["items"]
    assert re.search(rf"alive\s+\d+/{worker['concurrency']}\s+(now|\d+ s ago)\s+all", shown)
    assert worker["alive"] is True
    assert {*json_of("workers", "--all")["items"][0]["roles"]} == {"api", "planner", "worker"}


def test_tasks_are_listed_with_their_parameters(command: RunCommand, json_of: JsonOf) -> None:
    lines = command("tasks", COLUMNS="80").stdout.splitlines()
    assert lines[0].split() == ["TASK", "PARAMETERS"]
    assert [line.split(maxsplit=1)[1] for line in lines if line.startswith("demo.sleep ")] == ["seconds: number"]
    assert "demo.echo" in [task["name"] for task in json_of("tasks", "ls")["items"]]


# --- events


def test_what_happened_is_printed_and_ends(command: RunCommand, json_of: JsonOf) -> None:
    job = json_of("jobs", "create", "demo.fail", "--max-retries", "0", "--name", "noisy")["id"]
    until(lambda: json_of("jobs", "show", job)["status"] == "finished", "it has not failed")
    lines = command("events", "--job", job, COLUMNS="80").stdout.splitlines()
    assert [line.split()[1] for line in lines] == ["job.created", "run.failed"]
    assert all(cell_len(line) <= 80 for line in lines)
    assert "noisy" in lines[1]
    assert "DemoError: attempt 1 failed" in lines[1]
    [failed] = command("events", "--job", job, "--types", "run.*").stdout.splitlines()
    assert job.replace("job_", "run_") in failed, "a pipe has the ids"
    printed = command("events", "--job", "noisy", "--since", "10m", "-o", "json").stdout.splitlines()
    assert [json.loads(line)["type"] for line in printed] == ["job.created", "run.failed"]


def test_events_are_told_what_they_cannot_be_asked_for(command: RunCommand) -> None:
    for words, complaint in (
        (("--since", "3d"), "events are kept for 24 h"),
        (("--types", "run.broken"), "unknown event type 'run.broken'"),
    ):
        result = command("events", *words)
        assert result.returncode == 1
        assert complaint in result.stderr


def test_what_happens_is_followed(server: Live, command: RunCommand, json_of: JsonOf) -> None:
    words = ("events", "-f", "--since", "1m", "--types", "run.succeeded", "-o", "json")
    with subprocess.Popen([HORAE, *words], env=server.environment, stdout=subprocess.PIPE, text=True) as follower:
        try:
            job = json_of("jobs", "create", "demo.echo", "--name", "followed")["id"]
            assert follower.stdout is not None
            assert any(json.loads(line)["job_id"] == job for line in follower.stdout)
            follower.send_signal(signal.SIGINT)
            assert follower.wait(20) == 130
        finally:
            follower.kill()


# --- top


def test_one_frame_is_printed_where_no_terminal_is(command: RunCommand, json_of: JsonOf) -> None:
    json_of("jobs", "create", "demo.fail", "--max-retries", "0", "--name", "in the frame")
    json_of("jobs", "create", "demo.sleep", "--param", "seconds=60", "--name", "sleeper")
    until(lambda: bool(json_of("runs", "ls", "--status", "running")["items"]), "it does not run")
    until(lambda: "in the frame" in command("dlq", "ls").stdout, "it has not failed")
    for words in (("top",), ("top", "--once")):
        lines = command(*words, COLUMNS="80", LINES="40").stdout.splitlines()
        assert lines[0].startswith("horae top  ")
        assert re.match(r"runs     \d+\.\d/s due, \d+\.\d/s succeeded, \d+\.\d/s failed; late p50 ", lines[1])
        assert re.match(r"workers  1 alive, \d+ of \d+ slots used", lines[2])
        assert all(cell_len(line) <= 80 for line in lines)
        shown = "\n".join(lines)
        assert re.search(r"^QUEUE +WAITING", shown, re.MULTILINE)
        assert re.search(r"^run_\w+ +sleeper ", shown, re.MULTILINE)
        assert re.search(r"^run_\w+ +in the frame +DemoError: attempt 1 failed", shown, re.MULTILINE)


@contextmanager
def terminal(*words: str, url: str) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """A command in a terminal of 80 columns, and the terminal's other end."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    kept = {name: value for name, value in environment().items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    process = subprocess.Popen(
        [HORAE, *words],
        env=kept | {"HORAE_URL": url, "TERM": "xterm-256color"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield process, ours
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(ours)


def shown_until(process: "subprocess.Popen[bytes]", end: int, wanted: bytes) -> bytes:
    """What the terminal has got when something wanted appears."""
    printed, deadline = b"", time.monotonic() + 20
    while wanted not in printed:
        assert time.monotonic() < deadline, printed
        assert process.poll() is None, printed
        if select.select([end], [], [], 0.1)[0]:
            printed += os.read(end, 65536)
    return printed


def drained(process: "subprocess.Popen[bytes]", end: int) -> bytes:
    """Everything until the command has ended."""
    printed, deadline = b"", time.monotonic() + 20
    while process.poll() is None or select.select([end], [], [], 0)[0]:
        assert time.monotonic() < deadline, printed
        if select.select([end], [], [], 0.1)[0]:
            try:
                printed += os.read(end, 65536)
            except OSError:  # the other end is closed
                break
    return printed


@pytest.mark.parametrize("leave", ["q", "Ctrl-C"])
def test_the_screen_is_drawn_again_and_again_until_one_leaves(server: Live, leave: str) -> None:
    with terminal("top", "--every", "0.2", url=server.url) as (process, end):
        first = shown_until(process, end, b"q leaves")
        assert b"\x1b[?1049h" in first, "it takes the whole screen"
        assert b"workers" in first
        shown_until(process, end, b"q leaves")
        if leave == "q":
            os.write(end, b"q")
        else:
            process.send_signal(signal.SIGINT)
        rest = drained(process, end)
        assert process.wait(20) == 0
        assert b"\x1b[?1049l" in rest, "and gives it back"


def test_a_server_that_is_gone_is_told_on_the_screen() -> None:
    with terminal("top", url=f"http://127.0.0.1:{free_port()}") as (process, end):
        assert b"cannot reach Horae" in shown_until(process, end, b"q leaves")
        os.write(end, b"q")
        drained(process, end)
        assert process.wait(20) == 0


def test_a_server_that_refuses_for_a_moment_does_not_end_the_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(client: object, owner: object) -> Snapshot:
        raise RateLimited(Problem(status=429, detail="64 lists wait, as many as one owner may have"))

    monkeypatch.setattr(top, "read_snapshot", refuse)
    with CommandClient() as client:
        [line] = top._lines_or_reason(client, None, COLUMNS, ROWS)
    assert line.plain == "64 lists wait, as many as one owner may have; trying again"


def run_of(seconds_ago: float, status: str = "succeeded", late: float | None = 1.0, **more: Any) -> dict[str, Any]:
    due_at = (NOW - timedelta(seconds=seconds_ago)).isoformat()
    return {"due_at": due_at, "status": status, "lateness_ms": late, **more}


def test_the_pace_is_that_of_the_last_minute() -> None:
    latest = [run_of(1, "running"), run_of(2), run_of(3, "failed", 9.0), run_of(59), run_of(61), run_of(300)]
    pace = pace_of(latest, NOW)
    assert (pace.due * 60, pace.succeeded * 60, pace.failed * 60) == pytest.approx((4, 2, 1))
    assert (pace.lateness_p50_ms, pace.lateness_p99_ms) == (1.0, 9.0)
    assert pace_of([], NOW).due == 0


def test_the_pace_of_many_runs_is_that_of_the_time_they_took() -> None:
    pace = pace_of([run_of(place / 100) for place in range(SAMPLE)], NOW)
    assert pace.due == pytest.approx(100, rel=0.02)


def test_a_frame_fits_its_screen_whatever_there_is() -> None:
    queues = [
        {
            "name": f"queue-{n}",
            "depth": n,
            "oldest_age_seconds": 5.0,
            "running": 1,
            "concurrency": None,
            "lateness_p99_ms": 3.0,
            "paused": False,
        }
        for n in range(100)
    ]
    run = {"id": "run_" + "0" * 32, "name": None, "key": None, "task": "a.task", "started_at": None, "progress": 0.5}
    run |= {"attempt": 1, "queue": "q", "due_at": NOW.isoformat(), "status": "failed", "error": None, "reason": None}
    pace = Pace(window=timedelta(minutes=1), due=1, succeeded=1, failed=0, lateness_p50_ms=None, lateness_p99_ms=None)
    snapshot = Snapshot(at=NOW, queues=queues, workers=[], running=[run] * 50, failed=[run] * 10, pace=pace)
    for width, height in ((80, 24), (40, 10), (200, 100)):
        lines = frame(snapshot, url="http://horae.example", width=width, height=height)
        assert len(lines) <= height
        assert all(line.cell_len <= width for line in lines)
    titles = [line.plain.split()[0] for line in frame(snapshot, url="", width=80, height=24) if line.plain]
    assert [title for title in titles if title in ("QUEUE", "RUNNING", "FAILED")] == ["QUEUE", "RUNNING", "FAILED"]
    nothing = Snapshot(at=NOW, queues=[], workers=[], running=[], failed=[], pace=pace)
    assert frame(nothing, url="", width=80, height=24)[-1].plain == "nothing waits, runs or has failed"
