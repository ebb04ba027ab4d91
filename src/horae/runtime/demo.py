"""Demo jobs for `horae dev`, created once in an empty store."""

from collections.abc import Sequence

from horae.core.drafts import Draft
from horae.jobs.service import Jobs
from horae.ports.reader import JobFilter, Reader

LABELS = {"demo": "yes"}

DEMO_JOBS: Sequence[Draft] = (
    Draft(
        task="demo.echo",
        name="says hello every five seconds",
        key="demo-hello",
        schedule="every 5s",
        params='{"message":"hello, on time"}',
        labels=LABELS,
    ),
    Draft(
        task="demo.fail",
        name="fails once, then succeeds",
        key="demo-flaky",
        schedule="* * * * *",
        params='{"times":1}',
        labels=LABELS,
    ),
    Draft(
        task="demo.sleep",
        name="a report on weekday mornings",
        key="demo-report",
        schedule={"type": "cron", "expression": "0 9 * * mon-fri", "timezone": "Europe/Paris"},
        params='{"seconds":2}',
        labels=LABELS,
    ),
)


async def seed_demo_jobs(jobs: Jobs, store: Reader, *, owner: str) -> int:
    """Create the demo jobs if there is no job yet; return how many were created."""
    if (await store.list_jobs(JobFilter(), cursor=None, limit=1)).items:
        return 0
    await jobs.create_many(DEMO_JOBS, owner=owner, by=owner)
    return len(DEMO_JOBS)
