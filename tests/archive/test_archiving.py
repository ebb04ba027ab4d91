"""Archiving: every run of a day exactly once, whatever happens, and nothing deleted that is not archived."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Iterator
from datetime import date, timedelta
from pathlib import Path

import pytest

from horae.adapters import opened_store
from horae.archive import part, writer
from horae.archive.manifest import part_key
from horae.archive.reader import Archive
from horae.archive.restore import Restorer
from horae.blobs.folder import FolderFiles
from horae.core.errors import InternalError, Unavailable
from horae.core.model import RunId, State
from horae.core.values import replace
from horae.engine.duties.retention import INTERVAL, TURN, Retention
from horae.metrics import Metrics
from horae.ports.store import Store
from tests.archive.places import (
    DAY,
    KEEP,
    NOW,
    CrashingFiles,
    archive_all,
    archived_ids,
    archiver_over,
    attempts_of,
    ended_run,
    given_history,
    sqlite,
    write_history,
)
from tests.clocks import ManualClock
from tests.postgres_server import migrated_schema, postgres_url

COUNT = 47


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several parts a day without many runs."""
    monkeypatch.setattr(part, "MAX_RUNS", 10)
    monkeypatch.setattr(writer, "PAGE", 5)


@pytest.fixture
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """SQLite, and PostgreSQL where a test asks for both."""
    if getattr(request, "param", "sqlite") == "postgres":
        async with migrated_schema(postgres_url()) as url, opened_store(url) as postgres:
            yield postgres
    else:
        async with sqlite(tmp_path) as opened:
            yield opened


both = pytest.mark.parametrize("store", ["sqlite", "postgres"], indirect=True)


@pytest.fixture
def files(tmp_path: Path) -> Iterator[FolderFiles]:
    return FolderFiles(tmp_path / "archive")  # type: ignore[return-value]


@both
async def test_a_day_is_archived_and_then_deleted(store: Store, files: FolderFiles, tmp_path: Path) -> None:
    runs = await given_history(store, COUNT)
    young = await given_history(store, 3, day=DAY + timedelta(days=2), first=1000)

    await archive_all(lambda: archiver_over(store, files))

    assert sorted(await archived_ids(files)) == sorted(run.id for run in runs)
    assert await store.runs([run.id for run in runs]) == {}
    assert len(await store.runs([run.id for run in young])) == 3
    names = sorted(path.name for path in (tmp_path / "archive/runs/year=2026/month=03/day=01").iterdir())
    assert names == [f"part-0000{number}.ndjson.gz" for number in range(1, 6)]


async def test_archived_runs_are_found_as_they_were(store: Store, files: FolderFiles) -> None:
    runs = await given_history(store, COUNT)
    before = dict(await store.runs([run.id for run in runs]))
    await archive_all(lambda: archiver_over(store, files))
    archive = Archive(files)
    for run in runs[::7] + runs[3:4]:
        found = await archive.find(run.id)
        assert found is not None
        params = found.run.spec.params
        assert params == run.spec.params.replace("\n  ", "").replace(": ", ":").replace(", ", ",")
        assert replace(found.run, spec=before[run.id].spec) == before[run.id]
        assert replace(found.run.spec, params=run.spec.params) == run.spec
        assert tuple(found.attempts) == attempts_of(run)
    assert await archive.find(ended_run(DAY + timedelta(hours=3), 999_999).id) is None


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("write", range(1, 8))  # five parts, the filters, the manifest
async def test_a_crash_at_any_write_costs_nothing_and_doubles_nothing(
    store: Store, files: FolderFiles, when: str, write: int
) -> None:
    runs = await given_history(store, COUNT)
    crashing = CrashingFiles(files, **{f"crash_{when}": {write}})  # type: ignore[arg-type]
    assert await archive_all(lambda: archiver_over(store, crashing)) == 1
    assert sorted(await archived_ids(files)) == sorted(run.id for run in runs)
    assert await store.runs([run.id for run in runs]) == {}


async def test_a_crash_between_the_manifest_and_the_end_of_the_deletion_costs_nothing(
    store: Store, files: FolderFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = await given_history(store, COUNT)
    monkeypatch.setattr("horae.engine.duties.archiving.STEP", 10)
    archiver = archiver_over(store, files)
    while len(await store.runs([run.id for run in runs])) in (0, COUNT):
        assert await archiver.step()

    await archive_all(lambda: archiver_over(store, files))

    assert sorted(await archived_ids(files)) == sorted(run.id for run in runs)
    assert await store.runs([run.id for run in runs]) == {}


@both
async def test_nodes_that_archive_the_same_day_at_once_write_each_run_once(store: Store, files: FolderFiles) -> None:
    runs = await given_history(store, COUNT)
    await asyncio.gather(*(archive_all(lambda: archiver_over(store, files)) for _ in range(3)))
    assert sorted(await archived_ids(files)) == sorted(run.id for run in runs)
    assert await store.runs([run.id for run in runs]) == {}


async def test_nothing_is_deleted_while_the_archive_does_not_answer(store: Store, files: FolderFiles) -> None:
    runs, metrics = await given_history(store, COUNT), Metrics()
    down = CrashingFiles(files, down=True)
    archiver = archiver_over(store, down, metrics=metrics)
    retention = Retention(store, ManualClock(NOW), keep=KEEP, archiver=archiver)
    for _ in range(3):
        with pytest.raises(Unavailable):
            await retention.tick()
    assert len(await store.runs([run.id for run in runs])) == COUNT
    assert b"horae_archive_failures_total 3.0" in metrics.text()
    assert b"horae_archive_lag_seconds 7200.0" in metrics.text()

    down.down = False
    while await retention.tick() == NOW:
        pass

    assert await store.runs([run.id for run in runs]) == {}
    assert await retention.tick() == NOW + INTERVAL
    assert f"horae_archived_runs_total {COUNT}.0".encode() in metrics.text()
    assert b"horae_archive_lag_seconds 0.0" in metrics.text()


@both
async def test_a_run_that_appears_after_the_manifest_is_added_to_it_and_not_lost(
    store: Store, files: FolderFiles
) -> None:
    runs = await given_history(store, COUNT)
    archiver = archiver_over(store, files)
    while not await files.keys("manifests/"):
        await archiver.step()
    late = [ended_run(DAY + timedelta(hours=hour), 5000 + hour) for hour in (1, 23)]
    await write_history(store, late)

    await archive_all(lambda: archiver)

    assert sorted(await archived_ids(files)) == sorted(run.id for run in (*runs, *late))
    assert (await store.runs([run.id for run in late])) == {}
    assert await Archive(files).find(late[0].id) is not None


async def test_days_that_ended_less_than_an_hour_ago_are_not_archived(store: Store, files: FolderFiles) -> None:
    yesterday = NOW.replace(hour=0) - timedelta(days=1)
    runs = await given_history(store, 3, day=yesterday)
    archiver = archiver_over(store, files)
    archiver._keep = timedelta(hours=3)  # it is two o'clock
    await archive_all(lambda: archiver)
    assert len(await store.runs([run.id for run in runs])) == 3


async def test_large_parameters_are_archived_whole_and_secrets_never(
    store: Store, files: FolderFiles, tmp_path: Path
) -> None:
    large = '{"text":"%s"}' % ("x" * 100_000)
    await store.blobs.put([("params/a", large.encode())])
    run = ended_run(DAY, 3)
    spec = replace(run.spec, params="{}", params_blob="params/a", secrets="sealed-and-secret")
    await write_history(store, [replace(run, spec=spec)])
    await archive_all(lambda: archiver_over(store, files))
    found = await Archive(files).find(run.id)
    assert found is not None
    assert found.run.spec.params == large
    assert found.run.spec.secrets is None
    assert "sealed-and-secret" not in str(found)

    await store.blobs.delete("params/a")
    restorer = Restorer(Archive(files), store, store.blobs, ManualClock(NOW))
    await restorer.runs([run.id], owner=None)

    [restored] = (await store.runs([run.id])).values()
    assert restored.spec == replace(spec, secrets=None)
    assert await store.blobs.get("params/a") == large.encode()


@both
async def test_a_day_is_restored_in_bounded_steps_and_again_without_effect(
    store: Store, files: FolderFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("horae.archive.restore.MOST", 4)
    runs = await given_history(store, COUNT)
    await archive_all(lambda: archiver_over(store, files))
    restorer = Restorer(Archive(files), store, store.blobs, ManualClock(NOW))
    for _ in range(2):
        total, cursor = 0, None
        while True:
            done = await restorer.day(DAY.date(), owner=None, cursor=cursor)
            assert done.runs <= 4
            total, cursor = total + done.runs, done.cursor
            if cursor is None:
                break
        assert total == COUNT
    assert len(await store.runs([run.id for run in runs])) == COUNT

    await archive_all(lambda: archiver_over(store, files))  # what was restored is neither archived again nor deleted

    assert len(await archived_ids(files)) == COUNT
    assert len(await store.runs([run.id for run in runs])) == COUNT


async def test_owners_restore_their_own_runs_alone(store: Store, files: FolderFiles) -> None:
    runs = await given_history(store, 20)
    await archive_all(lambda: archiver_over(store, files))
    restorer = Restorer(Archive(files), store, store.blobs, ManualClock(NOW))
    absent = RunId(ended_run(NOW, 7777).id)
    done = await restorer.runs([runs[0].id, runs[1].id, absent], owner="ada")
    assert (done.runs, done.missing) == (1, [runs[1].id, absent])
    assert (await store.runs([run.id for run in runs])).keys() == {runs[0].id}


async def test_a_part_that_was_changed_is_refused(store: Store, files: FolderFiles, tmp_path: Path) -> None:
    runs = await given_history(store, 5)
    await archive_all(lambda: archiver_over(store, files))
    part_file = tmp_path / "archive" / part_key(DAY.date(), 1)
    part_file.write_bytes(gzip.compress(gzip.decompress(part_file.read_bytes()).replace(b"reports", b"REPORTS")))
    with pytest.raises(InternalError, match="checksum"):
        await Archive(files).find(runs[0].id)


async def test_a_restored_dead_letter_is_one_again(store: Store, files: FolderFiles) -> None:
    runs = await given_history(store, 20)
    await archive_all(lambda: archiver_over(store, files))
    await Restorer(Archive(files), store, store.blobs, ManualClock(NOW)).runs([runs[3].id], owner=None)
    assert runs[3].state is State.FAILED
    assert await store.count_dead_letters() == 1
    assert len((await store.attempts([runs[3].id]))[runs[3].id]) == 1


async def test_only_the_node_that_has_the_shard_of_a_day_archives_it(store: Store, files: FolderFiles) -> None:
    runs = await given_history(store, 5)
    archiver = archiver_over(store, files)
    archiver._shards = list
    assert not await archiver.step()
    assert len(await store.runs([run.id for run in runs])) == 5
    assert await Retention(store, ManualClock(NOW), keep=KEEP, archiver=archiver).tick() == NOW + TURN
    archiver._shards = lambda: [date(2026, 3, 1).toordinal() % 64]
    assert await archiver.step()
