"""Stores with ended runs, places for files, and archivers over them."""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from horae.archive.reader import Archive
from horae.blobs.object_store import open_bucket
from horae.blobs.objects import ObjectFiles
from horae.core.changes import Change, RunRestored
from horae.core.errors import Unavailable
from horae.core.ids import Ids
from horae.core.model import SHARDS, Attempt, JobError, JobId, Outcome, Policy, Run, RunId, Spec, State, Trigger
from horae.core.schedule.types import At
from horae.engine.duties.archiving import Archiver
from horae.metrics import Metrics
from horae.ports.files import File, Files
from horae.ports.store import Store
from horae.stores.sqlite.store import SqliteStore
from tests.clocks import ManualClock
from tests.engines.aws_client import create_bucket
from tests.engines.provisioned import S3_ACCESS, S3_SECRET, s3_url
from tests.engines.servers import ministack_url, own_name

KEEP = timedelta(days=30)
DAY = datetime(2026, 3, 1, tzinfo=UTC)  # of which the tests have history
NOW = DAY + KEEP + timedelta(days=1, hours=2)


def bucket_url(server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a new bucket on a server: "ministack" or "versitygw", whose keys are in the environment then."""
    name = own_name("horae")
    url, access, secret = (
        (ministack_url(), "test", "test") if server == "ministack" else (s3_url(), S3_ACCESS, S3_SECRET)
    )
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", access)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    create_bucket(url, name, access=access, secret=secret)
    return f"s3://{name}/some/where?endpoint={url}"


def object_files(url: str) -> ObjectFiles:
    """The files under an address."""
    return ObjectFiles(open_bucket(url, "HORAE_ARCHIVE"))


def ended_run(at: datetime, number: int, **changes: object) -> Run:
    """A run that ended."""
    ident = Ids(wall=lambda: (at - timedelta(seconds=9)).timestamp(), random=random.Random(number).randbytes)()
    failed = number % 10 == 3
    of_run: dict[str, object] = {
        "id": RunId(ident),
        "job_id": JobId(ident),
        "owner": ("ada", "ben")[number % 2],
        "created_by": "ada",
        "spec": Spec(
            task="reports.build",
            params=f'{{\n  "day": "2026-03-01", "n": {number}}}',
            name=f"report {number}",
            labels={"team": "a"},
            policy=Policy(timeout=timedelta(seconds=30)),
        ),
        "due_at": at - timedelta(seconds=5),
        "wake_at": at - timedelta(seconds=5),
        "created_at": at - timedelta(seconds=9),
        "schedule": At(time=at - timedelta(seconds=5)),
        "trigger": Trigger.SCHEDULE,
        "state": State.FAILED if failed else State.SUCCEEDED,
        "fence": 2,
        "attempt": 1,
        "result": None if failed else '{"rows":[1,2,3]}',
        "error": JobError(type="ValueError", message="no\nrows") if failed else None,
        "first_started_at": at - timedelta(seconds=4),
        "started_at": at - timedelta(seconds=4),
        "finished_at": at,
    }
    return Run(**{**of_run, **changes})  # type: ignore[arg-type]


def attempts_of(run: Run) -> tuple[Attempt, ...]:
    """What a failed run has tried."""
    if run.error is None or run.finished_at is None:
        return ()
    return (
        Attempt(
            run_id=run.id,
            number=1,
            fence=run.fence,
            node=None,
            started_at=run.started_at,
            ended_at=run.finished_at,
            outcome=Outcome.FAILED,
            error=run.error,
        ),
    )


async def given_history(store: Store, count: int, *, day: datetime = DAY, first: int = 0) -> list[Run]:
    """Runs that ended evenly over a day."""
    runs = [ended_run(day + n * timedelta(days=1) / count, first + n) for n in range(count)]
    await write_history(store, runs)
    return runs


async def write_history(store: Store, runs: list[Run]) -> None:
    """Write ended runs as if they had just ended; they are not marked as restored."""
    for begin in range(0, len(runs), 1000):
        puts = [RunRestored(run, attempts_of(run), run.finished_at or NOW) for run in runs[begin : begin + 1000]]
        await store.apply([Change(puts=(put,)) for put in puts])
    if isinstance(store, SqliteStore):
        await store._executor.write(lambda transaction: transaction.db.execute("DELETE FROM restored"))


@asynccontextmanager
async def sqlite(folder: Path) -> AsyncIterator[SqliteStore]:
    """An empty store."""
    store = SqliteStore(folder / "horae.db", wall=lambda: NOW)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def archiver_over(store: Store, files: Files, *, metrics: Metrics | None = None) -> Archiver:
    """An archiver that is responsible for every day."""
    return Archiver(
        store,
        store.blobs,
        files,
        ManualClock(NOW),
        metrics or Metrics(),
        keep=KEEP,
        shards=lambda: range(SHARDS),
    )


async def archive_all(make: Callable[[], Archiver]) -> int:
    """Archive to the end, with a new archiver after each crash; how many crashes there were."""
    crashes, archiver = 0, make()
    while True:
        try:
            while await archiver.step():
                pass
            return crashes
        except Crash:
            crashes += 1
            archiver = make()


async def archived_ids(files: Files) -> list[str]:
    """The ids of all runs that the manifests name, as often as they do."""
    archive = Archive(files)
    found: list[str] = []
    for day in await archive.days():
        manifest = await archive.manifest(day)
        assert manifest is not None
        for part in manifest.parts:
            ids = [each.run.id async for each in archive.runs_of(part)]
            assert (len(ids), min(ids), max(ids)) == (part.runs, part.first_id, part.last_id)
            found += ids
    return found


class Crash(Exception):
    """The process is killed."""


@dataclass
class CrashingFiles:
    """Files whose user is killed before or after each of its writes in turn, or that do not answer."""

    files: Files
    crash_before: set[int] = field(default_factory=set)
    crash_after: set[int] = field(default_factory=set)
    down: bool = False
    writes: int = 0

    async def create(self, key: str, data: bytes) -> bool:
        self._answer()
        self.writes += 1
        if self.writes in self.crash_before:
            raise Crash
        created = await self.files.create(key, data)
        if self.writes in self.crash_after:
            raise Crash
        return created

    async def replace(self, key: str, data: bytes, *, version: str) -> bool:
        self._answer()
        return await self.files.replace(key, data, version=version)

    async def read(self, key: str) -> File | None:
        self._answer()
        return await self.files.read(key)

    async def keys(self, prefix: str, *, after: str = "", limit: int = 1000) -> list[str]:
        self._answer()
        return await self.files.keys(prefix, after=after, limit=limit)

    def _answer(self) -> None:
        if self.down:
            raise Unavailable("the archive does not answer")
