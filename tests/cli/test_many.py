"""The command line on many jobs and runs: selected by options, counted first, and asked about on a terminal."""

import json
import os
import pty
import sys
from collections.abc import Callable

import pytest

from horae.cli.commands.acts.many import ManyOptions, act_on_many
from horae.client import BulkResult
from horae.core.errors import Unavailable
from tests.cli.commands import JsonOf, RunCommand, given_dead_letters

LATER = "2099-01-01T00:00:00Z"


Answered = Callable[..., tuple[int, str]]


def given_jobs(command: RunCommand, queue: str, count: int = 3, *words: str) -> list[str]:
    made = [
        command("jobs", "create", "demo.echo", "--schedule", LATER, "--queue", queue, *words, "-o", "json")
        for _ in range(count)
    ]
    return [json.loads(one.stdout)["id"] for one in made]


def statuses(command: RunCommand, queue: str) -> list[str]:
    return [job["status"] for job in json.loads(command("jobs", "ls", "--queue", queue, "-o", "json").stdout)["items"]]


@pytest.fixture
def answered(command: RunCommand, monkeypatch: pytest.MonkeyPatch) -> Answered:
    """Type a command on a terminal, answer its question, and return its exit code and what it printed."""

    def answered(answer: str, *words: str) -> tuple[int, str]:
        terminal, far_end = pty.openpty()
        try:
            os.write(terminal, f"{answer}\n".encode())
            with open(far_end, closefd=False) as stdin, monkeypatch.context() as patch:
                patch.setattr(sys, "stdin", stdin)
                done = command(*words)
        finally:
            os.close(far_end)
            os.close(terminal)
        return done.returncode, done.stdout + done.stderr

    return answered


# --- selecting


def test_jobs_are_paused_resumed_run_and_cancelled_by_options(command: RunCommand) -> None:
    given_jobs(command, "all-acts", 3, "--label", "team=a")
    other = given_jobs(command, "all-acts", 1)
    team = ("--queue", "all-acts", "--label", "team=a")
    assert command("jobs", "pause", *team).stdout == "paused  3 jobs\n"
    assert statuses(command, "all-acts") == ["scheduled", "paused", "paused", "paused"]
    assert command("jobs", "resume", *team, "--missed", "once").stdout == "resumed  3 jobs\n"
    assert command("jobs", "run", *team).stdout == "started  3 jobs\n"
    assert command("jobs", "cancel", *team).stdout == "cancelled  3 jobs\n"
    assert command("jobs", "cancel", *team).stdout == "cancelled  0 jobs\n"
    assert json.loads(command("jobs", "show", other[0], "-o", "json").stdout)["status"] == "scheduled"


def test_several_jobs_are_named_at_once(command: RunCommand) -> None:
    first, second, third = given_jobs(command, "named")
    assert command("jobs", "pause", first, second).stdout == "paused  2 jobs\n"
    assert statuses(command, "named") == ["scheduled", "paused", "paused"]
    assert command("jobs", "cancel", third).stdout.startswith(f"cancelled  {third}\n"), "one is told as one"


def test_a_dry_run_counts_and_changes_nothing(command: RunCommand) -> None:
    [job, *_] = given_jobs(command, "counted")
    assert command("jobs", "cancel", "--queue", "counted", "--dry-run").stdout == "would cancel  3 jobs\n"
    assert command("jobs", "cancel", job, "--dry-run").stdout == "would cancel  1 job\n"
    assert command("runs", "cancel", "--queue", "counted", "--dry-run").stdout == "would cancel  3 runs\n"
    counted = command("jobs", "pause", "--queue", "counted", "--dry-run", "-o", "json")
    assert json.loads(counted.stdout) == {"matched": 3, "done": 0, "remaining": 3, "cursor": None}
    assert statuses(command, "counted") == ["scheduled"] * 3


def test_what_is_left_is_told_and_ends_with_1(command: RunCommand) -> None:
    given_jobs(command, "left", 2)
    command("jobs", "cancel", "--queue", "left")
    given_jobs(command, "left", 1)
    done = command("jobs", "pause", "--queue", "left", "--status", "cancelled")
    assert (done.returncode, done.stdout) == (1, "paused  0 jobs\nleft    2\n")


def test_runs_are_cancelled_and_retried_by_options(command: RunCommand, json_of: JsonOf) -> None:
    given_jobs(command, "runs")
    assert command("runs", "cancel", "--queue", "runs", "--status", "scheduled").stdout == "cancelled  3 runs\n"
    letters = given_dead_letters(json_of, "failing", 3)
    assert command("runs", "retry", letters[0], letters[1]).stdout == "retried  2 runs\n"
    assert command("runs", "retry", "--queue", "failing", "--task", "demo.fail").returncode == 0


def test_dead_letters_are_counted_before_they_are_resolved(command: RunCommand, json_of: JsonOf) -> None:
    letters = given_dead_letters(json_of, "letters", 2)
    assert command("dlq", "discard", "--queue", "letters", "--dry-run").stdout == "would discard  2 dead letters\n"
    assert command("dlq", "requeue", letters[0], "--dry-run").stdout == "would requeue  1 dead letter\n"
    assert command("dlq", "discard", "--queue", "letters", "--yes").stdout == "discarded  2 dead letters\n"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("jobs", "cancel"), "select jobs by naming them, by options such as --queue and --task, or with --all"),
        (("jobs", "pause", "one", "--queue", "q"), "select jobs by"),
        (("jobs", "pause", "--all", "--queue", "q"), "select jobs by"),
        (("runs", "cancel"), "select runs by"),
        (("jobs", "run", "--queue", "q", "--param", "a=1"), "--param, --params and --follow belong to the run of one"),
        (("jobs", "cancel", "--queue", "q", "--keep-running"), "--keep-running is for one job"),
        (("runs", "retry", "--queue", "q", "--follow"), "are for one run"),
    ],
)
def test_nobody_changes_more_than_they_meant(command: RunCommand, words: tuple[str, ...], complaint: str) -> None:
    refused = command(*words)
    assert refused.returncode == 2
    assert complaint in refused.stderr


def test_what_was_done_before_an_error_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    def perform(*, dry_run: bool, repeat: bool, progress: Callable[[BulkResult], None] | None) -> BulkResult:
        assert progress is not None
        progress(BulkResult(matched=50, done=48, remaining=900, cursor="a"))
        raise Unavailable("cannot reach Horae")

    with pytest.raises(Unavailable):
        act_on_many(perform, "run", "jobs", ManyOptions(yes=True), "table")
    assert capsys.readouterr().err.splitlines()[-1] == "started 48 jobs before this:"


# --- asking


@pytest.mark.parametrize(
    ("words", "question"),
    [
        (("jobs", "cancel", "--queue", "asked"), "cancel 3 jobs? [y/N]"),
        (("runs", "cancel", "--queue", "asked"), "cancel 3 runs? [y/N]"),
    ],
)
def test_a_terminal_is_asked_before_many_are_changed(
    answered: Answered, command: RunCommand, words: tuple[str, ...], question: str
) -> None:
    queue = f"asked-{words[0]}"
    given_jobs(command, queue)
    words = (*words[:-1], queue)
    for answer in ("", "n", "nonsense"):
        code, printed = answered(answer, *words)
        assert (code, question in printed, "nothing was changed" in printed) == (1, True, True)
    assert statuses(command, queue) == ["scheduled"] * 3
    code, printed = answered("y", *words)
    assert (code, f"cancelled  3 {words[0]}" in printed) == (0, True)


def test_a_terminal_is_not_asked_about_one_or_with_yes(answered: Answered, command: RunCommand) -> None:
    for count, words in ((1, ()), (2, ("--yes",))):
        given_jobs(command, "unasked", count)
        code, printed = answered("n", "jobs", "cancel", "--queue", "unasked", *words)
        assert (code, "[y/N]" in printed) == (0, False), printed


def test_dead_letters_are_asked_about_as_well(answered: Answered, json_of: JsonOf) -> None:
    given_dead_letters(json_of, "asked-letters", 2)
    code, printed = answered("n", "dlq", "discard", "--queue", "asked-letters")
    assert (code, "discard 2 dead letters? [y/N]" in printed) == (1, True)
    assert len(json_of("dlq", "ls", "--queue", "asked-letters")["items"]) == 2
