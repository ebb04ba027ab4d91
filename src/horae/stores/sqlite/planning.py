"""What planners look at in SQLite: jobs and backfills whose time to be planned has come."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime

from horae.core.decisions.firing import MAX_UNSTARTED, Due
from horae.core.model import Job, JobId
from horae.ports.store import Plannable
from horae.stores.sqlite.codecs import ROWS, maybe_time, to_blob, to_json, to_micros
from horae.stores.sqlite.database import STATEMENTS


def plannable(db: sqlite3.Connection, shards: Sequence[int], now: datetime, limit: int) -> Plannable:
    """Jobs and backfills whose `plan_at` has come."""
    which = {"shards": to_json(shards), "now": to_micros(now), "limit": limit}
    jobs = [ROWS.job(row) for row in db.execute(STATEMENTS["plannable_jobs"], which)]
    backfills = [ROWS.backfill(row) for row in db.execute(STATEMENTS["plannable_backfills"], which)]
    paired = [(backfill, job) for backfill in backfills if (job := _job(db, backfill.job_id)) is not None]
    [next_at] = db.execute(STATEMENTS["next_plan_at"], which).fetchone()
    return Plannable(
        jobs=[_due(db, job) for job in jobs],
        backfills=[(backfill, _due(db, job)) for backfill, job in paired],
        next_at=maybe_time(next_at),
    )


def _job(db: sqlite3.Connection, job_id: JobId) -> Job | None:
    row = db.execute(STATEMENTS["job"], {"id": to_blob(job_id)}).fetchone()
    return None if row is None else ROWS.job(row)


def _due(db: sqlite3.Connection, job: Job) -> Due:
    counts = {"job_id": to_blob(job.id), "bound": MAX_UNSTARTED}
    unstarted, live = db.execute(STATEMENTS["count_live"], counts).fetchone()
    return Due(job=job, unstarted=unstarted, live=live)
