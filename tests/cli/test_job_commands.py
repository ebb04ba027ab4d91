"""The command line on long and rare acts: dead letters, many jobs from a file, backfills, logs, the doctor."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from horae.cli.app import run
from tests.cli.test_cli import CommandResult, RunCommand, horae
from tests.live import Live, live_horae

pytestmark = pytest.mark.usefixtures("server")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live_horae(tmp_path_factory.mktemp("acts"), "dev", "--no-demo") as live:
        yield live


@pytest.fixture
def command(server: Live, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> RunCommand:
    monkeypatch.setenv("HORAE_URL", server.url)
    monkeypatch.chdir(server.folder)
    monkeypatch.delenv("COLUMNS", raising=False)  # so that tables come whole

    def command(*words: str) -> CommandResult:
        code = run(words)
        printed = capsys.readouterr()
        return CommandResult(returncode=code, stdout=printed.out, stderr=printed.err)

    return command


def json_of(command: RunCommand, *words: str) -> Any:
    return json.loads(command(*words, "-o", "json").stdout)


def until(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def given_dead_letters(command: RunCommand, queue: str, count: int) -> list[str]:
    """Failed runs in a queue of their own; their ids."""
    for _ in range(count):
        made = command("jobs", "create", "demo.fail", "--max-retries", "0", "--queue", queue)
        assert made.returncode == 0, made.stderr
    until(lambda: len(json_of(command, "dlq", "ls", "--queue", queue)["items"]) == count, "they have not failed yet")
    return [letter["id"] for letter in json_of(command, "dlq", "ls", "--queue", queue)["items"]]


def test_dead_letters_are_listed_grouped_and_shown(command: RunCommand) -> None:
    ids = given_dead_letters(command, "listed", 2)
    table = command("dlq", "ls", "--queue", "listed").stdout
    assert all(letter in table for letter in ids)
    assert "DemoError" in table
    [group] = json_of(command, "dlq", "ls", "--group", "--queue", "listed")["items"]
    assert (group["count"], group["task"], group["error"]["type"]) == (2, "demo.fail", "DemoError")
    assert command("dlq", "ls", "--group", "--queue", "listed").stdout.splitlines()[1].split()[:2] == ["2", "demo.fail"]
    assert "DemoError" in command("dlq", "show", ids[0]).stdout


def test_dead_letters_are_edited_and_requeued(command: RunCommand) -> None:
    [one, *_] = given_dead_letters(command, "requeued", 3)
    result = command("dlq", "requeue", "--queue", "requeued", "--param", "times=0")
    assert (result.returncode, result.stdout) == (0, "requeued  3 dead letters\n")
    assert json_of(command, "dlq", "ls", "--queue", "requeued")["items"] == []
    assert "replaced by run_" in command("runs", "show", one).stdout
    until(
        lambda: len(json_of(command, "runs", "ls", "--queue", "requeued", "--status", "succeeded")["items"]) == 3,
        "again",
    )


def test_dead_letters_are_discarded_by_id(command: RunCommand) -> None:
    one, other = given_dead_letters(command, "discarded", 2)
    assert command("dlq", "discard", one).stdout == "discarded  1 dead letter\n"
    assert [letter["id"] for letter in json_of(command, "dlq", "ls", "--queue", "discarded")["items"]] == [other]


@pytest.mark.parametrize("words", [(), ("--all", "--task", "demo.fail"), ("run_" + "0" * 32, "--all")])
def test_nobody_resolves_more_dead_letters_than_they_meant(command: RunCommand, words: tuple[str, ...]) -> None:
    result = command("dlq", "discard", *words)
    assert result.returncode == 2
    assert "select dead letters by" in result.stderr


def test_a_failed_run_is_tried_again_with_other_parameters(command: RunCommand) -> None:
    [letter] = given_dead_letters(command, "retried", 1)
    result = command("runs", "retry", letter, "--param", "times=0", "--follow")
    assert result.returncode == 0
    assert result.stderr.splitlines()[-1].endswith("succeeded: 1")
    again = command("runs", "retry", letter)
    assert again.returncode == 1
    assert "run_" in again.stderr


def test_why_a_run_does_not_start_is_told(command: RunCommand) -> None:
    job = json_of(command, "jobs", "create", "demo.echo", "--schedule", "2099-01-01T00:00:00Z")
    run_id = job["id"].replace("job_", "run_")
    assert json_of(command, "runs", "why", run_id)["reason"] == "not_due"
    assert "2099" in command("runs", "why", run_id).stdout


def test_a_log_is_followed_to_the_end_of_its_run(command: RunCommand) -> None:
    job = json_of(command, "jobs", "create", "demo.echo", "--param", "message=follow me")
    result = command("runs", "logs", job["id"].replace("job_", "run_"), "--follow")
    assert result.returncode == 0
    assert "follow me" in result.stdout


def test_many_jobs_come_from_a_file_and_each_refused_line_is_told(command: RunCommand, tmp_path: Path) -> None:
    file = tmp_path / "jobs.ndjson"
    good = '{"task": "demo.echo", "queue": "filed"}\n'
    file.write_text(good * 3 + '{"task": "demo.echo", "prio": 1}\n' + good)
    result = command("jobs", "create", "--file", str(file))
    assert result.returncode == 1
    assert result.stderr == "created 4 jobs, refused 1\n"
    assert result.stdout.splitlines()[1].split()[:2] == ["4", "/prio"]
    until(lambda: len(json_of(command, "runs", "ls", "--queue", "filed", "--status", "succeeded")["items"]) == 4, "ran")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--file", "missing.ndjson"), "missing.ndjson"),
        (("demo.echo", "--file", "jobs.ndjson"), "leave out TASK"),
        ((), "name the TASK"),
    ],
)
def test_a_file_of_jobs_that_cannot_be_is_refused(command: RunCommand, words: tuple[str, ...], complaint: str) -> None:
    result = command("jobs", "create", *words)
    assert result.returncode == 2
    assert complaint in result.stderr


def test_a_line_that_is_no_json_creates_nothing(command: RunCommand, tmp_path: Path) -> None:
    file = tmp_path / "jobs.ndjson"
    file.write_text('{"task": "demo.echo", "queue": "unread"}\n{"task":\n')
    result = command("jobs", "create", "--file", str(file))
    assert result.returncode == 2
    assert "line 2 is not JSON" in result.stderr
    assert json_of(command, "jobs", "ls", "--queue", "unread")["items"] == []


def test_a_secret_is_taken_from_a_file_and_never_shown(command: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hunter2hunter2\n")
    job = json_of(command, "jobs", "create", "demo.echo", "--secret", f"message=@{tmp_path / 'secret'}")
    assert "hunter2" not in json.dumps(job)
    run_id = job["id"].replace("job_", "run_")
    until(lambda: json_of(command, "runs", "show", run_id)["status"] == "succeeded", "it has not run")
    assert (
        "hunter2" not in command("runs", "show", run_id, "-o", "json").stdout + command("runs", "logs", run_id).stdout
    )


def test_a_backfill_is_followed_to_its_end(command: RunCommand) -> None:
    command("jobs", "create", "demo.echo", "--name", "past", "--schedule", "0 * * * *")
    range_ = ("--start", "2026-01-01T00:00:00Z", "--end", "2026-01-01T02:30:00Z")
    done = json_of(command, "jobs", "backfill", "past", *range_, "--follow")
    assert (done["runs"], done["ended"]) == (3, {"succeeded": 3})
    assert command("jobs", "backfill", "past", *range_).stdout.splitlines()[1].split() == ["runs", "3"]


def test_the_doctor_finds_a_healthy_node(command: RunCommand) -> None:
    report = json_of(command, "doctor")
    levels = {finding["check"]: finding["level"] for finding in report["findings"]}
    assert levels["store"] == levels["clock"] == levels["worker nodes"] == levels["server"] == "ok"
    assert {"setting": "HORAE_STORE", "value": "sqlite:///.horae/horae.db", "source": "default"} in report["settings"]
    assert command("doctor").returncode == 0


def test_the_doctor_says_what_to_do_and_hides_secrets(tmp_path: Path) -> None:
    secret = "not-long-enough"
    result = horae(
        "doctor",
        HORAE_STORE=f"sqlite:///{tmp_path}/none.db",
        HORAE_AUTH="jwt",
        HORAE_JWT_SECRET=secret,
        HORAE_URL="http://127.0.0.1:1",
        COLUMNS="300",
    )
    assert result.returncode == 1
    assert "does not exist yet; `horae dev` or `horae db migrate` creates it" in result.stdout
    assert "needs at least 32" in result.stdout
    assert "cannot reach Horae at http://127.0.0.1:1" in result.stdout
    assert "environment HORAE_AUTH" in result.stdout
    assert secret not in result.stdout + result.stderr
    assert not (tmp_path / "none.db").exists()


def test_usage_is_shown_as_a_table_and_as_json(command: RunCommand) -> None:
    table = command("usage").stdout
    assert [line.split()[0] for line in table.splitlines()] == ["RESOURCE", "waiting", "recurring", "queues", "stored"]
    usage = json_of(command, "usage", "--owner", "nobody")
    assert (usage["owner"], usage["waiting"]) == ("nobody", {"used": 0, "limit": None})
