"""Tables keep what matters at 80 columns, show more on wide terminals, and everything in a pipe."""

from datetime import UTC, datetime, timedelta

import pytest
from rich.cells import cell_len

from horae.cli import output
from horae.cli.output import Column
from tests.cli.commands import JsonOf, RunCommand, until

ERROR = "DemoError: attempt 1 failed"
OWN = ("--queue", "tables")  # so that the tables have nothing that other tests made


@pytest.fixture
def failed(json_of: JsonOf) -> str:
    """The id of a run that has failed, of a job with a long name."""
    words = ("demo.fail", "--max-retries", "0", "--name", "report of every branch, for the night shift in Lyon")
    run_id = str(json_of("jobs", "create", *words, *OWN)["id"]).replace("job_", "run_")
    until(lambda: json_of("runs", "show", run_id)["status"] == "failed", "it has not failed")
    return run_id


@pytest.mark.parametrize("words", [("runs", "ls"), ("dlq", "ls")])
def test_errors_job_names_and_ids_stay_at_80_columns(command: RunCommand, failed: str, words: tuple[str, ...]) -> None:
    lines = command(*words, *OWN, COLUMNS="80").stdout.splitlines()
    titles = lines[0].split()
    assert titles[:3] == ["ID", "JOB", "WHY"], "why comes before the status"
    assert {"STATUS", "DUE"} <= {*titles}
    assert all(cell_len(line) <= 80 for line in lines)
    [shown] = [line for line in lines[1:] if failed.startswith(line.split()[0])]
    assert len(shown.split()[0]) >= 20
    assert "repor" in shown
    assert "Lyon" in shown, "a name keeps its end"
    assert "DemoError: attempt" in shown
    assert "failed" in shown
    assert command("runs", "show", shown.split()[0]).returncode == 0, "the id can be used as it is shown"


def test_a_wide_terminal_and_a_pipe_show_more(command: RunCommand, failed: str) -> None:
    narrow, wide, whole = (
        command("runs", "ls", *OWN, **size).stdout.splitlines() for size in ({"COLUMNS": "80"}, {"COLUMNS": "200"}, {})
    )
    assert {*narrow[0].split()} < {*wide[0].split()} <= {*whole[0].split()}
    assert failed in wide[1] + "".join(wide)
    [shown] = [line for line in whole if failed in line]
    assert "report of every branch, for the night shift in Lyon" in shown
    assert ERROR in shown


def test_the_list_of_runs_begins_with_what_happened(command: RunCommand, json_of: JsonOf, failed: str) -> None:
    later = json_of("jobs", "create", "demo.echo", "--name", "much later", "--schedule", "2099-01-01")["id"]
    assert "much later" not in command("runs", "ls").stdout
    assert failed in command("runs", "ls").stdout
    assert "much later" in command("runs", "ls", "--status", "scheduled").stdout
    assert "much later" in command("runs", "ls", "--until", "2100-01-01").stdout
    assert json_of("runs", "ls")["items"][0]["job_id"] == later, "JSON is the answer of the API"
    assert "`horae runs ls --status scheduled` lists those to come" in command("runs", "ls", "--job", later).stdout


def test_times_in_options_are_those_of_people(command: RunCommand, json_of: JsonOf, failed: str) -> None:
    assert failed in [run["id"] for run in json_of("runs", "ls", "--since", "10m")["items"]]
    assert json_of("runs", "ls", "--since", "yesterday", "--until", "1h")["items"] == []
    assert json_of("dlq", "ls", "--until", "2026-01-31")["items"] == []
    at = datetime.now(UTC) + timedelta(hours=3)
    job = json_of("jobs", "create", "demo.echo", "--schedule", "in 3h")
    assert abs(datetime.fromisoformat(job["next_run_at"]) - at) < timedelta(minutes=1)
    wrong = command("runs", "ls", "--since", "yesteday")
    assert wrong.returncode == 2
    assert "--since 'yesteday' is not a time; write 10m," in wrong.stderr


# --- without a server


def lines_of(columns: tuple[Column, ...], rows: list[tuple[str, ...]], room: int) -> list[str]:
    return [line.plain for line in output.table_lines(columns, rows, room)]


def test_a_name_is_shortened_in_the_middle() -> None:
    [_, shown, wide] = lines_of(
        (Column(title="A", least=5, cut="middle"),), [("beginning-middle-end",), ("日本語日本語日本語",)], 11
    )
    assert shown == "begin…e-end"
    assert wide == "日本語…本語"


def test_ids_keep_the_digits_that_tell_them_apart() -> None:
    ids = [f"run_{'0' * 25}{digit}{'f' * 6}" for digit in "123"]
    columns = (Column(title="ID", cut="id"), Column(title="REST", least=4))
    shown = [line.split()[0] for line in lines_of(columns, [(each, "x" * 60) for each in ids], 50)[1:]]
    assert shown == [each[:31] for each in ids], "two digits more than are needed"
    [only] = [line.split()[0] for line in lines_of(columns, [(ids[0], "x" * 60)], 50)[1:]]
    assert only == ids[0][:20]


def test_a_time_that_the_server_tells_is_shown_as_people_read_it() -> None:
    soon = datetime.now(UTC) + timedelta(minutes=5, seconds=1)
    told = output.in_local_time(f"it is tried again at {soon.isoformat().replace('+00:00', 'Z')}")
    assert told.endswith(" · in 5 min")
    assert f"{soon.astimezone():%H:%M}" in told
    assert output.in_local_time("the queue is paused at night") == "the queue is paused at night"
