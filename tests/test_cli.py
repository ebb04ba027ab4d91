"""The command line: what it prints, what it refuses, and its exit codes; the client commands against a real server."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from live import HORAE, Live, environment, free_port, live_horae
from rich.cells import cell_len

from horae.cli import arguments, output
from horae.cli.app import COMMANDS, run
from horae.core.errors import Malformed

HEAVY = ("httpx2", "starlette", "uvicorn", "asyncpg", "structlog", "msgspec", "horae.wiring", "horae.core.schedule")


def horae(*words: str, **extra: str) -> subprocess.CompletedProcess[str]:
    """One command as a user types it, in a process of its own."""
    return subprocess.run([HORAE, *words], env=environment() | extra, capture_output=True, text=True, timeout=60)


# --- without a server -----------------------------------------------------------------------------------------------


def test_explain_says_the_schedule_in_words_and_when_it_fires_next() -> None:
    said = horae("explain", "0 9 * * mon-fri", "--tz", "Europe/Paris", "--count", "3")
    assert said.returncode == 0
    sentence, blank, title, *instants = said.stdout.splitlines()
    assert (sentence, blank, title) == ("at 09:00 on Monday through Friday (Europe/Paris)", "", "NEXT")
    assert len(instants) == 3
    assert all(
        re.match(r"(Mon|Tue|Wed|Thu|Fri) \d{4}-\d\d-\d\d 09:00:00 CES?T  in \d+ \w+$", line) for line in instants
    )


def test_explain_tells_what_daylight_saving_will_do() -> None:
    said = horae("explain", "30 2 * * *", "--tz", "Europe/Paris")
    assert "does not exist" in said.stdout
    assert "happens twice" in said.stdout


def test_explain_in_json_is_the_answer_of_the_preview_route() -> None:
    said = json.loads(horae("explain", "every 5m", "-n", "2", "-o", "json").stdout)
    first, second = (datetime.fromisoformat(fire["at"]) for fire in said["fires"])
    assert said["description"] == "every 5 minutes"
    assert second - first == timedelta(minutes=5)
    assert said["warnings"] == []


def test_explain_takes_an_object_too() -> None:
    said = horae("explain", '{"type": "calendar", "hour": 9, "weekdays": ["mon"]}', "--tz", "Asia/Tokyo")
    assert said.stdout.startswith("at 09:00 on Monday (Asia/Tokyo)\n")


@pytest.mark.parametrize("schedule", ["61 * * * *", "0 0 30 2 *", "whenever"])
def test_a_schedule_that_cannot_be_is_refused_with_a_sentence(schedule: str) -> None:
    said = horae("explain", schedule)
    assert said.returncode == 1
    assert said.stderr.startswith("error: ")
    assert said.stdout == ""


def test_wrong_usage_exits_with_2_and_says_where_help_is() -> None:
    said = horae("jobs", "creat")
    assert said.returncode == 2
    assert 'Did you mean "create"?' in said.stderr
    assert "see horae jobs --help" in said.stderr


def test_a_server_that_cannot_be_reached_exits_with_3_and_says_how_to_start_one() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    said = horae("jobs", "ls", HORAE_URL=url)
    assert said.returncode == 3
    assert said.stderr == f"error: cannot reach Horae at {url}; start it with `horae dev`, or set HORAE_URL\n"


def test_an_address_that_is_none_is_refused() -> None:
    said = horae("jobs", "ls", HORAE_URL="localhost:8765")
    assert (said.returncode, said.stdout) == (2, "")
    assert "HORAE_URL = 'localhost:8765' is no address" in said.stderr


def test_every_command_has_a_help_page(capsys: pytest.CaptureFixture[str]) -> None:
    for command in COMMANDS:
        assert run([command, "--help"]) == 0
        assert f"horae {command}" in capsys.readouterr().out


def test_help_is_quick_because_it_imports_no_command() -> None:
    code = "import sys; from horae.cli.app import run; run(['--help']); print(*sorted(sys.modules), file=sys.stderr)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(HEAVY) & set(said.stderr.split())
    assert all(command in said.stdout for command in COMMANDS)


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
        output.Column(title="NAME", shrinks=True),
        output.Column(title="NEXT", rank=1),
        output.Column(title="SCHEDULE", rank=2, shrinks=True),
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
    output.print_table((output.Column(title="A", shrinks=True),), [("word " * 60,)], empty="")
    assert capsys.readouterr().out == f"A\n{('word ' * 60).rstrip()}\n"
