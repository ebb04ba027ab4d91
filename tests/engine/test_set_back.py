"""A store that is set back, to an older copy or by its clock: every slot is accounted for, and no run runs twice."""

import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from datetime import timedelta
from pathlib import Path

from horae.core.model import Misfire, State
from horae.core.schedule.evaluate import count_between
from horae.stores.sqlite.executor import InlineExecutor
from horae.stores.sqlite.store import SqliteStore
from tests.clocks import ManualClock
from tests.engine.system import START, System
from tests.engine.test_engine import MICROSECOND, one_shot, outcomes, recurring
from tests.proof.checking.whole_store import found_in


@asynccontextmanager
async def opened(file: Path, clock: ManualClock) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(file, executor=InlineExecutor(durable=False), wall=clock.now)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def test_after_an_old_copy_was_put_back_every_slot_is_told_and_what_ran_since_keeps_its_id(
    tmp_path: Path,
) -> None:
    file, backup, clock = tmp_path / "horae.db", tmp_path / "backup.db", ManualClock(START)
    async with opened(file, clock) as store:
        before = System(store, clock)
        await before.add_node()
        job = await recurring(before, "* * * * *", misfire=Misfire.ALL)
        waiting = await one_shot(before, delay=300)
        await before.advance(minutes=2, seconds=30)
        with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(backup)) as copy:
            source.backup(copy)
        await before.advance(minutes=8)
    for name in ("horae.db-wal", "horae.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    shutil.copy(backup, file)
    async with opened(file, clock) as store:
        after = System(store, clock, seed=1)
        await after.add_node()
        await after.advance(minutes=3)
        until = clock.now() - timedelta(minutes=1)
        counts = await outcomes(after, job, until)
        assert counts == {"succeeded": count_between(job.schedule, job.created_at + MICROSECOND, until + MICROSECOND)}
        assert (await after.run(waiting.id)).state is State.SUCCEEDED
        for system in (before, after):
            assert [start.run.id for start in system.starts_of(waiting.job_id)] == [waiting.id]
        assert await found_in(store, clock.now()) == []


async def test_a_clock_that_is_set_back_fires_no_slot_again(tmp_path: Path) -> None:
    clock, behind = ManualClock(START), ManualClock(START + timedelta(minutes=2))
    async with opened(tmp_path / "horae.db", clock) as store:
        before = System(store, clock)
        node = await before.add_node()
        job = await recurring(before, "*/10 * * * * *")
        await before.advance(minutes=4, seconds=5)
        node.kill()
        after = System(store, behind, seed=1)
        await after.add_node()
        await after.advance(minutes=4)
    slots = [start.run.slot for system in (before, after) for start in system.starts_of(job.id)]
    assert slots == [START + timedelta(seconds=10 * number) for number in range(1, 37)]
