"""Issue 17: 100,000 ended runs are archived to S3 with three kills in between, each exactly once in the manifests.

DuckDB can query them, they can be restored, and the store deletes them only afterwards.
"""

import time
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import duckdb
import pytest

from horae.adapters import make_archive, make_store
from horae.archive.manifest import folder_of, manifest_key
from horae.archive.reader import Archive
from horae.archive.restore import Restorer
from horae.core.model import Run
from horae.core.values import replace
from horae.ports.files import Files
from horae.ports.store import Store
from tests.acceptance.conftest import ReportFigure
from tests.archive.places import archived_ids, bucket_url, ended_run, write_history
from tests.clocks import ManualClock
from tests.docs.pages import ROOT, blocks_of
from tests.postgres_server import migrated_schema, postgres_url
from tests.system.archiving import KEEP, ArchivingProcess

pytestmark = pytest.mark.acceptance

COUNT = 100_000
NOW = datetime.now(UTC)
DAY = (NOW - 2 * KEEP).replace(hour=0, minute=0, second=0, microsecond=0)
WITHIN = 300.0  # seconds, for all of it


class History(NamedTuple):
    """A store with runs that ended long ago."""

    url: str
    store: Store
    runs: list[Run]

    async def left(self) -> set[str]:
        """The ids that the store still has."""
        found: set[str] = set()
        ids = [run.id for run in self.runs]
        for begin in range(0, COUNT, 20_000):
            found |= (await self.store.runs(ids[begin : begin + 20_000], ended=True)).keys()
        return found


@pytest.fixture(params=["sqlite", "postgres"])
async def history(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[History]:
    if request.param == "sqlite":
        yield await given(f"sqlite:///{tmp_path}/horae.db")
    else:
        async with migrated_schema(postgres_url()) as url:
            yield await given(url)


async def given(url: str) -> History:
    store: Store = make_store(url)
    await store.open()
    runs = [ended_run(DAY + n * timedelta(days=1) / COUNT, n) for n in range(COUNT)]
    await write_history(store, runs)
    return History(url, store, runs)


async def test_each_of_100_000_runs_is_archived_once_whatever_is_killed(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, report_figure: ReportFigure
) -> None:
    url = bucket_url("ministack", monkeypatch)
    files, process = make_archive(url), ArchivingProcess(history.url, url)
    assert files is not None
    began = time.monotonic()

    for parts in (3, 7):

        async def written(least: int = parts) -> bool:
            return len(await files.keys(folder_of(DAY.date()))) >= least

        await process.kill_when(written)
        assert await files.read(manifest_key(DAY.date())) is None
        assert len(await history.left()) == COUNT, "nothing is deleted before the manifest"

    async def has_manifest() -> bool:
        return await files.read(manifest_key(DAY.date())) is not None

    await process.kill_when(has_manifest)
    left = len(await history.left())
    await process.finish()
    took = time.monotonic() - began
    assert took < WITHIN

    assert await history.left() == set()
    counts = Counter(await archived_ids(files))
    assert counts == Counter(run.id for run in history.runs)
    size = await check_by_duckdb(files, tmp_path, monkeypatch)
    await check_restore(history, files)
    await history.store.close()
    report_figure(f"{took:.1f} s with three kills ({left:,} runs left at the third), {size / COUNT:.0f} bytes a run")


async def check_by_duckdb(files: Files, folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Ask a copy of the files what the guide asks; the size of the copy."""
    size = 0
    for key in await files.keys(folder_of(DAY.date())):
        file = await files.read(key)
        assert file is not None
        copy = folder / "archive" / key
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(file.data)
        size += len(file.data)
    monkeypatch.chdir(folder)
    view = next(block.text for block in blocks_of(ROOT / "docs/guides/archive.md") if block.language == "sql")
    with duckdb.connect() as database:
        database.execute(view)
        asked = "SELECT status, count(*), count(DISTINCT id) FROM runs GROUP BY ALL ORDER BY ALL"
        failed = COUNT // 10
        assert database.execute(asked).fetchall() == [
            ("failed", failed, failed),
            ("succeeded", COUNT - failed, COUNT - failed),
        ]
    return size


async def check_restore(history: History, files: Files) -> None:
    """Restore some runs by id, then the day: they are as they were."""
    restorer = Restorer(Archive(files), history.store, history.store.blobs, ManualClock(NOW))
    some = history.runs[:: COUNT // 50]
    done = await restorer.runs([run.id for run in some], owner=None)
    assert (done.runs, list(done.missing)) == (len(some), [])
    found = await history.store.runs([run.id for run in some])
    assert [replace(found[run.id], spec=run.spec) for run in some] == some
    total, cursor = 0, None
    while True:
        done = await restorer.day(DAY.date(), owner=None, cursor=cursor)
        total, cursor = total + done.runs, done.cursor
        if cursor is None:
            break
    assert total == COUNT
    assert len(await history.left()) == COUNT
