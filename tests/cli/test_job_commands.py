"""The command line on long and rare acts: dead letters, many jobs from a file, backfills, logs, the doctor."""

import json
from pathlib import Path

import pytest

from tests.cli.commands import JsonOf, RunCommand, given_dead_letters, until


def test_dead_letters_are_listed_grouped_and_shown(command: RunCommand, json_of: JsonOf) -> None:
    ids = given_dead_letters(json_of, "listed", 2)
    table = command("dlq", "ls", "--queue", "listed").stdout
    assert all(letter in table for letter in ids)
    assert "DemoError" in table
    [group] = json_of("dlq", "ls", "--group", "--queue", "listed")["items"]
    assert (group["count"], group["task"], group["error"]["type"]) == (2, "demo.fail", "DemoError")
    assert command("dlq", "ls", "--group", "--queue", "listed").stdout.splitlines()[1].split()[:2] == ["2", "demo.fail"]
    assert "DemoError" in command("dlq", "show", ids[0]).stdout


def test_dead_letters_are_edited_and_requeued(command: RunCommand, json_of: JsonOf) -> None:
    [one, *_] = given_dead_letters(json_of, "requeued", 3)
    result = command("dlq", "requeue", "--queue", "requeued", "--param", "times=0")
    assert (result.returncode, result.stdout) == (0, "requeued  3 dead letters\n")
    assert json_of("dlq", "ls", "--queue", "requeued")["items"] == []
    assert "replaced by run_" in command("runs", "show", one).stdout
    until(
        lambda: len(json_of("runs", "ls", "--queue", "requeued", "--status", "succeeded")["items"]) == 3,
        "again",
    )


def test_dead_letters_are_discarded_by_id(command: RunCommand, json_of: JsonOf) -> None:
    one, other = given_dead_letters(json_of, "discarded", 2)
    assert command("dlq", "discard", one).stdout == "discarded  1 dead letter\n"
    assert [letter["id"] for letter in json_of("dlq", "ls", "--queue", "discarded")["items"]] == [other]


@pytest.mark.parametrize("words", [(), ("--all", "--task", "demo.fail"), ("run_" + "0" * 32, "--all")])
def test_nobody_resolves_more_dead_letters_than_they_meant(command: RunCommand, words: tuple[str, ...]) -> None:
    result = command("dlq", "discard", *words)
    assert result.returncode == 2
    assert "select dead letters by" in result.stderr


def test_a_failed_run_is_tried_again_with_other_parameters(command: RunCommand, json_of: JsonOf) -> None:
    [letter] = given_dead_letters(json_of, "retried", 1)
    result = command("runs", "retry", letter, "--param", "times=0", "--follow")
    assert result.returncode == 0
    assert result.stderr.splitlines()[-1].endswith("succeeded: 1")
    again = command("runs", "retry", letter)
    assert again.returncode == 1
    assert "run_" in again.stderr


def test_why_a_run_does_not_start_is_told(command: RunCommand, json_of: JsonOf) -> None:
    job = json_of("jobs", "create", "demo.echo", "--schedule", "2099-01-01T00:00:00Z")
    run_id = job["id"].replace("job_", "run_")
    assert json_of("runs", "why", run_id)["reason"] == "not_due"
    assert "2099" in command("runs", "why", run_id).stdout


def test_a_log_is_followed_to_the_end_of_its_run(command: RunCommand, json_of: JsonOf) -> None:
    job = json_of("jobs", "create", "demo.echo", "--param", "message=follow me")
    result = command("runs", "logs", job["id"].replace("job_", "run_"), "--follow")
    assert result.returncode == 0
    assert "follow me" in result.stdout


def test_many_jobs_come_from_a_file_and_each_refused_line_is_told(
    command: RunCommand, json_of: JsonOf, tmp_path: Path
) -> None:
    file = tmp_path / "jobs.ndjson"
    good = '{"task": "demo.echo", "queue": "filed"}\n'
    file.write_text(good * 3 + '{"task": "demo.echo", "prio": 1}\n' + good)
    result = command("jobs", "create", "--file", str(file))
    assert result.returncode == 1
    assert result.stderr == "created 4 jobs, refused 1\n"
    assert result.stdout.splitlines()[1].split()[:2] == ["4", "/prio"]
    until(lambda: len(json_of("runs", "ls", "--queue", "filed", "--status", "succeeded")["items"]) == 4, "ran")


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


def test_a_line_that_is_no_json_creates_nothing(command: RunCommand, json_of: JsonOf, tmp_path: Path) -> None:
    file = tmp_path / "jobs.ndjson"
    file.write_text('{"task": "demo.echo", "queue": "unread"}\n{"task":\n')
    result = command("jobs", "create", "--file", str(file))
    assert result.returncode == 2
    assert "line 2 is not JSON" in result.stderr
    assert json_of("jobs", "ls", "--queue", "unread")["items"] == []


def test_a_secret_is_taken_from_a_file_and_never_shown(command: RunCommand, json_of: JsonOf, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hunter2hunter2\n")
    job = json_of("jobs", "create", "demo.echo", "--secret", f"message=@{tmp_path / 'secret'}")
    assert "hunter2" not in json.dumps(job)
    run_id = job["id"].replace("job_", "run_")
    until(lambda: json_of("runs", "show", run_id)["status"] == "succeeded", "it has not run")
    assert (
        "hunter2" not in command("runs", "show", run_id, "-o", "json").stdout + command("runs", "logs", run_id).stdout
    )


def test_a_backfill_is_followed_to_its_end(command: RunCommand, json_of: JsonOf) -> None:
    command("jobs", "create", "demo.echo", "--name", "past", "--schedule", "0 * * * *")
    range_ = ("--start", "2026-01-01T00:00:00Z", "--end", "2026-01-01T02:30:00Z")
    done = json_of("jobs", "backfill", "past", *range_, "--follow")
    assert (done["runs"], done["ended"]) == (3, {"succeeded": 3})
    assert command("jobs", "backfill", "past", *range_).stdout.splitlines()[1].split() == ["runs", "3"]


def test_the_doctor_finds_a_healthy_node(command: RunCommand, json_of: JsonOf) -> None:
    report = json_of("doctor")
    levels = {finding["check"]: finding["level"] for finding in report["findings"]}
    assert levels["store"] == levels["clock"] == levels["worker nodes"] == levels["server"] == "ok"
    assert {"setting": "HORAE_STORE", "value": "sqlite:///.horae/horae.db", "source": "default"} in report["settings"]
    assert command("doctor").returncode == 0


def test_the_doctor_says_what_to_do_and_hides_secrets(alone: RunCommand, tmp_path: Path) -> None:
    secret = "not-long-enough"
    result = alone(
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


def test_usage_is_shown_as_a_table_and_as_json(command: RunCommand, json_of: JsonOf) -> None:
    table = command("usage").stdout
    assert [line.split()[0] for line in table.splitlines()] == ["RESOURCE", "waiting", "recurring", "queues", "stored"]
    usage = json_of("usage", "--owner", "nobody")
    assert (usage["owner"], usage["waiting"]) == ("nobody", {"used": 0, "limit": None})
