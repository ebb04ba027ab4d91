"""`horae check` as users run it."""

import json
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from horae.cli.app import run
from horae.proof.checking import Recorder, Recording, judge_recording
from horae.proof.checking.history.records import Action, Closed, Definition, Invoke, Line, Ok, Setup
from horae.stores.sqlite.executor import InlineExecutor
from horae.stores.sqlite.store import SqliteStore
from tests.clocks import ManualClock
from tests.proof.checking.clean_histories import clean_history
from tests.proof.checking.history_mutants import a_run_is_dropped
from tests.proof.checking.mutated_histories import planted
from tests.proof.checking.store_mutants import SampleHistory, SqliteTables, a_run_starts_early, create_sample_history

AGO = timedelta(minutes=10)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use no settings but those of the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HORAE_STORE", raising=False)


async def given_store(file: Path, violated: bool = False) -> SampleHistory:
    clock, executor = ManualClock(datetime.now(UTC) - AGO), InlineExecutor(durable=False)
    store = SqliteStore(file, executor=executor, wall=clock.now)
    await store.open()
    sample = await create_sample_history(store, clock)
    if violated:
        await a_run_starts_early(SqliteTables(executor), sample)
    await store.close()
    return sample


def horae(*words: str) -> int:
    """Run one command in a thread, because it runs an event loop of its own."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(run, list(words)).result()


async def test_nothing_wrong_is_told_in_a_few_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await given_store(tmp_path / "horae.db")
    capsys.readouterr()  # what the tasks of the sample logged
    assert horae("check", "--store", "sqlite:///horae.db") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["store", "sqlite:///horae.db"]
    assert lines[2].split() == ["violations", "none"]


async def test_violations_are_listed_and_the_exit_code_is_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sample = await given_store(tmp_path / "horae.db", violated=True)
    capsys.readouterr()  # what the tasks of the sample logged
    assert horae("check", "--store", "sqlite:///horae.db") == 1
    title, line = capsys.readouterr().out.splitlines()
    assert title.split() == ["violation", "subject", "detail"]
    assert line.startswith(f"early_start  run_{sample.steady_runs[5].id}  it started 5 ms before it was due")
    assert horae("check", "--store", "sqlite:///horae.db", "-o", "json") == 1
    report = json.loads(capsys.readouterr().out)
    assert report["runs"] > 100
    assert [(each["code"], each["subject"]) for each in report["violations"]] == [
        ("early_start", f"run_{sample.steady_runs[5].id}")
    ]


async def test_what_was_due_before_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await given_store(tmp_path / "horae.db", violated=True)
    capsys.readouterr()  # what the tasks of the sample logged
    since = (datetime.now(UTC) - timedelta(seconds=1)).isoformat()
    assert horae("check", "--store", "sqlite:///horae.db", "--since", since, "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["violations"] == []


def test_a_look_makes_no_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert horae("check", "--store", "sqlite:///nowhere.db") == 2
    assert "there is no store at nowhere.db" in capsys.readouterr().err
    assert not (tmp_path / "nowhere.db").exists()


def test_a_look_brings_no_store_up_to_date(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sqlite3.connect(tmp_path / "old.db").close()
    (tmp_path / "old.db").touch()
    assert horae("check", "--store", "sqlite:///old.db") == 2
    assert "horae db migrate" in capsys.readouterr().err


# --- recorded histories


def recorded(file: Path, lines: list[Line]) -> str:
    with Recorder(file) as recorder:
        recorder.write(*lines)
    return str(file)


def proving() -> list[Line]:
    """A clean history in which everything occurred that must."""
    return next(
        lines for lines in map(clean_history, range(50)) if judge_recording(Recording(lines)).coverage.is_complete
    )


def test_a_clean_history_is_told_with_what_it_proves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = proving()
    files = [recorded(tmp_path / "a.jsonl", lines[:100]), recorded(tmp_path / "b.jsonl", lines[100:])]
    assert horae("check", "--history", *files, "--prove") == 0
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["violations", "none"] in shown
    assert [line[0] for line in shown if line[0] in ("occurred", "faults", "never")] == ["occurred", "faults"]
    assert horae("check", "--history", *files, "-o", "json") == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["violations"], report["proof"]["proves"], report["proof"]["unfired"]) == ([], True, [])
    assert report["proof"]["faults"]["planners gone"] == 1
    assert set(report["slots_by"]) <= {"cronsim", "arithmetic"}


def test_what_never_occurred_proves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = recorded(tmp_path / "a.jsonl", [Setup(at=1.0, planned=["postgres stop"]), Closed(at=100.0)])
    assert horae("check", "--history", file) == 0
    assert "postgres stop" in capsys.readouterr().out
    assert horae("check", "--history", file, "--prove") == 1


def test_a_history_with_a_violation_tells_the_invariant(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [(_, lines)] = planted(a_run_is_dropped, 1)
    file = recorded(tmp_path / "a.jsonl", lines)
    assert horae("check", "--history", file) == 1
    title, *found = capsys.readouterr().out.splitlines()
    assert title.split() == ["broken", "violation", "subject", "detail"]
    assert any(line.split()[:2] == ["I1", "lost"] for line in found)
    assert horae("check", "--history", file, "-o", "json") == 1
    assert ("I1", "lost") in {(v["invariant"], v["code"]) for v in json.loads(capsys.readouterr().out)["violations"]}


async def test_the_final_state_may_come_from_the_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sample = await given_store(tmp_path / "horae.db")
    at = sample.flaky.created_at.timestamp()
    lines: list[Line] = [
        Invoke(at=at, call="1", action=Action.CREATE, definition=Definition(label="gone")),
        Ok(at=at + 1, call="1", job=f"job_{'0' * 32}", run=f"run_{'0' * 32}"),
    ]
    file = recorded(tmp_path / "a.jsonl", lines)
    assert horae("check", "--history", file) == 0  # nobody knows what became of it
    capsys.readouterr()
    assert horae("check", "--history", file, "--store", "sqlite:///horae.db", "-o", "json") == 1
    report = json.loads(capsys.readouterr().out)
    assert {(each["code"], each["subject"]) for each in report["violations"]} >= {("lost", f"run_{'0' * 32}")}
    assert report["runs"] > 100


def test_a_history_that_is_not_there_is_a_wrong_call(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert horae("check", "--history", str(tmp_path / "none.jsonl")) == 2
    assert "there is no recorded history at" in capsys.readouterr().err
