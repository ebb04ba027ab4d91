"""What users do with jobs, on whole nodes in virtual time: pauses, patches and cancels lose and double nothing."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar, cast

import pytest

from horae.batcher import Batcher
from horae.core.changes import Change, Refusal
from horae.core.decisions.results import Failure
from horae.core.decisions.retry import RetryPolicy
from horae.core.drafts import Draft
from horae.core.errors import Conflict, KeyTaken, NotFound, RevisionChanged, Unavailable, UnknownTask
from horae.core.model import Backfill, Job, JobError, JobId, JobStatus, Misfire, Overlap, Policy, Reason, Run, State
from horae.core.records import IdempotencyRecord
from horae.core.schedule.evaluate import count_between, next_after
from horae.core.values import replace
from horae.jobs import cancel
from horae.jobs.params import Parameters
from horae.jobs.service import Jobs
from horae.jobs.task_catalog import TaskCatalog
from horae.lookup import find_request
from horae.metrics import Metrics
from horae.ports.store import Store
from horae.queries.jobs import JobQueries
from horae.queries.ledger import SlotEntry, SlotOutcome
from tests import acts
from tests.engine.system import System, failing, instantly, taking

TICK = timedelta(microseconds=1)
T = TypeVar("T")


def jobs_of(system: System, store: Store | None = None) -> Jobs:
    """The use cases over the store of a system, or over one that stands in front of it."""
    over = store or system.store
    return Jobs(
        store=over,
        clock=system.clock,
        tasks=TaskCatalog(over, system.clock, defaults=lambda task: None, check_params=lambda task, params: []),
        parameters=Parameters(over.blobs),
        metrics=Metrics(),
        new_id=system.new_id,
        horizon=system.timing.horizon,
    )


async def create(system: System, schedule: str, **changes: Any) -> Job:
    draft = Draft(task="echo", schedule=schedule, allow_unknown_task=True, **changes)
    job = await jobs_of(system).create(draft, owner="local", by="local")
    assert job.recurring
    return job


async def create_once(system: System, *, seconds: float) -> Run:
    at = (system.clock.now() + timedelta(seconds=seconds)).isoformat()
    return await create_one_shot(system, Draft(task="echo", schedule=at))


async def create_one_shot(system: System, draft: Draft) -> Run:
    job = await jobs_of(system).create(draft, owner="local", by="local")
    assert job.run is not None
    return job.run


async def ledger(system: System, job: Job, end: datetime | None = None) -> list[SlotEntry]:
    """What became of every slot of a job."""
    looking = JobQueries(
        store=system.store, blobs=system.store.blobs, parameters=Parameters(system.store.blobs), clock=system.clock
    )
    page = await looking.slots(job.id, owner=None, start=None, end=end, cursor=None, limit=100_000)
    return list(page.items)


def slots_so_far(system: System, job: Job) -> int:
    """How many slots there were after the creation of a job."""
    return count_between(job.schedule, job.created_at + TICK, system.clock.now() + TICK)


def counts(entries: Sequence[SlotEntry]) -> dict[str, int]:
    """How many slots ended how."""
    found: dict[str, int] = {}
    for entry in entries:
        name = entry.outcome if entry.reason is None else f"{entry.outcome}:{entry.reason}"
        found[name] = found.get(name, 0) + entry.count
    return found


async def meanwhile(system: System, act: Awaitable[T]) -> T:
    """Let the nodes work while somebody waits for an answer."""
    asking = asyncio.ensure_future(act)
    while not asking.done():
        await asyncio.sleep(0.002)
        await system.advance(seconds=0.005)
    return await asking


class Meddler:
    """A store before whose verbs, or single acts on it, something else happens, once for each time it is asked to."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.before: dict[str, list[Callable[[], Awaitable[object]]]] = {}

    async def apply(self, changes: Sequence[Change]) -> list[Refusal | None]:
        for act in map(acts.act_of, changes):
            if self.before.get(act):
                await self.before[act].pop(0)()
        return await self._store.apply(changes)

    def __getattr__(self, name: str) -> Any:
        if name not in self.before:
            return getattr(self._store, name)

        async def verb(*args: Any, **keywords: Any) -> Any:
            if self.before[name]:
                await self.before[name].pop(0)()
            return await getattr(self._store, name)(*args, **keywords)

        return verb


# --- pause and resume


async def test_a_pause_and_a_resume_account_for_every_slot_once(system: System) -> None:
    await system.add_node()
    job = await create(system, "* * * * * *")
    await system.advance(seconds=10.2)
    await meanwhile(system, jobs_of(system).pause(job.id, owner=None))
    await system.advance(seconds=60)
    await meanwhile(system, jobs_of(system).resume(job.id, missed=Misfire.SKIP, owner=None))
    await system.advance(seconds=10)
    told = await ledger(system, job)
    assert counts(told) == {"ran": 20, "skipped:paused": 60}
    assert len(system.starts_of(job.id)) == 20


@pytest.mark.parametrize(("missed", "ran"), [(Misfire.SKIP, 20), (Misfire.ONCE, 21), (Misfire.ALL, 80)])
async def test_what_was_missed_in_a_pause_follows_the_users_choice(system: System, missed: Misfire, ran: int) -> None:
    await system.add_node()
    job = await create(system, "* * * * * *", policy=Policy(overlap=Overlap.ALLOW))
    await system.advance(seconds=10.5)
    await jobs_of(system).pause(job.id, owner=None)
    await system.advance(seconds=60)
    await jobs_of(system).resume(job.id, missed=missed, owner=None)
    await system.advance(seconds=10)
    told = counts(await ledger(system, job))
    assert sum(told.values()) == 80
    assert ran - 1 <= told["ran"] <= ran, "what a worker had claimed ahead of the pause is skipped whatever is chosen"


async def test_a_job_that_is_paused_again_and_again_in_haste_loses_and_doubles_no_slot(system: System) -> None:
    await system.add_node()
    await system.add_node()
    chance = random.Random(7)
    job = await create(system, "every 1s", policy=Policy(overlap=Overlap.ALLOW))
    jobs = jobs_of(system)
    for _ in range(40):
        await system.advance(seconds=chance.uniform(0, 3))
        await jobs.pause(job.id, owner=None)
        await system.advance(seconds=chance.uniform(0, 3))
        await jobs.resume(job.id, missed=chance.choice(list(Misfire)), owner=None)
    await system.advance(seconds=40)
    told = await ledger(system, job)
    slots = [entry.start for entry in told if entry.count == 1]
    assert len(slots) == len(set(slots))
    assert sum(entry.count for entry in told) == slots_so_far(system, job)


async def test_a_planner_that_fires_while_a_job_is_being_paused_makes_no_slot_run_twice(system: System) -> None:
    node = await system.add_node()
    job = await create(system, "every 40s", policy=Policy(overlap=Overlap.ALLOW))
    await system.advance(seconds=1)
    meddler = Meddler(system.store)

    async def plan_and_claim() -> None:
        """Between the read of the job and its change the slot is fired, and a worker takes it."""
        await system.advance(seconds=38.5)
        assert node.worker.holding

    meddler.before["change"] = [plan_and_claim]
    await jobs_of(system, cast(Store, meddler)).pause(job.id, owner=None)
    await system.advance(seconds=10)
    await jobs_of(system).resume(job.id, missed=Misfire.ALL, owner=None)
    await system.advance(seconds=60)
    told = await ledger(system, job)
    assert sum(entry.count for entry in told) == slots_so_far(system, job)
    assert len(system.starts_of(job.id)) <= 2


async def test_resuming_twice_at_the_same_time_catches_up_once(system: System) -> None:
    job = await create(system, "every 10s")
    jobs = jobs_of(system)
    await jobs.pause(job.id, owner=None)
    system.clock.advance(seconds=35)
    await asyncio.gather(*(jobs.resume(job.id, missed=Misfire.ONCE, owner=None) for _ in range(5)))
    told = await ledger(system, job)
    assert counts(told) == {"skipped:paused": 2, "pending": 1}


async def test_a_pause_inside_the_lead_skips_the_run_that_was_claimed(system: System) -> None:
    await system.add_node()
    job = await create(system, "every 10s")
    await system.advance(seconds=9.5)
    await jobs_of(system).pause(job.id, owner=None)
    await system.advance(seconds=30)
    assert system.starts_of(job.id) == []
    told = await ledger(system, job)
    assert counts(told) == {"skipped:paused": 3}


# --- patch


async def revision_of(draft: Draft) -> Callable[[Job], Awaitable[Draft]]:
    async def revise(job: Job) -> Draft:
        return draft

    return revise


async def test_a_patched_schedule_takes_over_at_once_and_every_slot_is_told(system: System) -> None:
    await system.add_node()
    job = await create(system, "* * * * * *")
    await system.advance(seconds=10.5)
    moved = Draft(task="echo", schedule="0/5 * * * * *")
    await meanwhile(system, jobs_of(system).patch(job.id, await revision_of(moved), owner=None))
    await system.advance(seconds=30)
    starts = [start.at.second for start in system.starts_of(job.id)]
    assert starts == [*range(1, 11), 15, 20, 25, 30, 35, 40]
    told = counts(await ledger(system, job))
    assert told.pop("skipped:cancelled", 0) <= 1, "the run that was claimed ahead of the change"
    assert told == {"ran": 16}


async def test_a_slot_that_both_schedules_have_runs_once_and_is_told_once(system: System) -> None:
    await system.add_node()
    job = await create(system, "* * * * * *")
    await system.advance(seconds=10.5)
    moved = Draft(task="echo", schedule={"type": "cron", "expression": "* * * * * *", "timezone": "Europe/Paris"})
    await jobs_of(system).patch(job.id, await revision_of(moved), owner=None)
    await system.advance(seconds=10)
    assert [start.at.second for start in system.starts_of(job.id)] == [*range(1, 21)]
    assert counts(await ledger(system, job)) == {"ran": 20}


async def test_a_patch_that_meets_another_begins_anew(system: System) -> None:
    job = await create(system, "every 1h")
    meddler = Meddler(system.store)
    jobs = jobs_of(system, cast(Store, meddler))
    plain = Draft(task="echo", schedule={"type": "every", "seconds": 3600, "anchor": job.created_at.isoformat()})

    async def rename() -> None:
        await jobs_of(system).patch(job.id, await revision_of(replace(plain, name="theirs")), owner=None)

    async def add_priority(current: Job) -> Draft:
        return replace(plain, name=current.spec.name, priority=5)

    meddler.before["change"] = [rename]
    changed = await jobs.patch(job.id, add_priority, owner=None)
    assert (changed.spec.name, changed.spec.priority, changed.revision) == ("theirs", 5, 3)
    with pytest.raises(RevisionChanged):
        await jobs.patch(job.id, add_priority, owner=None, expected=2)


@pytest.mark.parametrize("schedule", ["every 1h", "every 2h"])
async def test_a_patch_of_a_paused_job_does_not_undo_a_resume(system: System, schedule: str) -> None:
    job = await create(system, "every 1h")
    await jobs_of(system).pause(job.id, owner=None)
    meddler = Meddler(system.store)

    async def resume() -> None:
        await jobs_of(system).resume(job.id, missed=Misfire.SKIP, owner=None)

    meddler.before["change"] = [resume]
    changed = Draft(task="echo", schedule=schedule, priority=5)
    patched = await jobs_of(system, cast(Store, meddler)).patch(job.id, await revision_of(changed), owner=None)

    assert (patched.status, patched.spec.priority) == (JobStatus.SCHEDULED, 5)
    await system.add_node()
    await system.advance(seconds=2 * 3600 + 1)
    assert system.starts_of(job.id)


async def test_what_a_job_was_catching_up_with_does_not_outlive_its_schedule(system: System) -> None:
    job = await create(system, "* * * * * *")
    jobs = jobs_of(system)
    await jobs.pause(job.id, owner=None)
    system.clock.advance(seconds=100)
    await jobs.resume(job.id, missed=Misfire.ALL, owner=None)
    await jobs.patch(job.id, await revision_of(Draft(task="echo", schedule="30 * * * * *")), owner=None)
    await system.add_node()
    await system.advance(seconds=60)
    told = counts(await ledger(system, job))
    assert told == {"skipped:cancelled": 100, "ran": 1}


# --- cancel


async def test_a_cancelled_job_starts_nothing_more_also_inside_the_lead(system: System) -> None:
    await system.add_node()
    job = await create(system, "every 10s")
    await system.advance(seconds=19.5)
    await meanwhile(system, jobs_of(system).cancel(job.id, keep_running=False, owner=None))
    await system.advance(seconds=60)
    assert len(system.starts_of(job.id)) == 1
    assert counts(await ledger(system, job)) == {"ran": 1, "skipped:cancelled": 1}


async def test_cancelling_a_job_stops_what_runs_unless_it_is_kept(system: System) -> None:
    system.scripts["echo"] = taking(100)
    await system.add_node()
    stopped, kept = [await create(system, "every 10s") for _ in range(2)]
    await system.advance(seconds=15)
    await meanwhile(system, jobs_of(system).cancel(stopped.id, keep_running=False, owner=None))
    await meanwhile(system, jobs_of(system).cancel(kept.id, keep_running=True, owner=None))
    await system.advance(seconds=120)
    [first] = system.starts_of(stopped.id)
    [second] = system.starts_of(kept.id)
    assert (await system.run(first.run.id)).state is State.CANCELLED
    assert (await system.run(second.run.id)).state is State.SUCCEEDED
    assert second.ended_at == second.at + timedelta(seconds=100)


async def test_a_run_is_cancelled_before_its_start_inside_the_lead(system: System) -> None:
    await system.add_node()
    jobs = jobs_of(system)
    run = await create_once(system, seconds=5)
    await system.advance(seconds=4.5)
    assert (await system.run(run.id)).state is State.CLAIMED
    cancelled = await meanwhile(system, jobs.cancel_run(run.id, owner=None))
    assert cancelled.state is State.CANCELLED
    await system.advance(seconds=10)
    assert system.starts == []


async def test_a_success_that_is_committed_first_wins_over_a_cancel(system: System) -> None:
    await system.add_node()
    jobs = jobs_of(system)
    run = await create_one_shot(system, Draft(task="echo"))
    await system.advance(seconds=1)
    with pytest.raises(Conflict, match="succeeded"):
        await jobs.cancel_run(run.id, owner=None)
    assert (await system.run(run.id)).state is State.SUCCEEDED


async def test_what_a_deleted_job_had_on_a_node_that_died_does_not_start_on_another(system: System) -> None:
    node = await system.add_node()
    job = await create(system, "*/10 * * * * *")
    await system.advance(seconds=9.5)  # inside the lead: the node holds the run, and has not started it
    node.kill()
    await system.advance(seconds=1)
    await jobs_of(system).cancel(job.id, keep_running=True, owner=None)
    await system.add_node()
    await system.advance(minutes=1)
    assert system.starts == []
    assert counts(await ledger(system, job)) == {"skipped:cancelled": 1}


@pytest.mark.parametrize("of_job", [False, True])
async def test_a_cancel_also_ends_a_run_that_was_tried_while_it_was_on_its_way(
    system: System, of_job: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancel, "CONFIRM_SECONDS", 0.0)  # the call takes longer than anybody waits for a worker
    error = Failure(error=JobError(type="E", message="no"))
    system.scripts["flaky"] = failing(9, error)
    await system.add_node()
    draft = Draft(task="flaky", max_retries=9, policy=Policy(retry=RetryPolicy(initial=timedelta(minutes=1))))
    run = await create_one_shot(system, draft)

    async def tried() -> None:
        await system.advance(seconds=1)
        assert (await system.run(run.id)).state is State.RETRYING

    meddler = Meddler(system.store)
    meddler.before["settle"] = [tried]
    jobs = jobs_of(system, cast(Store, meddler))
    if of_job:
        await jobs.cancel(run.job_id, keep_running=False, owner=None)
    else:
        assert (await jobs.cancel_run(run.id, owner=None)).state is State.CANCELLED
    assert (await system.run(run.id)).state is State.CANCELLED
    await system.advance(minutes=10)
    assert len(system.starts) == 1


@pytest.mark.parametrize("recurs", [True, False])
async def test_a_job_that_is_cancelled_while_it_is_asked_to_run_now_runs_no_more(system: System, recurs: bool) -> None:
    await system.add_node()
    job_id = (await create(system, "every 1h")).id if recurs else (await create_once(system, seconds=3600)).job_id
    meddler = Meddler(system.store)
    meddler.before["run_now"] = [lambda: jobs_of(system).cancel(job_id, keep_running=False, owner=None)]
    jobs = jobs_of(system, cast(Store, meddler))

    async def issue(run: Run) -> IdempotencyRecord:
        return IdempotencyRecord(owner="local", key="k", fingerprint="f", answer=run.id, created_at=system.clock.now())

    with pytest.raises(Conflict, match="is cancelled; it can be read, but not changed any more"):
        await jobs.run_now(job_id, None, owner=None, by="local", issue=issue)
    assert await find_request(system.store, "local", "k", now=system.clock.now()) is None
    await system.advance(hours=2)
    assert system.starts == []


@pytest.mark.parametrize("running", [False, True])
async def test_a_cancel_also_ends_what_a_one_shot_was_asked_to_run_while_it_was_on_its_way(
    system: System, running: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancel, "CONFIRM_SECONDS", 0.0)  # time stands still, so no worker can confirm
    system.scripts["echo"] = taking(100)
    await system.add_node()
    job = await create_once(system, seconds=1 if running else 3600)
    await system.advance(seconds=2)
    meddler = Meddler(system.store)
    asked: list[Run | IdempotencyRecord] = []

    async def run_now() -> None:
        asked.append(await jobs_of(system).run_now(job.job_id, None, owner=None, by="local"))

    meddler.before["request_stop" if running else "settle"] = [run_now]
    await jobs_of(system, cast(Store, meddler)).cancel(job.job_id, keep_running=False, owner=None)
    assert [(await system.run(run.id)).state for run in asked] == [State.CANCELLED]
    await system.advance(minutes=5)
    assert len(system.starts) == running


async def test_a_job_that_is_cancelled_while_its_past_is_to_be_filled_fills_nothing(system: System) -> None:
    await system.add_node()
    job = await create(system, "0 * * * *")
    meddler = Meddler(system.store)
    meddler.before["backfill"] = [lambda: jobs_of(system).cancel(job.id, keep_running=False, owner=None)]
    with pytest.raises(Conflict, match="is cancelled; it can be read, but not changed any more"):
        await fill_day_before(jobs_of(system, cast(Store, meddler)), job)
    await system.advance(hours=1)
    assert system.starts == []


async def test_a_cancel_also_gives_up_what_was_begun_to_be_filled_while_it_was_on_its_way(system: System) -> None:
    await system.add_node()
    job = await create(system, "0 * * * *")
    meddler = Meddler(system.store)
    meddler.before["change"] = [lambda: fill_day_before(jobs_of(system), job)]
    await jobs_of(system, cast(Store, meddler)).cancel(job.id, keep_running=False, owner=None)
    assert await backfills_of(system, job) == []
    await system.advance(hours=1)
    assert system.starts == []


async def test_what_a_cancel_that_came_to_no_end_left_to_be_filled_is_given_up(system: System) -> None:
    job = await create(system, "0 * * * *")
    meddler = Meddler(system.store)

    async def nothing() -> None:
        pass

    async def fails() -> None:
        raise Unavailable("the store does not answer")

    meddler.before["change"] = [lambda: fill_day_before(jobs_of(system), job)]
    meddler.before["ledger"] = [nothing, nothing, fails]
    with pytest.raises(Unavailable):
        await jobs_of(system, cast(Store, meddler)).cancel(job.id, keep_running=False, owner=None)
    assert len(await backfills_of(system, job)) == 1
    await system.add_node()
    await system.advance(hours=1)
    assert system.starts == []
    assert await backfills_of(system, job) == []


async def fill_day_before(jobs: Jobs, job: Job) -> None:
    """Ask for the slots of the day before the job was created."""
    await jobs.backfill(job.id, job.created_at - timedelta(days=1), job.created_at, owner=None, issue=None)


async def backfills_of(system: System, job: Job) -> Sequence[Backfill]:
    begin, end = job.created_at - timedelta(days=2), system.clock.now()
    return (await system.store.ledger(job.id, start=begin, end=end, limit=1)).backfills


async def test_another_owners_job_is_not_there(system: System) -> None:
    job = await create(system, "every 1h")
    jobs = jobs_of(system)
    for act in (
        jobs.find(job.id, owner="other"),
        jobs.pause(job.id, owner="other"),
        jobs.resume(job.id, missed=Misfire.SKIP, owner="other"),
        jobs.cancel(job.id, keep_running=False, owner="other"),
        jobs.run_now(job.id, None, owner="other", by="other"),
    ):
        with pytest.raises(NotFound):
            await act
    with pytest.raises(NotFound):
        await jobs.find(JobId("0" * 32), owner=None)


# --- a job that ends by itself


async def test_a_job_whose_schedule_is_over_is_finished_and_frees_its_key(system: System) -> None:
    await system.add_node()
    ends = (system.clock.now() + timedelta(seconds=5)).isoformat()
    draft = Draft(task="echo", key="k", schedule={"type": "every", "seconds": 1, "ends_at": ends})
    job = await jobs_of(system).create(draft, owner="local", by="local")
    with pytest.raises(KeyTaken):
        await jobs_of(system).create(draft, owner="local", by="local")
    await system.advance(seconds=20)
    after = await jobs_of(system).find(job.id, owner=None)
    assert after.status is JobStatus.FINISHED
    with pytest.raises(Conflict):
        await jobs_of(system).pause(job.id, owner=None)
    later = Draft(task="echo", key="k")
    await jobs_of(system).create(later, owner="local", by="local")


async def test_manual_runs_wait_for_their_turn_and_fill_no_slot(system: System) -> None:
    system.scripts["echo"] = instantly
    await system.add_node()
    job = await create(system, "every 10s")
    await system.advance(seconds=5)
    run = await jobs_of(system).run_now(job.id, '{"a":1}', owner=None, by="somebody")
    assert isinstance(run, Run)
    await system.advance(seconds=1)
    done = await system.run(run.id)
    assert (done.state, done.created_by, done.spec.params) == (State.SUCCEEDED, "somebody", '{"a":1}')
    await system.advance(seconds=5)
    assert counts(await ledger(system, job)) == {"ran": 1}


async def test_one_shots_are_in_the_ledger_of_their_own(system: System) -> None:
    await system.add_node()
    run = await create_one_shot(system, Draft(task="echo"))
    await system.advance(seconds=1)
    looking = JobQueries(
        store=system.store, blobs=system.store.blobs, parameters=Parameters(system.store.blobs), clock=system.clock
    )
    page = await looking.slots(run.job_id, owner=None, start=None, end=None, cursor=None, limit=10)
    [entry] = page.items
    assert (entry.outcome, entry.run_id, entry.start) == (SlotOutcome.RAN, run.id, run.due_at)
    assert entry.reason is not Reason.CANCELLED


# --- many at a time


async def test_jobs_that_come_together_share_their_time_but_not_their_ids(system: System) -> None:
    jobs, draft = jobs_of(system), Draft(task="echo", allow_unknown_task=True)

    async def create_a_moment_later() -> Job:
        system.clock.advance(milliseconds=1)
        return await jobs.create(draft, owner="local", by="local")

    together = await asyncio.gather(*(create_a_moment_later() for _ in range(20)))
    later = await create_a_moment_later()
    assert len({job.created_at for job in together}) == 1
    assert later.created_at > together[0].created_at
    ids = [job.id for job in (*together, later)]
    assert ids == sorted(set(ids))


async def test_the_unknown_tasks_of_a_batch_are_looked_up_once_after_it_began(system: System) -> None:
    store = Meddler(system.store)
    jobs = jobs_of(system, cast("Store", store))
    reads = 0

    async def count() -> None:
        nonlocal reads
        reads += 1

    store.before["records"] = [count] * 10
    for batches in (1, 2):
        drafts = [Draft(task=f"nobody.{number}") for number in range(700)]
        outcomes = await jobs.create_many(drafts, owner="local", by="local")
        assert {type(outcome) for outcome in outcomes} == {UnknownTask}
        assert reads == batches
    with pytest.raises(UnknownTask):
        await jobs.create(Draft(task="nobody.0"), owner="local", by="local")
    assert reads == 3  # a refusal never rests on what was known before it was asked for


# --- group commit


async def test_what_comes_while_a_batch_is_written_becomes_the_next_batch() -> None:
    batches: list[list[int]] = []
    gate = asyncio.Event()

    async def write(items: Sequence[int]) -> list[int]:
        batches.append(list(items))
        await gate.wait()
        return [item * 10 for item in items]

    group = Batcher(write)
    first = asyncio.create_task(group.add(1))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    rest = [asyncio.create_task(group.add(number)) for number in range(2, 6)]
    await asyncio.sleep(0)
    gate.set()
    assert await asyncio.gather(first, *rest) == [10, 20, 30, 40, 50]
    assert batches == [[1], [2, 3, 4, 5]]


async def test_a_batch_that_fails_fails_for_all_of_it_and_the_next_one_is_written() -> None:
    failing = True

    async def write(items: Sequence[int]) -> list[int]:
        await asyncio.sleep(0)
        if failing:
            raise Unavailable("the store is down")
        return list(items)

    group = Batcher(write)
    answers = await asyncio.gather(*(group.add(number) for number in range(3)), return_exceptions=True)
    assert [type(answer) for answer in answers] == [Unavailable] * 3
    failing = False
    assert await group.add(7) == 7


async def test_a_request_that_is_given_up_does_not_harm_its_batch() -> None:
    gate = asyncio.Event()

    async def write(items: Sequence[int]) -> list[int]:
        await gate.wait()
        return list(items)

    group = Batcher(write)
    waiting = [asyncio.create_task(group.add(number)) for number in range(3)]
    await asyncio.sleep(0)
    waiting[1].cancel()
    await asyncio.sleep(0)
    gate.set()
    assert await asyncio.gather(waiting[0], waiting[2]) == [0, 2]


async def test_a_held_run_that_a_short_pause_spared_starts_once(system: System) -> None:
    node = await system.add_node()
    job = await create(system, "every 10s", policy=Policy(overlap=Overlap.ALLOW))
    due_at = next_after(job.schedule, system.clock.now())
    assert due_at is not None
    await system.advance_to(due_at - timedelta(seconds=0.5))
    assert node.worker.holding == 1
    jobs = jobs_of(system)
    await jobs.pause(job.id, owner="local")
    await jobs.resume(job.id, missed=Misfire.SKIP, owner="local")
    await system.advance_to(due_at + timedelta(seconds=1))
    assert [start.run.slot for start in system.starts] == [due_at]
