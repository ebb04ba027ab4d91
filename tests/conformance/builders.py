"""Jobs, runs and nodes for the conformance suite, and the steps that bring a store into a known state."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from horae.core.decisions.firing import Firing
from horae.core.decisions.results import Failure, Settled, fail, lost, start, succeed
from horae.core.decisions.retry import RetryPolicy
from horae.core.ids import Ids
from horae.core.model import (
    Attempt,
    Backfill,
    Job,
    JobError,
    JobId,
    Misfire,
    Node,
    NodeId,
    OnFailure,
    Overlap,
    Policy,
    Reason,
    Run,
    RunId,
    Skip,
    Spec,
    State,
    Trigger,
)
from horae.core.schedule.types import At, Every
from horae.core.values import replace
from horae.lookup import find_run
from horae.ports.reader import Listing
from horae.ports.store import ClaimRequest, Claims, Store
from tests import acts

NOW = datetime(2026, 3, 1, 12, 0, 0, 123457, tzinfo=UTC)  # microseconds that no float keeps by chance
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
DEAD_AFTER = timedelta(seconds=15)

ODD = "naïve \"quoted\" 'single' \\ % _ ; -- 🦉𝔘 שלום \u202e\u0301 \n\t"  # everything that a text may hold but NUL

new_id = Ids(wall=NOW.timestamp)  # of the same day as NOW: stores may look for a run from the day of its id on


def spec(**changes: Any) -> Spec:
    """What to run, and how."""
    return Spec(**{"task": "demo.echo", **changes})


def one_shot(due_at: datetime = NOW, *, owner: str = "ada", gate: str | None = None, **changes: Any) -> Run:
    """A job that runs once; keywords of a spec go there, the others to the run."""
    of_spec = {name: changes.pop(name) for name in list(changes) if name in Spec.__struct_fields__}
    ident = new_id()
    run = Run(
        id=RunId(ident),
        job_id=JobId(ident),
        owner=owner,
        created_by=owner,
        spec=spec(**of_spec),
        schedule=At(time=due_at),
        due_at=due_at,
        wake_at=due_at,
        gate=gate,
        created_at=NOW,
    )
    return replace(run, **changes)


def recurring(*, next_fire_at: datetime | None = NOW, owner: str = "ada", **changes: Any) -> Job:
    """A job that runs every minute."""
    of_spec = {name: changes.pop(name) for name in list(changes) if name in Spec.__struct_fields__}
    job = Job(
        id=JobId(new_id()),
        owner=owner,
        created_by=owner,
        spec=spec(**of_spec),
        schedule=Every(interval=MINUTE, anchor=NOW),
        next_fire_at=next_fire_at,
        plan_at=NOW,
        created_at=NOW,
        updated_at=NOW,
    )
    return replace(job, **changes)


def slot_run(job: Job, slot: datetime, **changes: Any) -> Run:
    """The run of a slot."""
    run = Run(
        id=RunId(new_id()),
        job_id=job.id,
        owner=job.owner,
        created_by=job.created_by,
        spec=job.spec,
        trigger=Trigger.SCHEDULE,
        slot=slot,
        due_at=slot,
        wake_at=slot,
        revision=job.revision,
        created_at=NOW,
    )
    return replace(run, **changes)


def firing(job: Job, *runs: Run, **changes: Any) -> Firing:
    """A firing that makes the runs and leaves the job as it is, but for the changes."""
    made = Firing(job=job, runs=runs, next_fire_at=job.next_fire_at, plan_at=job.plan_at, status=job.status)
    return replace(made, **changes)


def skipped(job: Job, start_at: datetime, end_at: datetime, count: int, reason: Reason = Reason.MISFIRE) -> Skip:
    """A range of slots without runs."""
    return Skip(job_id=job.id, revision=job.revision, start=start_at, end=end_at, count=count, reason=reason)


def a_backfill(job: Job, start_at: datetime = NOW, **changes: Any) -> Backfill:
    """Ten slots that are still to become runs."""
    backfill = Backfill(
        id=new_id(),
        job_id=job.id,
        trigger=Trigger.SCHEDULE,
        start=start_at,
        end=start_at + 9 * MINUTE,
        plan_at=NOW,
        created_at=NOW,
    )
    return replace(backfill, **changes)


def a_node(**changes: Any) -> Node:
    """A worker that knows the tasks of these tests."""
    node = Node(
        id=NodeId(new_id()),
        name="host:1",
        roles=("api", "worker"),
        version="0.1",
        queues=("default",),
        concurrency=10,
        started_at=NOW,
        beat_at=NOW,
        tasks={"demo.echo": '{"type": "object"}'},
    )
    return replace(node, **changes)


def unusual_policy() -> Policy:
    """A policy in which nothing is the default."""
    return Policy(
        retry=RetryPolicy(
            max_retries=7,
            initial=timedelta(seconds=1.5),
            factor=3.0,
            maximum=timedelta(seconds=99),
            jitter=False,
        ),
        timeout=timedelta(seconds=12.345678),
        start_within=timedelta(seconds=60),
        overlap=Overlap.BUFFER_ONE,
        misfire=Misfire.ALL,
        catchup=timedelta(days=2),
        on_failure=OnFailure.BLOCK,
    )


# --- steps


async def given_node(store: Store, **changes: Any) -> NodeId:
    """A node that is registered."""
    node = a_node(**changes)
    await acts.register(store, node)
    return node.id


async def claims_of(store: Store, node: NodeId, **changes: Any) -> Claims:
    """Claim everything that is due NOW, but for the changes."""
    request = ClaimRequest(node=node, queues=(), tasks=("demo.echo",), now=NOW, until=NOW)
    return await store.claim(replace(request, **changes))


async def claimed(store: Store, node: NodeId, **changes: Any) -> list[Run]:
    """The runs that such a claim brings."""
    return list((await claims_of(store, node, **changes)).runs)


async def given_claimed(store: Store, *runs: Run, node: NodeId | None = None) -> list[Run]:
    """Runs that a node holds, in the order in which they were given."""
    await acts.create(store, runs)
    holder = node or await given_node(store)
    held = {run.id: run for run in await claimed(store, holder)}
    return [held[run.id] for run in runs]


async def given_running(store: Store, *runs: Run, node: NodeId | None = None, at: datetime = NOW) -> list[Run]:
    """Runs whose attempt is under way, and the store knows."""
    started = [start(run, at) for run in await given_claimed(store, *runs, node=node)]
    assert await store.start(started) == [True] * len(runs)
    return started


async def given_ended(store: Store, *runs: Run, at: datetime = NOW, node: NodeId | None = None) -> list[Run]:
    """Runs that have succeeded."""
    results = [succeed(run, '"done"', at) for run in await given_running(store, *runs, node=node)]
    assert await store.settle(results) == [True] * len(runs)
    return [settled.run for settled in results]


async def given_job(store: Store, job: Job | None = None, *runs: Run) -> Job:
    """A recurring job with runs."""
    made = job or recurring()
    assert await acts.create(store, [firing(made, *runs)]) == [made.id]
    return made


async def state_of(store: Store, run: Run) -> State:
    """How a run stands in the store."""
    found = await find_run(store, run.id, owner=None)
    assert found is not None
    return found.state


async def pages(fetch: Any, limit: int) -> list[Any]:
    """Everything that a list holds, page by page."""
    items: list[Any] = []
    cursor: str | None = None
    while True:
        listing: Listing[Any] = await fetch(cursor, limit)
        assert len(listing.items) <= limit
        items += listing.items
        cursor = listing.cursor
        if cursor is None:
            return items


# --- what can become of a run


OOPS = JobError(type="ValueError", message=f"it did not work: {ODD}")


def failed(run: Run, at: datetime = NOW) -> Settled:
    """The attempt failed for good."""
    return fail(run, Failure(error=OOPS, fatal=True), at, 0.0)


def retried(run: Run, at: datetime = NOW) -> Settled:
    """The attempt failed and is tried again in a minute."""
    return fail(run, Failure(error=OOPS, retry_after=MINUTE), at, 0.0)


def buried(run: Run, at: datetime = NOW) -> Settled:
    """The node of the run died once too often."""
    return lost(replace(run, crashes=4), at)


def ids(things: Sequence[Run] | Sequence[Job]) -> list[str]:
    """The ids of runs or jobs."""
    return [thing.id for thing in things]


async def attempts_of(store: Store, run_id: RunId) -> list[Attempt]:
    """The attempts of one run that did not succeed, oldest first."""
    return [*(await store.attempts([run_id])).get(run_id, ())]
