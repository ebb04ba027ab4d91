"""Slots that are missing from before a job was changed, paused or deleted are found, and nothing else is."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from horae.core.drafts import Draft
from horae.core.model import Job, Misfire, Reason, State
from horae.core.records import ScheduleTrail
from horae.core.schedule.parse import schedule_to_wire
from horae.core.schedule.trail import MOST_PAST
from horae.jobs import cancel
from horae.ports.reader import RunFilter
from horae.proof.checking import Code
from horae.stores.sqlite.executor import InlineExecutor
from horae.stores.sqlite.store import SqliteStore
from tests.clocks import ManualClock
from tests.engine.system import System
from tests.engine.test_jobs import jobs_of
from tests.postgres_server import postgres_url, scratch_schema
from tests.proof.checking.store_mutants import PostgresTables, SqliteTables, Tables
from tests.proof.checking.test_store_mutants import opened
from tests.proof.checking.whole_store import checked

SECOND = timedelta(seconds=1)
CRON = "*/5 * * * * *"
JITTERED = {"type": "every", "seconds": 10, "jitter_seconds": 8}


@dataclass(frozen=True, slots=True)
class Stage:
    """A system, and its tables to falsify."""

    system: System
    tables: Tables


@pytest.fixture(params=["sqlite", "postgres"])
async def stage(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Stage]:
    monkeypatch.setattr(cancel, "CONFIRM_SECONDS", 0.0)
    clock = ManualClock(datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=1))
    if request.param == "sqlite":
        executor = InlineExecutor(durable=False)
        store = SqliteStore(tmp_path / "horae.db", executor=executor, wall=clock.now)
        await store.open()
        yield Stage(System(store, clock), SqliteTables(executor))
        await store.close()
    else:
        async with scratch_schema(postgres_url()) as url, opened(url) as (postgres, connection):
            yield Stage(System(postgres, clock), PostgresTables(connection))


def draft(schedule: object = CRON, **changes: object) -> Draft:
    return Draft(task="echo", schedule=schedule, allow_unknown_task=True, **changes)  # type: ignore[arg-type]


# --- what is done to a job


Act = Callable[[System, Job], Awaitable[object]]


async def nothing(system: System, job: Job) -> None:
    pass


async def patch(system: System, job: Job, schedule: object = None, **changes: object) -> None:
    async def revise(job: Job) -> Draft:
        return draft(schedule or schedule_to_wire(job.schedule), **changes)

    await jobs_of(system).patch(job.id, revise, owner=None)


async def label(system: System, job: Job) -> None:
    await patch(system, job, labels={"team": "web"})


async def another_schedule(system: System, job: Job) -> None:
    await patch(system, job, "every 7s")


async def two_more_schedules(system: System, job: Job) -> None:
    await another_schedule(system, job)
    await system.advance(seconds=20)
    await patch(system, job, JITTERED)


async def pause(system: System, job: Job) -> None:
    await jobs_of(system).pause(job.id, owner=None)


async def another_schedule_in_a_pause(system: System, job: Job) -> None:
    await pause(system, job)
    await system.advance(seconds=20)
    await another_schedule(system, job)
    await system.advance(seconds=20)
    await jobs_of(system).resume(job.id, missed=Misfire.SKIP, owner=None)


async def pause_and_catch_up(system: System, job: Job) -> None:
    await pause(system, job)
    await system.advance(seconds=20)
    await label(system, job)
    await jobs_of(system).resume(job.id, missed=Misfire.ALL, owner=None)


async def pause_and_delete(system: System, job: Job) -> None:
    await pause(system, job)
    await system.advance(seconds=20)
    await delete(system, job)


async def delete(system: System, job: Job) -> None:
    await jobs_of(system).cancel(job.id, keep_running=False, owner=None)


async def everything(system: System, job: Job) -> None:
    for act in (label, two_more_schedules, another_schedule_in_a_pause, pause_and_catch_up, delete):
        await act(system, job)
        await system.advance(seconds=17)


ACTS = (
    nothing,
    label,
    another_schedule,
    two_more_schedules,
    pause,
    another_schedule_in_a_pause,
    pause_and_catch_up,
    delete,
    everything,
)


async def changed_job(system: System, act: Act, schedule: object = CRON) -> Job:
    """A job that fires for two minutes, is changed, and is left alone for another."""
    await system.add_node()
    job = await jobs_of(system).create(draft(schedule), owner="local", by="local")
    await system.advance(seconds=121.5)
    await act(system, job)
    await system.advance(seconds=60)
    return job


@pytest.mark.parametrize("act", ACTS)
async def test_five_runs_that_are_deleted_by_hand_are_missed(stage: Stage, act: Act) -> None:
    system = stage.system
    job = await changed_job(system, act)
    assert await checked(system.store, system.clock.now()) == []
    ended = RunFilter(job_id=job.id, states=frozenset({State.SUCCEEDED}), end_at=job.created_at + 100 * SECOND)
    for run in (await system.store.list_runs(ended, cursor=None, limit=5)).items:
        await stage.tables.delete("history", {"id": run.id})
    [found] = await checked(system.store, system.clock.now())
    assert (found.code, found.subject) == (Code.SLOT_MISSING, f"job_{job.id}")
    assert "5 slots from" in found.detail


@pytest.mark.parametrize("act", [another_schedule_in_a_pause, everything])
async def test_a_skip_that_is_deleted_by_hand_is_missed_also_after_a_change(stage: Stage, act: Act) -> None:
    system = stage.system
    job = await changed_job(system, act)
    ledger = await system.store.ledger(job.id, start=job.created_at, end=system.clock.now(), limit=1)
    await stage.tables.delete("skips", {"job_id": job.id, "start_at": ledger.skips[0].start})
    assert {found.code for found in await checked(system.store, system.clock.now())} == {Code.SLOT_MISSING}


async def test_a_run_for_no_slot_of_an_earlier_schedule_is_found(stage: Stage) -> None:
    system = stage.system
    job = await changed_job(system, another_schedule)
    ended = RunFilter(job_id=job.id, end_at=job.created_at + 60 * SECOND)
    run = (await system.store.list_runs(ended, cursor=None, limit=1)).items[0]
    assert run.slot is not None
    await stage.tables.update("history", {"id": run.id}, slot=run.slot - SECOND)
    found = {violation.code for violation in await checked(system.store, system.clock.now())}
    assert found == {Code.SLOT_UNPLANNED, Code.SLOT_MISSING}


@pytest.mark.parametrize(("act", "skipped"), [(another_schedule, True), (delete, True), (label, False), (pause, False)])
async def test_a_slot_whose_run_waits_for_its_jitter_is_told_when_its_job_changes(
    stage: Stage, act: Act, skipped: bool
) -> None:
    system = stage.system
    jobs = [await jobs_of(system).create(draft(JITTERED), owner="local", by="local") for _ in range(8)]
    await system.add_node()
    await system.advance(seconds=121)
    for job in jobs:
        await act(system, job)
    await system.advance(seconds=60)
    assert await checked(system.store, system.clock.now()) == []
    slot = jobs[0].created_at + 120 * SECOND
    ledgers = [await system.store.ledger(job.id, start=slot, end=slot, limit=1) for job in jobs]
    reasons = {skip.reason for ledger in ledgers for skip in ledger.skips}
    assert reasons == ({Reason.CANCELLED} if skipped else set())


@pytest.mark.parametrize("minutes", [1, 9.9, 12], ids=["long before", "just before", "after"])
@pytest.mark.parametrize("act", [label, pause_and_catch_up, another_schedule_in_a_pause, pause_and_delete, delete])
async def test_a_slot_in_a_clock_change_is_told_once_whenever_its_job_is_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: Act, minutes: float
) -> None:
    monkeypatch.setattr(cancel, "CONFIRM_SECONDS", 0.0)
    clock, executor = ManualClock(datetime(2026, 3, 29, 0, 50, tzinfo=UTC)), InlineExecutor(durable=False)
    store = SqliteStore(tmp_path / "horae.db", executor=executor, wall=clock.now)
    await store.open()
    system = System(store, clock)
    nightly = {"type": "cron", "expression": "30 2 * * *", "timezone": "Europe/Berlin", "dst": {"gap": "skip"}}
    job = await jobs_of(system).create(draft(nightly), owner="local", by="local")
    await system.add_node()
    await system.advance(minutes=minutes)
    await act(system, job)
    await system.advance(minutes=15 - minutes)
    assert await checked(store, clock.now()) == []
    gap = datetime(2026, 3, 29, 1, tzinfo=UTC)
    [trail] = await store.records(ScheduleTrail, owner="local", key=job.id)
    told = act in (label, pause_and_catch_up) or gap <= trail.changed_at  # else its schedule was gone by then
    ledger = await store.ledger(job.id, start=gap, end=gap, limit=1)
    assert [skip.reason for skip in ledger.skips] == [Reason.DST_GAP] * told
    if told:
        await SqliteTables(executor).delete("skips", {"job_id": job.id, "start_at": gap})
        assert [found.code for found in await checked(store, clock.now())] == [Code.SLOT_MISSING]
    await store.close()


async def test_a_job_that_an_earlier_release_changed_is_judged_since_then(stage: Stage) -> None:
    system = stage.system
    job = await changed_job(system, another_schedule)
    await stage.tables.delete("records", {"kind": "trail", "key": job.id})
    assert await checked(system.store, system.clock.now()) == []
    await label(system, job)
    [trail] = await system.store.records(ScheduleTrail, owner="local", key=job.id)
    assert (trail.since, trail.past) == (job.created_at + 121.5 * SECOND, ()), "when that release changed it"


async def test_the_trail_of_a_job_stays_small(stage: Stage) -> None:
    system = stage.system
    job = await jobs_of(system).create(draft(), owner="local", by="local")
    for seconds in range(MOST_PAST + 10):
        await patch(system, job, f"every {seconds + 100}s")
        await system.advance(seconds=1)
    [trail] = await system.store.records(ScheduleTrail, owner="local", key=job.id)
    assert len(trail.past) == MOST_PAST
    assert await checked(system.store, system.clock.now()) == []
