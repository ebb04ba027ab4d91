"""Look-ups and lists in PostgreSQL: live runs and history are read apart, each by its own index, and merged here."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime

from horae.core.effects import OVER
from horae.core.job_rules import job_of
from horae.core.lifecycle import FINAL
from horae.core.model import Attempt, Job, JobId, Node, Run, RunId
from horae.ports.reader import JobFilter, Ledger, Listing, RunFilter
from horae.stores.common.listing import EARLIEST, micros_of, page
from horae.stores.postgres.base import PostgresBase
from horae.stores.postgres.codecs import FIRST_DAY, ROWS, birthday, first_day, node_of
from horae.stores.postgres.connection.database import Session
from horae.stores.postgres.list_queries import JobQuery, RunQuery


class PostgresReads(PostgresBase):
    """The read port."""

    async def job(self, job_id: JobId, *, owner: str | None) -> Job | None:
        """The job; a one-shot comes with its run, whether it is alive or ended."""
        async with self._db.session() as session:
            for row in await session.rows("job", job_id):
                job = ROWS.job(row)
                return job if owner in (None, job.owner) else None
            run = await _find_run(session, RunId(job_id))
        return job_of(run) if run is not None and run.one_shot and owner in (None, run.owner) else None

    async def jobs(self, job_ids: Sequence[JobId]) -> Mapping[JobId, Job]:
        """As `job`, of many; those that are not there are left out."""
        found: dict[JobId, Job] = {}
        async with self._db.session() as session:
            for row in await session.rows("jobs_among", job_ids):
                job = ROWS.job(row)
                found[job.id] = job
            once = [RunId(job_id) for job_id in job_ids if job_id not in found]
            live = [ROWS.run(row) for row in await session.rows("live_runs_among", once)] if once else []
        found |= {run.job_id: job_of(run) for run in live if run.one_shot}
        over = [RunId(job_id) for job_id in job_ids if job_id not in found]
        return found | {run.job_id: job_of(run) for run in await self.ended(over) if run.one_shot}

    async def run(self, run_id: RunId, *, owner: str | None) -> Run | None:
        """The run, alive or ended."""
        async with self._db.session() as session:
            run = await _find_run(session, run_id)
        return run if run is not None and owner in (None, run.owner) else None

    async def runs(self, run_ids: Sequence[RunId]) -> Mapping[RunId, Run]:
        """As `run`, of many; those that are not there are left out."""
        live = [ROWS.run(row) for row in await self._db.rows("live_runs_among", run_ids)] if run_ids else []
        found = {run.id: run for run in live}
        over = [run_id for run_id in run_ids if run_id not in found]
        return found | {run.id: run for run in await self.ended(over)}

    async def ended(self, run_ids: Sequence[RunId]) -> list[Run]:
        """Those of the runs that have ended, in any order."""
        if not run_ids:
            return []
        return [ROWS.run(row) for row in await self._db.rows("ended_runs_among", run_ids, first_day(run_ids))]

    async def job_by_key(self, owner: str, key: str) -> Job | None:
        """The unfinished job that holds a key."""
        holder: str | None = await self._db.value("key_holder", owner, key)
        job = None if holder is None else await self.job(JobId(holder), owner=owner)
        if job is None:
            return None
        over = job.status in OVER if job.run is None else job.run.state in FINAL
        return None if over else job  # it may have ended between the two looks

    async def ahead_of(self, run: Run, *, limit: int = 10) -> list[Run]:
        """What a waiting run waits for in its gate, earliest first."""
        if run.gate is None:
            return []
        return [ROWS.run(row) for row in await self._db.rows("ahead_of", run.id, run.gate, run.due_at, limit)]

    async def attempts(self, run_id: RunId) -> list[Attempt]:
        """The attempts of a run that did not succeed, oldest first."""
        return [ROWS.attempt(row) for row in await self._db.rows("attempts", run_id)]

    async def attempts_of(self, run_ids: Sequence[RunId]) -> Mapping[RunId, Sequence[Attempt]]:
        """The attempts of many runs that did not succeed, oldest first; runs without any are left out."""
        found: dict[RunId, list[Attempt]] = defaultdict(list)
        for row in await self._db.rows("attempts_of", run_ids):
            found[RunId(row[0])].append(ROWS.attempt(row))
        return dict(found)

    async def last_runs(self, job_ids: Sequence[JobId], *, now: datetime) -> Mapping[JobId, Run]:
        """For each job its latest run that is already due, if there is one."""
        rows = await self._db.rows("last_runs", job_ids, now, first_day(job_ids))
        runs = [ROWS.run(row) for row in rows]
        return {run.job_id: run for run in runs}

    async def list_runs(self, which: RunFilter, *, cursor: str | None, limit: int) -> Listing[Run]:
        """By due time, latest first."""
        query = RunQuery.of(which, cursor, limit)
        found: dict[RunId, Run] = {}
        async with self._db.session() as session:
            for search in query.searches():
                for row in await session.rows(search.name, *query.arguments(search, found.values())):
                    found[row[0]] = ROWS.run(row)
        runs, following = page(found.values(), limit, lambda run: (micros_of(run.due_at), run.id))
        return Listing(items=runs, cursor=following)

    async def list_jobs(self, which: JobFilter, *, cursor: str | None, limit: int) -> Listing[Job]:
        """Newest first."""
        query = JobQuery.of(which, cursor, limit)
        found: dict[str, Job] = {}
        async with self._db.session() as session:
            for search in query.searches():
                decode = ROWS.job if search.name.startswith("list_jobs") else ROWS.one_shot
                for row in await session.rows(search.name, *query.arguments(search, found)):
                    found[row[0]] = decode(row)
        jobs, following = page(found.values(), limit, lambda job: (job.id,))
        return Listing(items=jobs, cursor=following)

    async def ledger(self, job_id: JobId, *, start: datetime, end: datetime, limit: int) -> Ledger:
        """What is known of the slots with start <= slot <= end; at most `limit` runs, the oldest."""
        async with self._db.session() as session:
            live = await session.rows("ledger_live", job_id, start, end, limit)
            ended = await session.rows("ledger_ended", job_id, start, end, limit)
            skips = await session.rows("ledger_skips", job_id, start, end)
            backfills = await session.rows("ledger_backfills", job_id, start, end)
        runs = {row[0]: ROWS.run(row) for row in (*live, *ended)}
        return Ledger(
            runs=sorted(runs.values(), key=lambda run: (run.slot or EARLIEST, run.id))[:limit],
            skips=[ROWS.skip(row) for row in skips],
            backfills=[ROWS.backfill(row) for row in backfills],
        )

    async def nodes(self) -> list[Node]:
        """Every node that is registered, dead ones that nobody buried yet included."""
        return [node_of(row) for row in await self._db.rows("nodes")]

    async def tasks(self) -> Mapping[str, str]:
        """Every task that a node ever registered, with the JSON schema of its parameters."""
        return {row[0]: row[1] for row in await self._db.rows("tasks")}


async def _find_run(session: Session, run_id: RunId) -> Run | None:
    """The run, alive or ended; live ones are asked first, for a run never comes back from the history."""
    for row in await session.rows("live_run", run_id):
        return ROWS.run(row)
    born = birthday(run_id) or FIRST_DAY
    for first in dict.fromkeys((born, FIRST_DAY)):  # a clock that is behind may end a run before it was born
        for row in await session.rows("ended_run", run_id, first):
            return ROWS.run(row)
    return None
