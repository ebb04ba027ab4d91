"""Power cuts at any write of a SQLite store, and checks of what is left.

A process works on a store and records every write and sync of its files, and what it acknowledged in between. From
these records the files are rebuilt as a power cut may leave them: with all synced data, and any part of the rest.
"""

import asyncio
import random
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from horae.core.decisions.results import start, succeed
from horae.core.ids import Ids
from horae.core.model import JobId, Node, NodeId, Run, RunId, Spec
from horae.core.schedule.parse import parse_schedule
from horae.ports.store import ClaimRequest, Store
from horae.proof.checking import Checker
from horae.stores.sqlite import database
from horae.stores.sqlite.store import SqliteStore
from tests import acts
from tests.live import HORAE, environment
from tests.system.cluster import REPOSITORY
from tests.system.vfs import Journal, Record, Step

SECTOR = 512
CLIENTS = 6
CHECKPOINT_PAGES = 250  # instead of 4,000, so that there are many checkpoints in a short life
DATABASE = "horae.db"

new_id = Ids()


# --- the life


async def live(folder: Path, jobs: int) -> list[Record]:
    """Create and run jobs; return the record of all writes and acknowledgements."""
    journal = Journal()
    database.CHECKPOINT_PAGES = CHECKPOINT_PAGES
    store = SqliteStore(folder / DATABASE)
    await store.open()
    node = Node(
        id=NodeId(new_id()),
        name="here",
        roles=("worker",),
        version="test",
        concurrency=10,
        started_at=datetime.now(UTC),
        beat_at=datetime.now(UTC),
        tasks={"demo.echo": "{}"},
    )
    await acts.register(store, node)
    left = iter(range(jobs))

    async def create() -> None:
        for number in left:
            run = _one_shot(number)
            await acts.create(store, [run])
            journal.note(Step.CREATED, run.id)

    async def work() -> None:
        ended = 0
        while ended < jobs:
            ended += await _work_off(store, node.id, journal)
            await asyncio.sleep(0)

    await asyncio.gather(work(), *(create() for _ in range(CLIENTS)))
    await store.close()
    return journal.records


async def _work_off(store: Store, node: NodeId, journal: Journal) -> int:
    now = datetime.now(UTC)
    claims = await store.claim(
        ClaimRequest(node=node, queues=(), tasks=["demo.echo"], now=now, until=now + timedelta(seconds=1), limit=10)
    )
    started = [start(run, datetime.now(UTC)) for run in claims.runs]
    if not started:
        return 0
    assert all(await store.start(started))
    assert all(await store.settle([succeed(run, '"done"', datetime.now(UTC)) for run in started]))
    for run in started:
        journal.note(Step.ENDED, run.id)
    return len(started)


def _one_shot(number: int) -> Run:
    job_id, now = JobId(new_id()), datetime.now(UTC)
    return Run(
        id=RunId(job_id),
        job_id=job_id,
        owner="local",
        created_by="local",
        spec=Spec(task="demo.echo", params=f'{{"message":"{"x" * (number % 7 * 300)}"}}'),
        schedule=parse_schedule("now", now=now),
        due_at=now,
        wake_at=now,
        created_at=now,
    )


def recorded_life(folder: Path, jobs: int) -> list[Record]:
    """Run `live` in its own process, because the VFS layer stays installed."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.system.power", str(folder), str(jobs)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return msgspec.msgpack.decode((folder / "records").read_bytes(), type=list[Record])


# --- the cut


@dataclass
class File:
    """The synced content of a file, and the writes since."""

    synced: bytearray = field(default_factory=bytearray)
    pending: list[Record] = field(default_factory=list)

    def take(self, record: Record) -> None:
        match record.step:
            case Step.SYNC:
                for each in self.pending:
                    _apply(self.synced, each, each.data)
                self.pending.clear()
            case Step.DELETE:  # SQLite syncs the folder
                self.synced.clear()
                self.pending.clear()
            case _:
                self.pending.append(record)

    def whole(self) -> bytes:
        """The content after the process was killed: all writes."""
        image = bytearray(self.synced)
        for each in self.pending:
            _apply(image, each, each.data)
        return bytes(image)

    def cut(self, rng: random.Random) -> bytes:
        """The content after a power cut: each unsynced write is there, or not, or only its first sectors."""
        image = bytearray(self.synced)
        for each in self.pending:
            fate = rng.random()
            if fate < 0.5:
                _apply(image, each, each.data)
            elif fate < 0.75:
                _apply(image, each, each.data[: rng.randrange(len(each.data) // SECTOR + 1) * SECTOR])
        return bytes(image)


def _apply(image: bytearray, record: Record, data: bytes) -> None:
    if record.step is Step.TRUNCATE:
        del image[record.offset :]
        return
    end = record.offset + len(data)
    if data and len(image) < end:
        image.extend(bytes(end - len(image)))
    image[record.offset : end] = data


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The files between two writes, and what had been acknowledged before."""

    place: int
    created: frozenset[str]
    ended: frozenset[str]
    images: Sequence[dict[str, bytes]]  # the files by name: as they are, and as a power cut leaves them


def cuts(records: Sequence[Record], count: int, rng: random.Random) -> Iterator[Cut]:
    """Yield random cuts between two writes, after the first acknowledgement."""
    first = next(place for place, record in enumerate(records) if record.step is Step.CREATED)
    writing = (Step.WRITE, Step.TRUNCATE, Step.SYNC)
    boundaries = [place for place in range(first, len(records)) if records[place].step in writing]
    chosen = set(rng.sample(boundaries, count))
    files: dict[str, File] = {}
    shared: dict[str, bytes] = {}
    acknowledged: dict[Step, set[str]] = {Step.CREATED: set(), Step.ENDED: set()}
    for place, record in enumerate(records):
        if record.step in acknowledged:
            acknowledged[record.step].add(record.name)
        elif record.step is Step.SHARED:
            shared[Path(record.name).name] = record.data
        else:
            files.setdefault(Path(record.name).name, File()).take(record)
        if place in chosen:
            whole = {name: file.whole() for name, file in files.items()}
            cut = {name: file.cut(rng) for name, file in files.items()}
            yield Cut(
                place=place,
                created=frozenset(acknowledged[Step.CREATED]),
                ended=frozenset(acknowledged[Step.ENDED]),
                images=[whole | shared, cut | shared],
            )


# --- what is left


@dataclass
class PowerFigures:
    """Counts of what was checked."""

    cuts: int = 0
    images: int = 0
    unsynced: int = 0  # cuts that found something that was not synced
    in_checkpoint: int = 0  # cuts that left a database that is being written
    created: int = 0  # acknowledged jobs that were looked for, and found
    ended: int = 0

    def __str__(self) -> str:
        return (
            f"{self.cuts} cuts, {self.unsynced} of them with something not synced, {self.in_checkpoint} within a"
            f" checkpoint; {self.images} stores opened, {self.created} acknowledged jobs and {self.ended} results found"
        )


def check_power_cuts(folder: Path, *, jobs: int, count: int, seed: int, commands: int = 0) -> PowerFigures:
    """Cut the power at so many places of one life: what is left opens, is sound, and has all that was acknowledged.

    `horae check` itself is asked about the first so many of them; all are judged by what is behind it.
    """
    records = recorded_life(folder, jobs)
    seen = PowerFigures()
    for cut in cuts(records, count, random.Random(seed)):
        seen.cuts += 1
        as_it_is, as_cut = cut.images
        seen.unsynced += as_it_is != as_cut
        seen.in_checkpoint += as_it_is[DATABASE] != as_cut[DATABASE]
        for which, image in enumerate(cut.images):
            place = folder / f"cut-{cut.place}-{which}"
            place.mkdir()
            for name, data in image.items():
                if data or name == DATABASE:
                    (place / name).write_bytes(data)
            _check_image(place / DATABASE, cut, seen)
            if seen.images <= commands:
                _ask_command(place / DATABASE)
            for file in place.iterdir():
                file.unlink()
            place.rmdir()
    return seen


def _check_image(file: Path, cut: Cut, seen: PowerFigures) -> None:
    with closing(sqlite3.connect(file)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)], file
        found = {row[0].hex(): row[1] for row in db.execute("SELECT id, state FROM runs")}
    lost = cut.created - found.keys()
    assert not lost, f"{file}: {len(lost)} of {len(cut.created)} acknowledged jobs are lost"
    forgotten = [ident for ident in cut.ended if found[ident] != "succeeded"]
    assert not forgotten, f"{file}: {len(forgotten)} of {len(cut.ended)} acknowledged results are lost"
    assert not asyncio.run(_violations(file)), file
    seen.images += 1
    seen.created += len(cut.created)
    seen.ended += len(cut.ended)


def _ask_command(file: Path) -> None:
    done = subprocess.run(
        [HORAE, "check", "--store", f"sqlite:///{file}"], env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{file}: horae check ended with {done.returncode}:\n{done.stdout}{done.stderr}"


async def _violations(file: Path) -> list[str]:
    """The violations that `horae check` finds."""
    store = SqliteStore(file)
    await store.open()
    try:
        return [f"{found.code} {found.subject}: {found.detail}" async for found in Checker(store, pause=0).violations()]
    finally:
        await store.close()


def main() -> None:
    """Run, and write the records to a file."""
    folder, jobs = Path(sys.argv[1]), int(sys.argv[2])
    records = asyncio.run(live(folder, jobs))
    (folder / "records").write_bytes(msgspec.msgpack.encode(records))


if __name__ == "__main__":
    main()
