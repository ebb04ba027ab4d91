"""`horae check` as a user meets it."""

import json
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from horae.cli.app import run
from horae.clock import ManualClock
from horae.stores.sqlite import SqliteStore
from horae.stores.sqlite_executor import InlineExecutor
from tests.checking.planting import SqliteGround, Story, a_run_starts_early, tell_story

AGO = timedelta(minutes=10)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings but those of the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HORAE_STORE", raising=False)


async def told(file: Path, lie: bool = False) -> Story:
    clock, executor = ManualClock(datetime.now(UTC) - AGO), InlineExecutor(durable=False)
    store = SqliteStore(file, executor=executor, wall=clock.now)
    await store.open()
    story = await tell_story(store, clock)
    if lie:
        await a_run_starts_early(SqliteGround(executor), story)
    await store.close()
    return story


def horae(*words: str) -> int:
    """One command, in a thread of its own, for it runs an event loop."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(run, list(words)).result()


async def test_nothing_wrong_is_told_in_a_few_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await told(tmp_path / "horae.db")
    assert horae("check", "--store", "sqlite:///horae.db") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["store", "sqlite:///horae.db"]
    assert lines[2].split() == ["violations", "none"]


async def test_violations_are_listed_and_the_exit_code_is_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    story = await told(tmp_path / "horae.db", lie=True)
    assert horae("check", "--store", "sqlite:///horae.db") == 1
    title, line = capsys.readouterr().out.splitlines()
    assert title.split() == ["violation", "subject", "detail"]
    assert line.startswith(f"early_start  run_{story.steady_runs[5].id}  it started 5 ms before it was due")
    assert horae("check", "--store", "sqlite:///horae.db", "-o", "json") == 1
    report = json.loads(capsys.readouterr().out)
    assert report["runs"] > 100
    assert [(each["code"], each["subject"]) for each in report["violations"]] == [
        ("early_start", f"run_{story.steady_runs[5].id}")
    ]


async def test_what_was_due_before_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await told(tmp_path / "horae.db", lie=True)
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
