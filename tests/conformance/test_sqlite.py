"""What only the SQLite store has: a file, migrations at opening, group commit, several processes, and its errors."""

import asyncio
import os
import sqlite3
import stat
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from horae.core.decisions.results import start, succeed
from horae.core.errors import Misconfigured, Unavailable
from horae.core.model import Reason, RunId, State, Trigger
from horae.core.records import TaskSchema
from horae.core.signals import Kind, Signal
from horae.core.values import replace
from horae.lookup import find_run
from horae.ports.reader import RunFilter
from horae.ports.store import Store
from horae.stores.common.statements import migrations
from horae.stores.sqlite import executor as sqlite_executor
from horae.stores.sqlite.batches import FEW
from horae.stores.sqlite.claim import MAX_PAGE
from horae.stores.sqlite.codecs import STORED_JOB, STORED_RUN, to_json
from horae.stores.sqlite.database import NETWORK_FILE_SYSTEMS, STATEMENTS, Database, file_system_of
from horae.stores.sqlite.executor import InlineExecutor, ThreadedExecutor, Transaction
from horae.stores.sqlite.store import SqliteStore
from tests import acts
from tests.conformance.builders import (
    DAY,
    MINUTE,
    NOW,
    ODD,
    SECOND,
    claimed,
    failed,
    given_node,
    given_running,
    ids,
    one_shot,
    retried,
    unusual_policy,
)

STEPS = [number for number, _ in migrations("sqlite")]


@asynccontextmanager
async def opened(path: Path, **options: object) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path, **options)  # type: ignore[arg-type]
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def count(store: Store) -> int:
    return len((await store.list_runs(RunFilter(), cursor=None, limit=100_000)).items)


def test_the_store_is_one(tmp_path: Path) -> None:
    store: Store = SqliteStore(tmp_path / "x.db")
    assert store.blobs is not None


# --- the file


async def test_the_file_is_made_with_its_folder_and_is_private(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "horae.db"
    async with opened(path) as store:
        await acts.create(store, [one_shot()])
        modes = {name: stat.S_IMODE((path.parent / name).stat().st_mode) for name in os.listdir(path.parent)}
    assert set(modes.values()) == {0o600}
    assert {"horae.db", "horae.db-wal"} <= set(modes)


async def test_a_file_that_cannot_be_made_is_misconfigured(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(Misconfigured, match="cannot be made"):
        await SqliteStore(tmp_path / "file" / "horae.db").open()


async def test_a_file_that_is_no_database_is_misconfigured(tmp_path: Path) -> None:
    path = tmp_path / "horae.db"
    path.write_bytes(b"certainly not a database " * 100)
    with pytest.raises(Misconfigured, match="not a SQLite database"):
        await SqliteStore(path).open()


async def test_a_store_goes_on_where_it_was(tmp_path: Path) -> None:
    run = one_shot()
    async with opened(tmp_path / "horae.db") as store:
        await acts.create(store, [run])
    async with opened(tmp_path / "horae.db") as store:
        assert await find_run(store, run.id, owner=None) == run
    assert not (tmp_path / "horae.db-wal").exists(), "the last one to close folds the log in"


MOUNTS = """\
/dev/vda / ext4 rw 0 0
server:/export /mnt/nfs nfs4 rw 0 0
//server/share /mnt/with\\040space cifs rw 0 0
tmpfs /mnt/nfs/local tmpfs rw 0 0
/dev/vdb /mnt/over ext4 rw 0 0
server:/x /mnt/over nfs rw 0 0
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/srv", "ext4"),
        ("/mnt/nfs/data", "nfs4"),
        ("/mnt/nfsx", "ext4"),
        ("/mnt/with space/data", "cifs"),
        ("/mnt/nfs/local/data", "tmpfs"),
        ("/mnt/over", "nfs"),
    ],
)
def test_the_file_system_of_a_folder_is_known(folder: str, kind: str) -> None:
    assert file_system_of(Path(folder), lambda: MOUNTS) == kind


def test_where_mounts_cannot_be_read_the_file_system_is_unknown() -> None:
    def nothing() -> str:
        raise FileNotFoundError("/proc/mounts")

    assert file_system_of(Path("/"), nothing) is None


async def test_network_file_systems_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("horae.stores.sqlite.database.file_system_of", lambda folder: "nfs4")
    with pytest.raises(Misconfigured, match="network file system"):
        await SqliteStore(tmp_path / "horae.db").open()
    assert {"nfs", "cifs", "smb3", "fuse.sshfs"} <= NETWORK_FILE_SYSTEMS


# --- migrations


async def test_migrating_tells_what_it_did(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "horae.db")
    assert (await store.status())[:2] == (0, STEPS[-1])
    assert await store.migrate() == STEPS
    assert await store.migrate() == []
    assert (await store.status())[:2] == (STEPS[-1], STEPS[-1])


async def test_many_may_start_at_once(tmp_path: Path) -> None:
    stores = [SqliteStore(tmp_path / "horae.db") for _ in range(6)]
    steps = await asyncio.gather(*(store.migrate() for store in stores))
    assert sorted(steps) == [[], [], [], [], [], STEPS]


async def test_a_newer_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "horae.db"
    async with opened(path):
        pass
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("INSERT INTO migrations VALUES (999, 0)")
    with pytest.raises(Misconfigured, match="upgrade Horae"):
        await SqliteStore(path).open()


async def test_a_database_from_before_the_first_release_is_refused(tmp_path: Path) -> None:
    """Its migrations are one schema now, which only a new database begins with."""
    path = tmp_path / "horae.db"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(STATEMENTS["create_versions"])
        db.execute(STATEMENTS["add_version"], (STEPS[0] - 1, 0))
    with pytest.raises(Misconfigured, match="which was never released and cannot be migrated"):
        await SqliteStore(path).open()


async def test_tables_have_the_columns_that_rows_are_built_from_in_their_places(tmp_path: Path) -> None:
    async with opened(tmp_path / "horae.db"):
        with closing(sqlite3.connect(tmp_path / "horae.db")) as db:
            runs = [row[1] for row in db.execute("PRAGMA table_info(runs)")]
            jobs = [row[1] for row in db.execute("PRAGMA table_info(jobs)")]
    assert tuple(runs) == STORED_RUN
    assert tuple(jobs) == STORED_JOB


async def test_a_claim_brings_a_run_as_a_look_up_finds_it(tmp_path: Path) -> None:
    """Both read it column by column, by statements of their own; all that a run can have while it waits is set."""
    full = one_shot(
        NOW - 3 * MINUTE,
        params='{"text": "\\u0000 \\"é\\""}',
        params_blob="blob",
        name=ODD,
        key=ODD,
        labels={ODD: ODD},
        queue=ODD,
        priority=3,
        ordering_key=ODD,
        policy=unusual_policy(),
        secrets=ODD,
        owner=ODD,
        created_by="bob",
        trigger=Trigger.REQUEUE,
        slot=NOW - MINUTE,
        wake_at=NOW - 2 * MINUTE,
        created_at=NOW - DAY,
        gate=ODD,
        crashes=2,
        revision=4,
        requeue_of=RunId("ab" * 16),
    )
    async with opened(tmp_path / "horae.db") as store:
        node = await given_node(store)
        await acts.create(store, [full])
        [first] = await claimed(store, node)
        assert first == replace(full, state=State.CLAIMED, node=node, fence=1)
        assert first == await find_run(store, full.id, owner=None)

        await acts.request_stop(store, [full.id], Reason.CANCELLED)
        again = retried(start(first, NOW))
        assert await store.settle([replace(again, run=replace(again.run, progress=0.5))]) == [True]
        [second] = await claimed(store, node, until=NOW + DAY)
        assert (second.fence, second.attempt, second.progress, second.stop) == (2, 1, 0.5, Reason.CANCELLED)
        assert second == await find_run(store, full.id, owner=None)


async def test_a_batch_of_several_kinds_is_written_in_its_order_and_once(tmp_path: Path) -> None:
    """Runs that are alike are written together if they are many, the others one by one."""
    many = FEW + 1
    runs = [one_shot(name=name) for name in ["single", *["first"] * many, "few", "few", *["second"] * many, "last"]]
    async with opened(tmp_path / "horae.db") as store:
        node = await given_node(store)
        await acts.create(store, runs)
        extra = [one_shot(name="second") for _ in range(2)]
        await acts.create(store, [*runs, *extra])
        assert ids(await claimed(store, node)) == ids([*runs, *extra])
        told = await store.events.read(after=None, owner=None, limit=10)
        assert [batch.subjects for batch in told] == [ids(runs), ids(extra)]


@pytest.mark.parametrize("apart", [SECOND * 0, SECOND], ids=["at one time", "at times of their own"])
async def test_a_batch_is_stored_as_it_is(apart: timedelta, tmp_path: Path) -> None:
    due = [NOW + place * apart for place in range(FEW + 1)]
    runs = [one_shot(at, slot=at, name=ODD, params=to_json([ODD, place])) for place, at in enumerate(due)]
    async with opened(tmp_path / "horae.db") as store:
        await acts.create(store, runs)
        assert await store.runs([run.id for run in runs]) == {run.id: run for run in runs}


async def test_a_claim_reads_on_until_it_has_enough(tmp_path: Path) -> None:
    """Pages end in the middle of what is due at one instant, and may hold nothing that can be taken."""
    line = [one_shot(gate="line") for _ in range(MAX_PAGE + 1)]
    free = [one_shot(NOW, queue=queue) for queue in ("default", "mail") for _ in range(MAX_PAGE + 1)]
    async with opened(tmp_path / "horae.db") as store:
        node = await given_node(store)
        await acts.create(store, [*line, *free])
        wanted = {line[0].id, *ids(free)}
        runs = await claimed(store, node, now=NOW - SECOND, limit=len(wanted))
        assert sorted(ids(runs)) == sorted(wanted)


async def test_of_two_results_of_a_run_in_one_batch_the_first_is_written(tmp_path: Path) -> None:
    async with opened(tmp_path / "horae.db") as store:
        [run] = await given_running(store, one_shot())
        succeeded = succeed(run, '"done"', NOW)
        assert await store.settle([succeeded, failed(run), succeeded]) == [True, False, True]
        assert await find_run(store, run.id, owner=None) == succeeded.run
        assert await store.count_dead_letters() == 0


async def test_of_ends_that_come_with_one_that_is_void_or_with_a_copy_each_is_written_and_told_once(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path / "horae.db") as store:
        runs = await given_running(store, *(one_shot() for _ in range(4)))
        one, two, three, four = (succeed(run, f'"{place}"', NOW) for place, run in enumerate(runs))
        begin = await store.events.last()
        assert await store.settle([one, replace(two, run=replace(two.run, fence=7))]) == [True, False]
        assert await store.settle([three, three]) == [True, True]
        assert await store.settle([one, two, four]) == [True] * 3

        told = await store.events.read(after=begin, owner=None, limit=10)
        assert [list(batch.subjects) for batch in told] == [[runs[0].id], [runs[2].id], [runs[1].id, runs[3].id]]
        ended = await store.runs([run.id for run in runs])
        assert [ended[run.id].result for run in runs] == ['"0"', '"1"', '"2"', '"3"']


async def test_commits_are_on_the_disk_before_they_are_answered(tmp_path: Path) -> None:
    Database(tmp_path / "horae.db").prepare()
    with closing(Database(tmp_path / "horae.db").writer()) as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert db.execute("PRAGMA synchronous").fetchone() == (2,)
        assert db.execute("PRAGMA foreign_keys").fetchone() == (0,)
    with closing(Database(tmp_path / "horae.db").reader()) as db, pytest.raises(sqlite3.OperationalError):
        db.execute("CREATE TABLE x (y)")


# --- group commit


class Counting(Database):
    """Counts the commits of its writers, and tells when one first tries to begin."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.commits = 0
        self.begun = threading.Event()

    def writer(self) -> sqlite3.Connection:
        db = super().writer()
        db.set_trace_callback(self._count)
        return db

    def _count(self, statement: str) -> None:
        self.commits += statement == "COMMIT"
        if statement == "BEGIN IMMEDIATE":
            self.begun.set()


def numbered(number: int, transaction: Transaction) -> int:
    return number


async def test_verbs_that_come_together_share_a_commit(tmp_path: Path) -> None:
    async with opened(tmp_path / "horae.db"):
        pass
    executor, database = ThreadedExecutor(), Counting(tmp_path / "horae.db")
    await executor.open(database, lambda signals: None)
    gate = threading.Event()
    first = asyncio.create_task(executor.write(lambda transaction: gate.wait(5)))
    rest = [asyncio.create_task(executor.write(partial(numbered, n))) for n in range(50)]
    await asyncio.sleep(0)
    gate.set()
    assert await asyncio.gather(first, *rest) == [True, *range(50)]
    await executor.close()
    assert database.commits <= 2


async def test_verbs_that_share_a_commit_share_its_events(tmp_path: Path) -> None:
    """Else each of many small requests would pay for a row of its own."""
    executor = ThreadedExecutor()
    async with opened(tmp_path / "horae.db", executor=executor) as store:
        gate = threading.Event()
        blocker = asyncio.create_task(executor.write(lambda transaction: gate.wait(5)))
        runs = [one_shot(owner=("ada", "bob")[number % 2]) for number in range(60)]
        creates = [asyncio.create_task(acts.create(store, [run])) for run in runs]
        await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(blocker, *creates)

        batches = await store.events.read(after=None, owner=None, limit=100)

    assert len(batches) <= 4
    assert [subject for batch in batches if batch.owner == "ada" for subject in batch.subjects] == ids(runs[::2])
    assert [subject for batch in batches if batch.owner == "bob" for subject in batch.subjects] == ids(runs[1::2])


async def test_a_verb_that_fails_does_not_harm_those_beside_it(tmp_path: Path) -> None:
    async with opened(tmp_path / "horae.db"):
        pass
    executor = ThreadedExecutor()
    heard: list[Signal] = []
    await executor.open(Database(tmp_path / "horae.db"), heard.extend)
    gate = threading.Event()

    def register(name: str, fails: bool, transaction: Transaction) -> str:
        transaction.db.execute("INSERT INTO records VALUES ('task', '', ?, '{}', NULL)", (name,))
        transaction.due(NOW if fails else datetime(2030, 1, 1, tzinfo=UTC))
        if fails:
            raise LookupError(name)
        return name

    blocker = asyncio.create_task(executor.write(lambda transaction: gate.wait(5)))
    verbs = [executor.write(partial(register, f"t{n}", n % 3 == 0)) for n in range(9)]
    outcomes = asyncio.gather(*verbs, return_exceptions=True)
    await asyncio.sleep(0)
    gate.set()
    await blocker

    found = [type(outcome) for outcome in await outcomes]
    names = await executor.read(lambda db: [name for (name,) in db.execute("SELECT key FROM records ORDER BY 1")])
    await executor.close()

    assert found == [LookupError, str, str] * 3
    assert names == ["t1", "t2", "t4", "t5", "t7", "t8"]
    assert [signal.at for signal in heard] == [datetime(2030, 1, 1, tzinfo=UTC)], "what was undone is not told"


async def test_a_verb_that_fails_alone_leaves_nothing_and_keeps_the_connection(tmp_path: Path) -> None:
    async with opened(tmp_path / "horae.db"):
        pass
    executor, database = ThreadedExecutor(), Counting(tmp_path / "horae.db")
    heard: list[Signal] = []
    await executor.open(database, heard.extend)

    def fail(transaction: Transaction) -> None:
        transaction.db.execute("INSERT INTO records VALUES ('task', '', 't', '{}', NULL)")
        transaction.due(NOW)
        raise LookupError

    connections = [await executor.write(lambda transaction: id(transaction.db))]
    with pytest.raises(LookupError):
        await executor.write(fail)
    connections.append(await executor.write(lambda transaction: id(transaction.db)))
    names = await executor.read(lambda db: db.execute("SELECT key FROM records").fetchall())
    await executor.close()

    assert names == []
    assert heard == []
    assert database.commits == 2
    assert len(set(connections)) == 1


async def test_what_comes_while_another_process_has_the_lock_shares_the_next_commit(tmp_path: Path) -> None:
    async with opened(tmp_path / "horae.db"):
        pass
    executor, database = ThreadedExecutor(), Counting(tmp_path / "horae.db")
    await executor.open(database, lambda signals: None)
    with closing(sqlite3.connect(tmp_path / "horae.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        first = asyncio.create_task(executor.write(partial(numbered, 0)))
        await asyncio.to_thread(database.begun.wait, 5)
        others = [asyncio.create_task(executor.write(partial(numbered, number))) for number in (1, 2)]
        await asyncio.sleep(0)
        other.execute("ROLLBACK")

    answers = await asyncio.gather(first, *others)
    await executor.close()

    assert answers == [0, 1, 2]
    assert database.commits == 1


async def test_a_caller_that_went_away_does_not_stop_the_writer(tmp_path: Path) -> None:
    async with opened(tmp_path / "horae.db") as store:
        tasks = [asyncio.create_task(acts.create(store, [one_shot()])) for _ in range(10)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert await acts.create(store, [one_shot()]) is not None
        assert await count(store) >= 6


async def test_closing_waits_for_what_was_begun(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "horae.db")
    await store.open()
    creates = [asyncio.create_task(acts.create(store, [one_shot()])) for _ in range(300)]
    await asyncio.sleep(0)
    await store.close()
    assert len(await asyncio.gather(*creates)) == 300
    async with opened(tmp_path / "horae.db") as again:
        assert await count(again) == 300


async def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "horae.db")
    with pytest.raises(Unavailable, match="closed"):
        await acts.create(store, [one_shot()])
    await store.open()
    await store.close()
    await store.close()
    with pytest.raises(Unavailable, match="closed"):
        await acts.create(store, [one_shot()])
    with pytest.raises(Unavailable, match="closed"):
        await store.nodes()
    assert [thread.name for thread in threading.enumerate() if "sqlite-writer" in thread.name] == []


# --- errors


async def test_a_lock_is_taken_as_soon_as_it_is_free(tmp_path: Path) -> None:
    """After this time SQLite's own wait would sleep for another 88 ms."""
    waits = []
    async with opened(tmp_path / "horae.db") as store:
        for _ in range(3):
            with closing(sqlite3.connect(tmp_path / "horae.db", isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                write = asyncio.create_task(acts.create(store, [one_shot()]))
                await asyncio.sleep(0.24)
                other.execute("ROLLBACK")
            began = time.monotonic()
            await write
            waits.append(time.monotonic() - began)
    assert min(waits) < 0.05


async def test_a_lock_that_is_not_released_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("horae.stores.sqlite.database.BUSY_SECONDS", 0.05)
    monkeypatch.setattr(sqlite_executor, "LOCKED_SECONDS", 0.1)
    async with opened(tmp_path / "horae.db") as store:
        with closing(sqlite3.connect(tmp_path / "horae.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(Unavailable, match="locked"):
                await acts.create(store, [one_shot()])
            assert await count(store) == 0, "reading goes on"
            other.execute("ROLLBACK")
        await acts.create(store, [one_shot()])
        assert await count(store) == 1


class Small(Database):
    """A database on a disk that is soon full."""

    def writer(self) -> sqlite3.Connection:
        db = super().writer()
        db.execute("PRAGMA max_page_count = 120")
        return db


async def create_until_refused(store: Store) -> tuple[int, Exception]:
    for answered in range(10_000):
        try:
            await acts.create(store, [one_shot(params='{"x": "%s"}' % ("y" * 2000))])
        except Unavailable as exc:
            return answered, exc
    raise AssertionError("the disk is never full")


async def test_a_full_disk_is_unavailable_and_what_was_answered_stays(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "horae.db")
    store._database = Small(tmp_path / "horae.db")
    await store.open()
    answered, error = await create_until_refused(store)
    assert "full" in str(error)
    assert await count(store) == answered
    await store.close()

    async with opened(tmp_path / "horae.db") as again:
        await acts.create(again, [one_shot()])
        assert await count(again) == answered + 1


# --- several processes

BROKEN_DISK = """
import asyncio, os, resource, sys
from horae.core.errors import Unavailable
from horae.stores.sqlite.store import SqliteStore
from tests.conformance.builders import one_shot

async def main(path):
    store = SqliteStore(path)
    await store.open()
    await store.create([one_shot()])
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (os.stat(path + "-wal").st_size, most))
    try:
        await store.create([one_shot()])
    except Unavailable as exc:
        print(exc)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    await store.create([one_shot()])
    await store.close()

asyncio.run(main(sys.argv[1]))
"""


async def test_after_a_disk_error_it_goes_on_from_what_is_on_the_disk(tmp_path: Path) -> None:
    """A process may not write beyond a limit, which SQLite takes for an error of the disk."""
    path = tmp_path / "horae.db"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", BROKEN_DISK, str(path), stdout=asyncio.subprocess.PIPE
    )
    told = (await process.communicate())[0].decode()
    assert "input/output error" in told
    assert process.returncode == 0
    async with opened(path) as store:
        assert await count(store) == 2
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


PROCESS = """
import asyncio, sys
from horae.stores.sqlite.store import SqliteStore
from tests.conformance.builders import claimed, given_node, one_shot
from horae.core.decisions.results import start, succeed
from tests.conformance.builders import NOW

async def main(path):
    store = SqliteStore(path)
    await store.open()
    node = await given_node(store)
    for _ in range(40):
        await store.create([one_shot() for _ in range(5)])
        for run in await claimed(store, node, limit=5):
            assert await store.settle([succeed(start(run, NOW), None, NOW)]) == [True]
    await store.close()

asyncio.run(main(sys.argv[1]))
"""


async def test_several_processes_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "horae.db"
    async with opened(path) as store:
        heard = asyncio.Event()
        store.subscribe(lambda signal: heard.set() if signal.kind is Kind.ANY else None)
        processes = [
            await asyncio.create_subprocess_exec(
                sys.executable, "-c", PROCESS, str(path), stderr=asyncio.subprocess.PIPE
            )
            for _ in range(3)
        ]
        results = [await process.communicate() for process in processes]
        assert [process.returncode for process in processes] == [0, 0, 0], results
        assert heard.is_set()
        node = await given_node(store)
        left = await claimed(store, node, limit=1000)
        ended = [run for run in (await store.list_runs(RunFilter(), cursor=None, limit=1000)).items if run.finished_at]
        assert len(left) + len(ended) == 600


async def test_own_commits_are_not_taken_for_those_of_others(tmp_path: Path) -> None:
    async with opened(tmp_path / "horae.db") as store, opened(tmp_path / "horae.db") as other:
        mine: list[Kind] = []
        heard = asyncio.Event()
        store.subscribe(lambda signal: mine.append(signal.kind))
        other.subscribe(lambda signal: heard.set())
        await acts.create(store, [one_shot()])
        async with asyncio.timeout(5):
            await heard.wait()
        assert mine == [Kind.DUE]


async def test_listening_costs_next_to_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path / "horae.db") as store:
        store.subscribe(lambda signal: None)
        before = time.process_time()
        await asyncio.sleep(1)
        assert time.process_time() - before < 0.02


WRITER = """
import asyncio, sys
from horae.stores.sqlite.store import SqliteStore
from tests.conformance.builders import one_shot

async def main(path):
    store = SqliteStore(path)
    await store.open()

    async def create():
        while True:
            run = one_shot()
            await store.create([run])
            print(run.id, flush=True)

    await asyncio.gather(*(create() for _ in range(5)))

asyncio.run(main(sys.argv[1]))
"""


async def test_what_was_answered_survives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "horae.db"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WRITER, str(path), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    answered = [(await process.stdout.readline()).decode().strip() for _ in range(100)]
    process.kill()
    rest = (await process.communicate())[0].decode().split()
    async with opened(path) as store:
        stored = set(ids((await store.list_runs(RunFilter(), cursor=None, limit=100_000)).items))
    assert stored >= {ident for ident in [*answered, *rest] if len(ident) == 32}
    assert len(answered) == 100


async def test_the_log_does_not_grow_without_end(tmp_path: Path) -> None:
    async with opened(tmp_path / "horae.db") as store:
        for _ in range(15):
            await store.blobs.put([("logs/x", bytes(4_000_000))])
        size = (tmp_path / "horae.db-wal").stat().st_size
    assert size < 40_000_000


# --- inline


async def test_inline_everything_happens_in_the_calling_coroutine(tmp_path: Path) -> None:
    moment = datetime(2030, 1, 1, 0, 0, 0, 1, tzinfo=UTC)
    threads = threading.active_count()
    heard: list[Signal] = []
    async with opened(tmp_path / "horae.db", executor=InlineExecutor(), wall=lambda: moment) as store:
        store.subscribe(heard.append)
        assert await store.time() == moment
        run = one_shot()
        await acts.create(store, [run])
        assert [signal.kind for signal in heard] == [Kind.DUE], "before the verb returns"
        node = await given_node(store)
        assert ids(await claimed(store, node)) == [run.id]
        await store.blobs.put([("a", b"x")])
        assert threading.active_count() == threads
    with pytest.raises(Unavailable, match="closed"):
        await acts.create(store, [one_shot()])


async def test_inline_a_verb_that_fails_is_undone(tmp_path: Path) -> None:
    executor = InlineExecutor()
    async with opened(tmp_path / "horae.db", executor=executor) as store:

        def fail(transaction: Transaction) -> None:
            transaction.db.execute("INSERT INTO records VALUES ('task', '', 'x', '{}', NULL)")
            raise LookupError

        with pytest.raises(LookupError):
            await executor.write(fail)
        assert await store.records(TaskSchema) == []
        await acts.create(store, [one_shot()])


# --- lists beside the engine


async def test_lists_that_take_long_hold_up_nobody_but_lists(tmp_path: Path) -> None:
    release = threading.Event()
    executor = ThreadedExecutor()
    async with opened(tmp_path / "horae.db", executor=executor) as store:
        lists = [asyncio.create_task(executor.browse(lambda _: release.wait(30))) for _ in range(50)]
        try:
            async with asyncio.timeout(10):
                await store.plannable(range(64), now=NOW, limit=10)
                await store.create([one_shot()])
                assert await store.events.read(after=None, owner=None, limit=10)
        finally:
            release.set()
            await asyncio.gather(*lists)


async def test_a_list_that_takes_too_long_is_ended_and_says_what_to_do(tmp_path: Path) -> None:
    endless = "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"
    executor = ThreadedExecutor(list_seconds=0.05)
    async with opened(tmp_path / "horae.db", executor=executor) as store:
        with pytest.raises(Unavailable, match=r"the list took longer than 0\.05 s; ask for fewer"):
            await executor.browse(lambda db: db.execute(endless).fetchone())
        assert (await store.list_runs(RunFilter(), cursor=None, limit=10)).items == []
