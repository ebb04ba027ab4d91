"""The judges find nothing in clean recorded histories, and find every planted violation under its invariant.

`make acceptance` does the same with 1,000 histories, and each violation planted many times.
"""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from horae.core.errors import Invalid
from horae.proof.checking import Recorder, Recording, differences, judge_recording, read_lines, steady_clock
from horae.proof.checking.findings import INVARIANTS, Code
from horae.proof.checking.history.files import EPOCH
from horae.proof.checking.history.recording import is_recurring
from horae.proof.checking.history.records import (
    Action,
    Definition,
    Effect,
    FinalRun,
    HandlerEvent,
    Invoke,
    LeaseGranted,
    Line,
    Occurrence,
    Ok,
    ResultReport,
    Setup,
)
from horae.proof.checking.judges.start_windows import judge_start_windows
from tests.proof.checking.clean_histories import BEGIN, clean_history
from tests.proof.checking.history_mutants import MUTANTS, Draft, a_job_for_once_runs_twice, a_run_is_dropped
from tests.proof.checking.mutated_histories import found_in, planted, uncaught
from tests.proof.checking.store_mutants import STORE_MUTANTS

QUICK = 25
ROOT = Path(__file__).parents[3]


def test_clean_histories_raise_nothing() -> None:
    assert {seed: found for seed in range(QUICK) if (found := found_in(clean_history(seed)))} == {}


def test_clean_histories_raise_nothing_where_nobody_stood_between_workers_and_store() -> None:
    unseen = {
        seed: [line for line in clean_history(seed) if not isinstance(line, LeaseGranted | ResultReport)]
        for seed in range(8)
    }
    assert {seed: found for seed, lines in unseen.items() if (found := found_in(lines))} == {}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{MUTANTS[mutant]} {mutant.__name__}")
def test_every_planted_violation_is_caught_by_its_invariant(mutant: Callable[[Draft], None]) -> None:
    assert uncaught(mutant, 1) == {}


def test_a_violation_is_planted_for_each_invariant_that_is_judged() -> None:
    of_stores_alone = {"I21"}
    assert set(MUTANTS.values()) == set(INVARIANTS.values()) - of_stores_alone
    assert of_stores_alone <= {INVARIANTS[mutant.code] for mutant in STORE_MUTANTS}
    assert INVARIANTS.keys() == set(Code)


# --- without ids


def nameless(lines: list[Line]) -> list[Line]:
    """The same history with one id for all runs and one fence for all attempts."""
    told: list[Line] = []
    for line in lines:
        if isinstance(line, FinalRun):
            told.append(replace(line, attempts=()))
        elif isinstance(line, Effect):
            told.append(replace(line, run="run_?", job="job_?", attempt=1, fence=1))
        elif not isinstance(line, LeaseGranted | ResultReport):
            told.append(line)
    return told


def test_windows_need_no_ids() -> None:
    for seed in range(QUICK):
        assert list(judge_start_windows(Recording(nameless(clean_history(seed))))) == [], seed


@pytest.mark.parametrize(("mutant", "code"), [(a_run_is_dropped, Code.LOST), (a_job_for_once_runs_twice, Code.UNASKED)])
def test_windows_alone_catch_what_is_lost_or_doubled(mutant: Callable[[Draft], None], code: Code) -> None:
    for seed, lines in planted(mutant, 3):
        found = {violation.code for violation in judge_start_windows(Recording(nameless(lines)))}
        assert code in found, (seed, found)


# --- the proof


def test_a_history_tells_what_it_proves() -> None:
    coverages = [judge_recording(Recording(clean_history(seed))).coverage for seed in range(QUICK)]
    for occurrence in Occurrence:
        assert any(coverage.occurrences[occurrence] for coverage in coverages), occurrence
    assert any(coverage.is_complete for coverage in coverages)
    assert all(coverage.unfired == () for coverage in coverages)


def test_a_planned_fault_that_never_fired_proves_nothing() -> None:
    proven = next(seed for seed in range(QUICK) if judge_recording(Recording(clean_history(seed))).coverage.is_complete)
    lines = clean_history(proven)
    setup = next(line for line in lines if isinstance(line, Setup))
    lines[lines.index(setup)] = replace(setup, planned=[*setup.planned, "postgres stop"])
    coverage = judge_recording(Recording(lines)).coverage
    assert (coverage.unfired, coverage.is_complete) == (("postgres stop",), False)


def test_histories_with_the_same_ends_are_of_one_class() -> None:
    lines = clean_history(3)
    later = [replace(line, at=line.at + 0.0001) for line in lines]
    assert list(differences(Recording(lines), Recording(later))) == []
    run = next(
        line for line in lines if isinstance(line, FinalRun) and line.status == "succeeded" and line.slot is None
    )
    other = [replace(run, status="failed") if line is run else line for line in lines]
    [told] = differences(Recording(lines), Recording(other))
    assert told.startswith(f"{run.label}: ")


# --- the file


def test_what_is_recorded_is_read_again(tmp_path: Path) -> None:
    lines = clean_history(1)
    half = len(lines) // 2
    for number, part in enumerate((lines[:half], lines[half:])):
        with Recorder(tmp_path / f"{number}.jsonl", durable=number == 0) as recorder:
            recorder.write(*part)
    assert list(read_lines(tmp_path / "0.jsonl", tmp_path / "1.jsonl")) == lines


def test_two_recorders_share_a_file(tmp_path: Path) -> None:
    one, other = Recorder(tmp_path / "a.jsonl"), Recorder(tmp_path / "a.jsonl")
    effect = Effect(at=1.0, event=HandlerEvent.START, run="run_1", job="job_1", attempt=1, fence=1, due=1.0, label="a")
    with one, other:
        for number in range(100):
            (one, other)[number % 2].write(replace(effect, attempt=number))
    assert [line.attempt for line in read_lines(tmp_path / "a.jsonl") if isinstance(line, Effect)] == list(range(100))


def test_a_line_that_is_still_being_written_is_left_out(tmp_path: Path) -> None:
    with Recorder(tmp_path / "a.jsonl") as recorder:
        recorder.write(Ok(at=1.0, call="1"))
    with (tmp_path / "a.jsonl").open("a") as file:
        file.write('{"kind":"ok","at":2')
    assert list(read_lines(tmp_path / "a.jsonl")) == [Ok(at=1.0, call="1")]


def test_a_line_that_is_no_record_is_told_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"kind":"closed","at":1}\n{"kind":"closed","when":1}\n')
    with pytest.raises(Invalid, match=r"a\.jsonl, line 2, is not a record of a history: .*`when`"):
        list(read_lines(tmp_path / "a.jsonl"))


def test_an_end_without_a_call_is_refused() -> None:
    with pytest.raises(Invalid, match="answers of calls without their `invoke` line: 7"):
        Recording([Ok(at=1.0, call="7")])


def test_processes_share_the_clock_of_the_harness(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(EPOCH, raising=False)
    one = steady_clock()
    other = steady_clock()  # as a process would that inherits the environment
    before, between, after = one(), other(), one()
    assert before <= between <= after
    monkeypatch.setenv(EPOCH, "0")
    assert steady_clock()() < before


def test_a_definition_is_made_of_a_request() -> None:
    body = {
        "task": "mail",
        "params": {"label": "a", "to": "b"},
        "schedule": {"type": "every", "seconds": 5},
        "retry": {"initial_seconds": 1, "jitter": False},
        "max_retries": 7,
        "labels": {"not": "judged"},
    }
    definition = Definition.of(body, label="a")
    assert definition == Definition(
        label="a",
        task="mail",
        params='{"label":"a","to":"b"}',
        schedule={"type": "every", "seconds": 5},
        initial_seconds=1,
        max_retries=7,
    )


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("now", False),
        ("2027-01-01T00:00:00Z", False),
        ("every 5s", True),
        ("@daily", True),
        ("*/5 * * * *", True),
        ("2026 * * * *", True),
        ({"type": "at", "time": "2027-01-01T00:00:00Z"}, False),
        ({"type": "cron", "expression": "* * * * *"}, True),
    ],
)
def test_a_schedule_is_known_to_come_again(schedule: str | dict[str, str], expected: bool) -> None:
    assert is_recurring(Definition(label="a", schedule=schedule)) is expected


def test_what_has_no_answer_may_have_happened() -> None:
    lines: list[Line] = [
        Invoke(at=BEGIN, call="1", action=Action.CREATE, definition=Definition(label="a")),
        Effect(
            at=BEGIN + 1, event=HandlerEvent.START, run="run_1", job="job_1", attempt=1, fence=1, due=BEGIN, label="a"
        ),
    ]
    assert found_in(lines) == []


def test_the_page_names_every_invariant_and_tests_that_exist() -> None:
    page = (ROOT / "docs/internals/checking.md").read_text("utf-8")
    rows = re.findall(r"^\| (I[\d, I]+) \|", page, re.MULTILINE)
    assert {name for row in rows for name in row.split(", ")} == {*INVARIANTS.values(), "I16", "I17"}
    named = re.findall(r"`(tests/[\w/]+\.py)`", page)
    assert [name for name in named if not (ROOT / name).is_file()] == []
    assert f"plants {len(MUTANTS)} violations" in page
    for judge in re.findall(r"`([\w/]+)`", "".join(re.findall(r"^\| I.*\| ([^|]+) \|$", page, re.MULTILINE))):
        assert (ROOT / f"src/horae/proof/checking/{judge}.py").is_file(), judge
