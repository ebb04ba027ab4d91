"""How jobs stand in PostgreSQL while something is written for them: who cancels one waits for it, or was first."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from horae.core.job_rules import one_shot_status
from horae.core.model import JobId, JobStatus, Run
from horae.stores.postgres.codecs import ROWS, first_day
from horae.stores.postgres.database import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What was found of some jobs, as it stays until the transaction ends."""

    cancelled: frozenset[JobId] = frozenset()
    passed_over: tuple[datetime, ...] = ()  # when one-shots wake that no claim can take meanwhile


async def hold(session: Session, job_ids: Collection[JobId]) -> Standing:
    """Keep the jobs as they are until the transaction ends; those that are not there stand in nobody's way."""
    ids = sorted(set(job_ids))
    if not ids:
        return Standing()
    recurring = {row[0]: row[1] for row in await session.rows("hold_jobs", ids)}
    once = [job_id for job_id in ids if job_id not in recurring]
    live = [ROWS.run(row) for row in await session.rows("hold_one_shots", once)] if once else []
    # Looked for after the live ones: what ended while we waited for it is found here.
    ended = await _ended(session, sorted(set(once) - {run.job_id for run in live}))
    over = {job_id for job_id, status in recurring.items() if status == JobStatus.CANCELLED}
    over |= {run.job_id for run in [*live, *ended] if one_shot_status(run) is JobStatus.CANCELLED}
    waiting = tuple(run.wake_at for run in live if run.node is None and not run.paused)
    return Standing(cancelled=frozenset(over), passed_over=waiting)


async def _ended(session: Session, job_ids: list[JobId]) -> list[Run]:
    if not job_ids:
        return []
    return [ROWS.run(row) for row in await session.rows("ended_runs_among", job_ids, first_day(job_ids))]
