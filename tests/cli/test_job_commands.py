"""The command line on long and rare acts: dead letters, many jobs from a file, backfills, logs, the doctor."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from horae.cli.app import run
from tests.cli.test_cli import Said, Say, horae
from tests.live import Live, live_horae

pytestmark = pytest.mark.usefixtures("server")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live_horae(tmp_path_factory.mktemp("acts"), "dev", "--no-demo") as live:
        yield live


@pytest.fixture
def say(server: Live, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Say:
    monkeypatch.setenv("HORAE_URL", server.url)
    monkeypatch.chdir(server.folder)
    monkeypatch.delenv("COLUMNS", raising=False)  # so that tables come whole

    def say(*words: str) -> Said:
        code = run(words)
        printed = capsys.readouterr()
        return Said(returncode=code, stdout=printed.out, stderr=printed.err)

    return say


def told(say: Say, *words: str) -> Any:
    return json.loads(say(*words, "-o", "json").stdout)


def until(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def given_dead_letters(say: Say, queue: str, count: int) -> list[str]:
    """Failed runs in a queue of their own; their ids."""
    for _ in range(count):
        made = say("jobs", "create", "demo.fail", "--max-retries", "0", "--queue", queue)
        assert made.returncode == 0, made.stderr
    until(lambda: len(told(say, "dlq", "ls", "--queue", queue)["items"]) == count, "they have not failed yet")
    return [letter["id"] for letter in told(say, "dlq", "ls", "--queue", queue)["items"]]


def test_dead_letters_are_listed_grouped_and_shown(say: Say) -> None:
    ids = given_dead_letters(say, "listed", 2)
    table = say("dlq", "ls", "--queue", "listed").stdout
    assert all(letter in table for letter in ids)
    assert "DemoError" in table
    [group] = told(say, "dlq", "ls", "--group", "--queue", "listed")["items"]
    assert (group["count"], group["task"], group["error"]["type"]) == (2, "demo.fail", "DemoError")
    assert say("dlq", "ls", "--group", "--queue", "listed").stdout.splitlines()[1].split()[:2] == ["2", "demo.fail"]
    assert "DemoError" in say("dlq", "show", ids[0]).stdout


def test_dead_letters_are_edited_and_requeued(say: Say) -> None:
    [one, *_] = given_dead_letters(say, "requeued", 3)
    said = say("dlq", "requeue", "--queue", "requeued", "--param", "times=0")
    assert (said.returncode, said.stdout) == (0, "requeued  3 dead letters\n")
    assert told(say, "dlq", "ls", "--queue", "requeued")["items"] == []
    assert "replaced by run_" in say("runs", "show", one).stdout
    until(lambda: len(told(say, "runs", "ls", "--queue", "requeued", "--status", "succeeded")["items"]) == 3, "again")


def test_dead_letters_are_discarded_by_id(say: Say) -> None:
    one, other = given_dead_letters(say, "discarded", 2)
    assert say("dlq", "discard", one).stdout == "discarded  1 dead letters\n"
    assert [letter["id"] for letter in told(say, "dlq", "ls", "--queue", "discarded")["items"]] == [other]


@pytest.mark.parametrize("words", [(), ("--all", "--task", "demo.fail"), ("run_" + "0" * 32, "--all")])
def test_nobody_resolves_more_dead_letters_than_they_meant(say: Say, words: tuple[str, ...]) -> None:
    said = say("dlq", "discard", *words)
    assert said.returncode == 2
    assert "select dead letters by" in said.stderr


def test_a_failed_run_is_tried_again_with_other_parameters(say: Say) -> None:
    [letter] = given_dead_letters(say, "retried", 1)
    said = say("runs", "retry", letter, "--param", "times=0", "--follow")
    assert said.returncode == 0
    assert said.stderr.splitlines()[-1].endswith("succeeded: 1")
    again = say("runs", "retry", letter)
    assert again.returncode == 1
    assert "run_" in again.stderr


def test_why_a_run_does_not_start_is_told(say: Say) -> None:
    job = told(say, "jobs", "create", "demo.echo", "--schedule", "2099-01-01T00:00:00Z")
    run_id = job["id"].replace("job_", "run_")
    assert told(say, "runs", "why", run_id)["reason"] == "not_due"
    assert "2099" in say("runs", "why", run_id).stdout


def test_a_log_is_followed_to_the_end_of_its_run(say: Say) -> None:
    job = told(say, "jobs", "create", "demo.echo", "--param", "message=follow me")
    said = say("runs", "logs", job["id"].replace("job_", "run_"), "--follow")
    assert said.returncode == 0
    assert "follow me" in said.stdout


def test_many_jobs_come_from_a_file_and_each_refused_line_is_told(say: Say, tmp_path: Path) -> None:
    file = tmp_path / "jobs.ndjson"
    good = '{"task": "demo.echo", "queue": "filed"}\n'
    file.write_text(good * 3 + '{"task": "demo.echo", "prio": 1}\n' + good)
    said = say("jobs", "create", "--file", str(file))
    assert said.returncode == 1
    assert said.stderr == "created 4 jobs, refused 1\n"
    assert said.stdout.splitlines()[1].split()[:2] == ["4", "/prio"]
    until(lambda: len(told(say, "runs", "ls", "--queue", "filed", "--status", "succeeded")["items"]) == 4, "ran")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--file", "missing.ndjson"), "missing.ndjson"),
        (("demo.echo", "--file", "jobs.ndjson"), "leave out TASK"),
        ((), "name the TASK"),
    ],
)
def test_a_file_of_jobs_that_cannot_be_is_refused(say: Say, words: tuple[str, ...], complaint: str) -> None:
    said = say("jobs", "create", *words)
    assert said.returncode == 2
    assert complaint in said.stderr


def test_a_line_that_is_no_json_creates_nothing(say: Say, tmp_path: Path) -> None:
    file = tmp_path / "jobs.ndjson"
    file.write_text('{"task": "demo.echo", "queue": "unread"}\n{"task":\n')
    said = say("jobs", "create", "--file", str(file))
    assert said.returncode == 2
    assert "line 2 is not JSON" in said.stderr
    assert told(say, "jobs", "ls", "--queue", "unread")["items"] == []


def test_a_secret_is_taken_from_a_file_and_never_shown(say: Say, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hunter2hunter2\n")
    job = told(say, "jobs", "create", "demo.echo", "--secret", f"message=@{tmp_path / 'secret'}")
    assert "hunter2" not in json.dumps(job)
    run_id = job["id"].replace("job_", "run_")
    until(lambda: told(say, "runs", "show", run_id)["status"] == "succeeded", "it has not run")
    assert "hunter2" not in say("runs", "show", run_id, "-o", "json").stdout + say("runs", "logs", run_id).stdout


def test_a_backfill_is_followed_to_its_end(say: Say) -> None:
    say("jobs", "create", "demo.echo", "--name", "past", "--schedule", "0 * * * *")
    range_ = ("--start", "2026-01-01T00:00:00Z", "--end", "2026-01-01T02:30:00Z")
    done = told(say, "jobs", "backfill", "past", *range_, "--follow")
    assert (done["runs"], done["ended"]) == (3, {"succeeded": 3})
    assert say("jobs", "backfill", "past", *range_).stdout.splitlines()[1].split() == ["runs", "3"]


def test_the_doctor_finds_a_healthy_node(say: Say) -> None:
    report = told(say, "doctor")
    levels = {finding["check"]: finding["level"] for finding in report["findings"]}
    assert levels["store"] == levels["clock"] == levels["worker nodes"] == levels["server"] == "ok"
    assert {"setting": "HORAE_STORE", "value": "sqlite:///.horae/horae.db", "source": "default"} in report["settings"]
    assert say("doctor").returncode == 0


def test_the_doctor_says_what_to_do_and_hides_secrets(tmp_path: Path) -> None:
    secret = "not-long-enough"
    said = horae(
        "doctor",
        HORAE_STORE=f"sqlite:///{tmp_path}/none.db",
        HORAE_AUTH="jwt",
        HORAE_JWT_SECRET=secret,
        HORAE_URL="http://127.0.0.1:1",
        COLUMNS="300",
    )
    assert said.returncode == 1
    assert "does not exist yet; `horae dev` or `horae db migrate` creates it" in said.stdout
    assert "needs at least 32" in said.stdout
    assert "cannot reach Horae at http://127.0.0.1:1" in said.stdout
    assert "environment HORAE_AUTH" in said.stdout
    assert secret not in said.stdout + said.stderr
    assert not (tmp_path / "none.db").exists()
