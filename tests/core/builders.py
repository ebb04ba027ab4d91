"""Jobs and runs for tests of the core."""

from datetime import UTC, datetime, timedelta
from itertools import count

from horae.core.decisions.results import start
from horae.core.model import Job, JobId, NodeId, Policy, Run, RunId, Spec, State
from horae.core.schedule.parse import parse_schedule
from horae.core.values import replace

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
HORIZON = timedelta(seconds=30)
JOB = JobId("a" * 32)
_numbers = count(1)


def new_id() -> str:
    return f"{next(_numbers):032x}"


def a_job(schedule: object = "* * * * * *", *, next_fire_at: datetime | None = NOON, **policy: object) -> Job:
    return Job(
        id=JOB,
        owner="local",
        created_by="local",
        spec=Spec(task="demo.echo", policy=Policy(**policy)),  # type: ignore[arg-type]
        schedule=parse_schedule(schedule, now=NOON),  # type: ignore[arg-type]
        next_fire_at=next_fire_at,
        plan_at=NOON,
        created_at=NOON - timedelta(days=1),
        updated_at=NOON - timedelta(days=1),
    )


def a_run(state: State = State.SCHEDULED, **changes: object) -> Run:
    run = Run(
        id=RunId(new_id()),
        job_id=JOB,
        owner="local",
        created_by="local",
        spec=Spec(task="demo.echo"),
        slot=NOON,
        due_at=NOON,
        wake_at=NOON,
        created_at=NOON - timedelta(minutes=1),
    )
    if state is State.CLAIMED:
        run = replace(run, state=state, node=NodeId("n" * 32), fence=1)
    if state is State.RUNNING:
        run = start(replace(run, state=State.CLAIMED, node=NodeId("n" * 32), fence=1), NOON)
    return replace(run, **changes)  # type: ignore[arg-type]
