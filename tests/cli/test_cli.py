"""The command line: what it prints, what it refuses, and its exit codes; the client commands against a real server."""

import json
import re
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from horae.cli import arguments, output
from horae.cli.app import COMMANDS, run
from horae.core.errors import Malformed
from tests.cli.commands import RunCommand, horae
from tests.live import HORAE, environment, free_port

HEAVY = (
    "httpx2",
    "starlette",
    "uvicorn",
    "asyncpg",
    "structlog",
    "msgspec",
    "horae.runtime.launch",
    "horae.runtime.wiring",
    "horae.core.schedule.evaluate",
    "horae.core.schedule.parse",
)


# --- without a server -----------------------------------------------------------------------------------------------


def test_explain_says_the_schedule_in_words_and_when_it_fires_next(alone: RunCommand) -> None:
    result = alone("explain", "0 9 * * mon-fri", "--tz", "Europe/Paris", "--count", "3")
    assert result.returncode == 0
    sentence, blank, title, *instants = result.stdout.splitlines()
    assert (sentence, blank, title) == ("at 09:00 on Monday through Friday (Europe/Paris)", "", "NEXT")
    assert len(instants) == 3
    assert all(
        re.match(r"(Mon|Tue|Wed|Thu|Fri) \d{4}-\d\d-\d\d 09:00:00 CES?T  in \d+ \w+$", line) for line in instants
    )


def test_explain_tells_what_daylight_saving_will_do(alone: RunCommand) -> None:
    result = alone("explain", "30 2 * * *", "--tz", "Europe/Paris")
    assert "does not exist" in result.stdout
    assert "happens twice" in result.stdout


def test_explain_in_json_is_the_answer_of_the_preview_route(alone: RunCommand) -> None:
    result = json.loads(alone("explain", "every 5m", "-n", "2", "-o", "json").stdout)
    first, second = (datetime.fromisoformat(fire["at"]) for fire in result["fires"])
    assert result["description"] == "every 5 minutes"
    assert second - first == timedelta(minutes=5)
    assert result["warnings"] == []


def test_explain_takes_an_object_too(alone: RunCommand) -> None:
    result = alone("explain", '{"type": "calendar", "hour": 9, "weekdays": ["mon"]}', "--tz", "Asia/Tokyo")
    assert result.stdout.startswith("at 09:00 on Monday (Asia/Tokyo)\n")


@pytest.mark.parametrize("schedule", ["61 * * * *", "0 0 30 2 *", "whenever"])
def test_a_schedule_that_cannot_be_is_refused_with_a_sentence(alone: RunCommand, schedule: str) -> None:
    result = alone("explain", schedule)
    assert result.returncode == 1
    assert result.stderr.startswith("error: ")
    assert result.stdout == ""


def test_wrong_usage_exits_with_2_and_says_where_help_is() -> None:
    result = horae("jobs", "creat")
    assert result.returncode == 2
    assert 'Did you mean "create"?' in result.stderr
    assert "see horae jobs --help" in result.stderr


def test_a_server_that_cannot_be_reached_exits_with_3_and_says_how_to_start_one(alone: RunCommand) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    result = alone("jobs", "ls", HORAE_URL=url)
    assert result.returncode == 3
    assert result.stderr == f"error: cannot reach Horae at {url}; start it with `horae dev`, or set HORAE_URL\n"


def test_an_address_that_is_none_is_refused(alone: RunCommand) -> None:
    result = alone("jobs", "ls", HORAE_URL="localhost:8765")
    assert (result.returncode, result.stdout) == (2, "")
    assert "HORAE_URL = 'localhost:8765' is not a URL" in result.stderr


def test_every_command_has_a_help_page(capsys: pytest.CaptureFixture[str]) -> None:
    for command in COMMANDS:
        assert run([command, "--help"]) == 0
        assert f"horae {command}" in capsys.readouterr().out


def test_help_is_quick_because_it_imports_no_command() -> None:
    code = "import sys; from horae.cli.app import run; run(['--help']); print(*sorted(sys.modules), file=sys.stderr)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(HEAVY) & set(result.stderr.split())
    assert all(command in result.stdout for command in COMMANDS)


def test_a_store_is_prepared_and_its_schema_shown(alone: RunCommand, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/horae.db"
    before = alone("db", "status", "--store", store)
    assert before.returncode == 1
    assert "run `horae db migrate`" in before.stdout
    assert "applied 4" in alone("db", "migrate", "--store", store).stdout
    assert "nothing to do" in alone("db", "migrate", "--store", store).stdout
    after = alone("db", "status", "--store", store, "-o", "json")
    assert after.returncode == 0
    assert json.loads(after.stdout)["version"] == json.loads(after.stdout)["expected"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("serve", "--roles", "api,planer"), "--roles api,planer: choose among api, planner, worker"),
        (("serve", "--concurrency", "0"), "--concurrency"),
        (("serve", "--processes", "0"), "--processes"),
        (("serve", "--host", "0.0.0.0"), "loopback"),
        (("dev", "--store", "mysql://here/there"), "HORAE_STORE"),
        (("worker", "--app", "nowhere:app"), "--app 'nowhere:app'"),
    ],
)
def test_a_node_that_cannot_work_is_refused_at_once(tmp_path: Path, words: tuple[str, ...], complaint: str) -> None:
    result = subprocess.run(
        [HORAE, *words], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=30
    )
    assert result.returncode == 2
    assert result.stderr.startswith("error: ")
    assert complaint in result.stderr


def test_params_are_json_where_they_are_json_and_text_where_not() -> None:
    given = ["n=3", "who=Ann", "on=true", 'list=["a"]', "gone=null", "sum=1+1", "empty=", 'quoted="3"', "a=b=c"]
    assert arguments.pairs(given, "--param") == {
        "n": 3,
        "who": "Ann",
        "on": True,
        "list": ["a"],
        "gone": None,
        "sum": "1+1",
        "empty": "",
        "quoted": "3",
        "a": "b=c",
    }


def test_labels_stay_text() -> None:
    assert arguments.text_pairs(["tier=1", "env=prod"], "--label") == {"tier": "1", "env": "prod"}


def test_a_dot_in_a_change_reaches_into_a_field() -> None:
    given = ["retry.jitter=false", "retry.factor=3", "priority=5", "schedule=0 9 * * *"]
    assert arguments.changes(given, "--set") == {
        "retry": {"jitter": False, "factor": 3},
        "priority": 5,
        "schedule": "0 9 * * *",
    }


@pytest.mark.parametrize("given", [["priority"], ["=5"], ["retry=1", "retry.jitter=false"]])
def test_a_change_that_makes_no_sense_is_refused(given: list[str]) -> None:
    with pytest.raises(Malformed):
        arguments.changes(given, "--set")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.4, "now"),
        (5, "in 5 s"),
        (-90, "90 s ago"),
        (180, "in 3 min"),
        (5400, "in 90 min"),
        (-7200, "2 h ago"),
        (100_000, "in 27 h"),
        (-864_000, "10 d ago"),
    ],
)
def test_how_far_away_an_instant_is(seconds: float, words: str) -> None:
    now = datetime(2027, 1, 1, tzinfo=UTC)
    assert output.distance(now + timedelta(seconds=seconds), now) == words


@pytest.mark.parametrize("width", [40, 80, 120])
def test_a_table_fits_its_terminal(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = (
        output.Column(title="ID"),
        output.Column(title="NAME", least=12),
        output.Column(title="NEXT", rank=1),
        output.Column(title="SCHEDULE", rank=2, least=12),
    )
    monkeypatch.setenv("COLUMNS", str(width))
    output.print_table(columns, [("job_1", "a name that is long enough", "in 3 min", "every day " * 9)] * 2, empty="")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert all(cell_len(line) <= width and line == line.rstrip() for line in lines)
    assert ("SCHEDULE" in lines[0]) == (width > 40)
    assert all("in 3 min" in line for line in lines[1:])


def test_a_pipe_gets_whole_lines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    output.print_table((output.Column(title="A", least=5),), [("word " * 60,)], empty="")
    assert capsys.readouterr().out == f"A\n{('word ' * 60).rstrip()}\n"


def test_a_value_that_is_wider_than_the_terminal_keeps_its_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    output.print_fields({"error": "word " * 30 + "end"})
    assert capsys.readouterr().out.split() == ["error", *["word"] * 30, "end"]


# --- with a server --------------------------------------------------------------------------------------------------


def made(command: RunCommand, *words: str) -> dict[str, Any]:
    """A job, as JSON."""
    result = command("jobs", "create", *words, "-o", "json")
    assert result.returncode == 0, result.stderr
    job: dict[str, Any] = json.loads(result.stdout)
    return job


def test_a_job_is_created_from_its_options(command: RunCommand) -> None:
    job = made(
        command,
        *(
            "demo.echo",
            "--name",
            "morning",
            "--key",
            "morning-1",
            "--schedule",
            "0 9 * * mon-fri",
            "--tz",
            "Europe/Paris",
        ),
        *("--params", '{"message": "lost"}', "--param", "message=hi", "--label", "tier=1", "--queue", "mail"),
        *("--priority", "-5", "--timeout", "2.5", "--max-retries", "7", "--overlap", "buffer_one", "--misfire", "skip"),
        *("--ordering-key", "ann", "--start-within", "60", "--catchup", "120"),
    )
    expected = {
        "task": "demo.echo",
        "name": "morning",
        "key": "morning-1",
        "schedule": {"type": "cron", "expression": "0 9 * * mon-fri", "timezone": "Europe/Paris"},
        "description": "at 09:00 on Monday through Friday (Europe/Paris)",
        "params": {"message": "hi"},
        "labels": {"tier": "1"},
        "queue": "mail",
        "priority": -5,
        "timeout_seconds": 2.5,
        "max_retries": 7,
        "overlap": "buffer_one",
        "misfire": "skip",
        "ordering_key": "ann",
        "start_within_seconds": 60,
        "catchup_seconds": 120,
    }
    assert {field: job[field] for field in expected} == expected


def test_a_job_is_found_by_id_key_and_name(command: RunCommand) -> None:
    job = made(command, "demo.echo", "--name", "found", "--key", "found-1", "--schedule", "@daily")
    for name in (job["id"], "found-1", "found"):
        assert json.loads(command("jobs", "show", name, "-o", "json").stdout)["id"] == job["id"]


def test_a_name_that_nobody_or_many_have_is_told(command: RunCommand) -> None:
    first, second = (made(command, "demo.echo", "--name", "twin", "--schedule", "@daily") for _ in range(2))
    many = command("jobs", "show", "twin")
    assert many.returncode == 1
    assert "2 jobs have the name 'twin'" in many.stderr
    assert first["id"] in many.stderr
    assert second["id"] in many.stderr
    nobody = command("jobs", "show", "nobody")
    assert (nobody.returncode, nobody.stderr) == (1, "error: there is no job with the id, key or name 'nobody'\n")


def test_an_unfinished_job_is_meant_before_finished_ones_of_its_name(command: RunCommand) -> None:
    made(command, "demo.echo", "--name", "again", "--schedule", "@daily")
    assert command("jobs", "cancel", "again").returncode == 0
    job = made(command, "demo.echo", "--name", "again", "--schedule", "@daily")
    assert json.loads(command("jobs", "show", "again", "-o", "json").stdout)["id"] == job["id"]


@pytest.mark.parametrize("width", ["80", "120"])
def test_lists_fit_the_terminal(command: RunCommand, width: str) -> None:
    made(command, "demo.echo", "--name", "a rather long name for a job that runs at night", "--schedule", "0 3 * * *")
    made(command, "demo.echo")
    for words in (("jobs", "ls"), ("runs", "ls")):
        lines = command(*words, COLUMNS=width).stdout.splitlines()
        assert lines[0].startswith("ID ")
        assert all(cell_len(line) <= int(width) for line in lines)


def test_the_list_of_jobs_can_be_narrowed_and_paged(command: RunCommand) -> None:
    for number in range(3):
        made(command, "demo.echo", "--name", f"page-{number}", "--label", "page=yes", "--schedule", "@daily")
    first = json.loads(command("jobs", "ls", "--label", "page=yes", "--limit", "2", "-o", "json").stdout)
    assert [job["name"] for job in first["items"]] == ["page-2", "page-1"]
    rest = json.loads(command("jobs", "ls", "--label", "page", "--cursor", first["next_cursor"], "-o", "json").stdout)
    assert [job["name"] for job in rest["items"]] == ["page-0"]
    assert command("jobs", "ls", "--name", "never").stdout == "no jobs; create one with `horae jobs create TASK`\n"


def test_a_job_is_edited_paused_resumed_and_cancelled(command: RunCommand) -> None:
    made(command, "demo.echo", "--name", "changing", "--schedule", "@daily", "--label", "a=1")
    edited = command(
        "jobs", "edit", "changing", "--set", "schedule=0 9 * * *", "--set", "retry.jitter=false", "-o", "json"
    )
    job = json.loads(edited.stdout)
    assert job["schedule"] == {"type": "cron", "expression": "0 9 * * *"}
    assert (job["retry"]["jitter"], job["retry"]["factor"], job["labels"]) == (False, 2, {"a": "1"})
    assert command("jobs", "pause", "changing").stdout.startswith(f"paused  {job['id']} (changing)\n")
    assert json.loads(command("jobs", "show", "changing", "-o", "json").stdout)["status"] == "paused"
    assert "next run" in command("jobs", "resume", "changing", "--missed", "once").stdout
    assert command("jobs", "cancel", "changing").returncode == 0
    assert json.loads(command("jobs", "show", job["id"], "-o", "json").stdout)["status"] == "cancelled"
    late = command("jobs", "pause", job["id"])
    assert late.returncode == 1
    assert late.stderr.startswith("error: ")


def test_the_next_times_of_a_job_are_shown(command: RunCommand) -> None:
    made(command, "demo.echo", "--name", "nightly", "--schedule", "0 3 * * *")
    lines = command("jobs", "next", "nightly", "--count", "3").stdout.splitlines()
    assert lines[0].startswith("WHEN")
    assert len(lines) == 4


def test_a_wrong_job_is_told_as_one_block_with_its_place(command: RunCommand) -> None:
    result = command("jobs", "create", "demo.echo", "--priority", "500")
    assert result.returncode == 1
    first, *places = result.stderr.splitlines()
    assert first.startswith("error: ")
    assert [place for place in places if place.startswith("  at /priority")]


def test_a_task_that_nobody_knows_is_refused_unless_asked_for(command: RunCommand) -> None:
    refused = command("jobs", "create", "nobody.knows")
    assert refused.returncode == 1
    assert "nobody.knows" in refused.stderr
    assert "use --allow-unknown-task" in refused.stderr
    assert made(command, "nobody.knows", "--allow-unknown-task", "--schedule", "@daily")["status"] == "scheduled"


def test_following_a_run_prints_its_log_and_ends_as_it_does(command: RunCommand) -> None:
    made(command, "demo.echo", "--name", "echo", "--schedule", "@daily", "--param", "message=hello there")
    result = command("run", "echo", "--follow")
    assert result.returncode == 0
    assert "hello there" in result.stdout
    assert result.stderr.splitlines()[-1].endswith("succeeded: hello there")


def test_following_a_run_that_fails_exits_with_1(command: RunCommand) -> None:
    made(command, "demo.fail", "--name", "broken", "--schedule", "@daily", "--max-retries", "0")
    result = command("jobs", "run", "broken", "--follow")
    assert result.returncode == 1
    assert re.search(r"failed: DemoError: attempt 1 failed", result.stderr.splitlines()[-1])


def test_a_run_takes_parameters_of_its_own(command: RunCommand) -> None:
    made(command, "demo.echo", "--name", "other", "--schedule", "@daily", "--param", "message=usual")
    run = json.loads(command("run", "other", "--param", "message=special", "--follow", "-o", "json").stdout)
    assert (run["status"], run["result"]) == ("succeeded", "special")


def test_a_run_is_shown_with_its_attempts_and_its_log(command: RunCommand) -> None:
    made(command, "demo.echo", "--name", "shown", "--schedule", "@daily", "--param", "message=seen")
    run = json.loads(command("run", "shown", "--follow", "-o", "json").stdout)
    shown = command("runs", "show", run["id"]).stdout
    assert run["id"] in shown
    assert "succeeded" in shown
    assert "seen" in command("runs", "logs", run["id"]).stdout
    listed = json.loads(command("runs", "ls", "--job", "shown", "-o", "json").stdout)["items"]
    assert [item["id"] for item in listed] == [run["id"]]


def test_a_run_is_cancelled(command: RunCommand) -> None:
    made(command, "demo.sleep", "--name", "sleeper", "--schedule", "@daily", "--param", "seconds=60")
    run = json.loads(command("run", "sleeper", "-o", "json").stdout)
    assert command("runs", "cancel", run["id"]).returncode == 0
    deadline = time.monotonic() + 10
    while (status := json.loads(command("runs", "show", run["id"], "-o", "json").stdout)["status"]) != "cancelled":
        assert time.monotonic() < deadline, status


@pytest.mark.parametrize("text", ["1", "true", "null", '{"a": 1}', "[", "007"])
def test_a_parameter_that_takes_text_gets_text(command: RunCommand, text: str) -> None:
    job = made(command, "demo.echo", "--param", f"message={text}", "--schedule", "@daily")
    assert job["params"] == {"message": text}
    again = command("run", job["id"], "--param", f"message={text}", "--follow", "-o", "json")
    assert json.loads(again.stdout)["result"] == text
    hidden = made(command, "http.request", "--secret", f"url={text}", "--param", "expect=204")
    assert hidden["params"] == {"expect": 204}
    failed = command("run", hidden["id"], "--follow", "-o", "json")
    assert "cannot be made" in json.loads(failed.stdout)["error"]["message"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--timeout", "0"), "--timeout must be more than 0"),
        (("--max-retries", "5000"), "--max-retries must be from 0 to 1000"),
        (("--on-failure", "block"), "--on-failure: block stops later runs with the same --ordering-key"),
        (("--queue", "no such"), "queue does not have the right form: 1 to 100 letters, digits and any of . _ -"),
    ],
)
def test_a_wrong_option_is_told_by_its_name(command: RunCommand, options: tuple[str, ...], words: str) -> None:
    refused = command("jobs", "create", "demo.echo", *options)
    assert refused.returncode == 1
    assert words in refused.stderr


def test_a_parameter_that_takes_something_else_is_told_what(command: RunCommand) -> None:
    refused = command("jobs", "create", "demo.sleep", "--param", "seconds=long")
    assert refused.returncode == 1
    assert "must be a number, not text" in refused.stderr
    assert made(command, "demo.fail", "--param", "times=null", "--max-retries", "0")["params"] == {"times": None}


def test_names_results_and_errors_do_not_control_the_terminal(command: RunCommand) -> None:
    evil = "\x1b]0;owned\x07\x9b31m\u202e"
    job = made(command, "demo.echo", "--name", f"evil {evil}", "--param", f"message={evil}")
    followed = command("run", job["id"], "--follow")
    shell = json.dumps({"command": ["sh", "-c", f"printf %s '{evil}'; exit 3"]})
    broken = made(command, "shell.run", "--max-retries", "0", "--params", shell)
    run_id = json.loads(command("run", broken["id"], "-o", "json", "--follow").stdout)["id"]
    shown = [
        followed,
        *(command("jobs", *words) for words in (("ls",), ("show", job["id"]), ("ls", "-o", "json"))),
        *(command("runs", *words) for words in (("ls",), ("show", run_id), ("logs", run_id), ("ls", "-o", "json"))),
        *(command("dlq", *words) for words in (("ls",), ("ls", "--group"), ("ls", "-o", "json"))),
        command("jobs", "show", evil),
    ]
    printed = "".join(result.stdout + result.stderr for result in shown)
    assert r"\x1b]0;owned\x07\x9b31m\u202e" in printed
    assert not set(printed) & {"\x1b", "\x07", "\x9b", "\u202e"}


def test_a_job_is_no_run(command: RunCommand) -> None:
    result = command("runs", "show", "job_0")
    assert result.returncode == 1
    assert "a run is named by its id" in result.stderr
