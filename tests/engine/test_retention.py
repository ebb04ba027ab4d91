"""Retention: what is old goes, in steps, and what is young stays."""

import os
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from horae.blobs.file import FileBlobs
from horae.engine.duties.retention import INTERVAL, Retention
from tests.clocks import ManualClock

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)


class StoreDouble:
    """A store with the verbs that retention uses."""

    def __init__(self, *answers: int, expired: int = 0) -> None:
        self.answers = list(answers)
        self.expired = expired
        self.asked: list[date] = []

    async def prune(self, *, now: datetime, before: date, limit: int) -> int:
        assert now == NOW
        self.asked.append(before)
        expired = min(self.expired, limit)
        self.expired -= expired
        return self.answers.pop(0) + expired


async def test_it_goes_on_at_once_while_there_is_more_to_drop() -> None:
    store = StoreDouble(5000, 0)
    retention = Retention(store, ManualClock(NOW), keep=timedelta(days=30))  # type: ignore[arg-type]
    assert await retention.tick() == NOW
    assert await retention.tick() == NOW + INTERVAL
    assert store.asked == [date(2026, 10, 16)] * 2


async def test_records_and_events_expire_whatever_the_history_is_kept_for() -> None:
    store = StoreDouble(0, 0, 0, expired=7000)
    retention = Retention(store, ManualClock(NOW), keep=timedelta(days=30))  # type: ignore[arg-type]
    assert [await retention.tick() for _ in range(3)] == [NOW, NOW, NOW + INTERVAL]
    assert store.expired == 0


def age(folder: Path, *, spare: str) -> None:
    long_ago = (NOW - timedelta(days=31)).timestamp()
    for file in folder.rglob("*"):
        if file.is_file() and spare not in str(file):
            os.utime(file, (long_ago, long_ago))


async def test_old_logs_in_files_go_and_parameters_stay(tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path)
    await blobs.put([("logs/old/1", b"o"), ("logs/young/1", b"y"), ("params/old", b"p")])
    age(tmp_path, spare="young")
    retention = Retention(
        StoreDouble(0, 0),  # type: ignore[arg-type]
        ManualClock(NOW),
        keep=timedelta(days=30),
        blobs=blobs,
    )
    assert await retention.tick() == NOW
    assert await retention.tick() == NOW + INTERVAL
    assert [key for key, _ in await blobs.under("")] == ["logs/young/1", "params/old"]
