"""Look-ups and lists in PostgreSQL: live runs and history are read apart, each by its own index, and merged here."""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from horae.core.lifecycle import FINAL, HELD, WAITING
from horae.core.model import Attempt, Job, JobId, JobStatus, Node, Run, RunId, State
from horae.store import JobFilter, Ledger, Listing, QueueDepth, RunFilter
from horae.stores.postgres_base import PostgresBase
from horae.stores.postgres_pool import Session
from horae.stores.postgres_rows import HIGHEST_ID, LOWEST_ID, ROWS, birthday, node_of
from horae.stores.rows import decode_cursor, encode_cursor

MAX_DEPTH = 10_000  # how far the runs of a queue are counted
FIRST_DAY = date(1, 1, 1)
EARLIEST = datetime(1, 1, 1, tzinfo=UTC)
LATEST = datetime(9999, 12, 31, tzinfo=UTC)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TICK = timedelta(microseconds=1)


class PostgresReads(PostgresBase):
    """The read port."""

    async def job(self, job_id: JobId, *, owner: str | None) -> Job | Run | None:
        """The job; a one-shot comes as its run, whether it is alive or ended."""
        async with self._db.session() as session:
            for row in await session.rows("job", job_id):
                job = ROWS.job(row)
                return job if owner in (None, job.owner) else None
            run = await _find_run(session, RunId(job_id))
        return run if run is not None and run.one_shot and owner in (None, run.owner) else None

    async def run(self, run_id: RunId, *, owner: str | None) -> Run | None:
        """The run, alive or ended."""
        async with self._db.session() as session:
            run = await _find_run(session, run_id)
        return run if run is not None and owner in (None, run.owner) else None

    async def attempts(self, run_id: RunId) -> list[Attempt]:
        """The attempts of a run that did not succeed, oldest first."""
        return [ROWS.attempt(row) for row in await self._db.rows("attempts", run_id)]

    async def last_runs(self, job_ids: Sequence[JobId], *, now: datetime) -> Mapping[JobId, Run]:
        """For each job its latest run that is already due, if there is one."""
        runs = [ROWS.run(row) for row in await self._db.rows("last_runs", job_ids, now)]
        return {run.job_id: run for run in runs}

    async def list_runs(self, which: RunFilter, *, cursor: str | None, limit: int) -> Listing[Run]:
        """By due time, latest first."""
        query = _RunQuery.of(which, cursor, limit)
        found: dict[RunId, Run] = {}
        async with self._db.session() as session:
            for (
                name,
                states,
            ) in query.statements():  # live ones first: what ends meanwhile is then seen twice, not never
                for row in await session.rows(name, *query.arguments(states)):
                    found[row[0]] = ROWS.run(row)
        runs = heapq.nlargest(limit + 1, found.values(), key=lambda run: (run.due_at, run.id))
        more = len(runs) > limit
        last = runs[limit - 1] if more else None
        return Listing(
            items=runs[:limit],
            cursor=None if last is None else encode_cursor((last.due_at - _EPOCH) // _TICK, last.id),
        )

    async def list_jobs(self, which: JobFilter, *, cursor: str | None, limit: int) -> Listing[Job | Run]:
        """Newest first."""
        before = HIGHEST_ID if cursor is None else _ident(decode_cursor(cursor, str)[0])
        found: dict[str, Job | Run] = {}
        async with self._db.session() as session:
            for name, extra in _job_statements(which):
                decode = ROWS.job if name.startswith("list_jobs") else ROWS.run
                for row in await session.rows(name, *_job_arguments(which, before, limit + 1), *extra):
                    found[row[0]] = decode(row)
        ids = heapq.nlargest(limit + 1, found)
        items = [found[ident] for ident in ids[:limit]]
        return Listing(items=items, cursor=encode_cursor(ids[limit - 1]) if len(ids) > limit else None)

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

    async def queues(self, *, now: datetime) -> list[QueueDepth]:
        """The queues that have live runs."""
        return [
            QueueDepth(queue=row[0], depth=row[1], oldest_due_at=row[2], running=row[3])
            for row in await self._db.rows("queue_depths", now, MAX_DEPTH)
        ]

    async def dead_letters(self) -> int:
        """How many failed runs nobody has resolved, counted up to a bound."""
        count: int = await self._db.value("dead_letters", MAX_DEPTH)
        return count


async def _find_run(session: Session, run_id: RunId) -> Run | None:
    """The run, alive or ended; live ones are asked first, for a run never comes back from the history."""
    for row in await session.rows("live_run", run_id):
        return ROWS.run(row)
    born = birthday(run_id) or FIRST_DAY
    for first_day in dict.fromkeys((born, FIRST_DAY)):  # a clock that is behind may end a run before it was born
        for row in await session.rows("ended_run", run_id, first_day):
            return ROWS.run(row)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _RunQuery:
    """A filter as the range of an index and the rest."""

    which: RunFilter
    states: frozenset[State]
    start: datetime
    before_at: datetime
    before_id: str
    limit: int

    @classmethod
    def of(cls, which: RunFilter, cursor: str | None, limit: int) -> "_RunQuery":
        start, before = which.start_at or EARLIEST, (which.end_at or LATEST, LOWEST_ID)
        if which.due is not None and which.now is not None:
            if which.due:
                before = min(before, (which.now + _TICK, LOWEST_ID))
            else:
                start = max(start, which.now + _TICK)
        if cursor is not None:
            micros, ident = decode_cursor(cursor, int, str)
            before = min(before, (_EPOCH + micros * _TICK, _ident(ident)))
        states = frozenset(State) if which.states is None else which.states
        return cls(which=which, states=states, start=start, before_at=before[0], before_id=before[1], limit=limit + 1)

    def statements(self) -> list[tuple[str, frozenset[State]]]:
        """Which statements find the runs, each with the states that it is asked for."""
        live, ended = self.states - FINAL, self.states & FINAL
        if self.which.job_id is not None:
            chosen = [("list_live_of_job", live), ("list_ended_of_job", ended)]
        else:
            waiting = "list_retried" if live & WAITING == {State.RETRYING} else "list_waiting"
            over = _ended_list("list_ended", self.which, well=State.SUCCEEDED in ended)
            chosen = [(waiting, live & WAITING), ("list_held", live & HELD), (over, ended)]
        return [(name, states) for name, states in chosen if states]

    def arguments(self, states: frozenset[State]) -> tuple[Any, ...]:
        """The parameters that all lists of runs take."""
        which = self.which
        return (
            which.owner,
            which.job_id,
            sorted(states),
            which.stopping,
            which.task,
            which.queue,
            self.start,
            self.before_at,
            self.before_id,
            self.limit,
        )


def _ended_list(name: str, which: RunFilter | JobFilter, *, well: bool) -> str:
    """The list of ended runs that follows the best index: with or without those that succeeded, and of one owner."""
    of_owner = which.owner is not None and which.task is None and which.queue is None
    return f"{name}{'' if well else '_badly'}{'_of_owner' if of_owner else ''}"


def _job_statements(which: JobFilter) -> list[tuple[str, tuple[Any, ...]]]:
    """Which statements find the jobs, each with the parameters that are its own."""
    last, due_by = which.last_run_states, which.now or LATEST
    live = (which.status, None if last is None else sorted(last - FINAL), due_by)
    ended = sorted(_ended_states(which.status) & (FINAL if last is None else last))
    recurring = (which.status, None if last is None else sorted(last), due_by)
    statements: list[tuple[str, tuple[Any, ...]]] = []
    if which.status is not JobStatus.FINISHED and live[1] != []:
        statements += [(name, live) for name in _live_statements(which)]
    if ended:
        statements.append((_ended_statement(which, ended), (ended, LATEST if last is None else due_by)))
    statements.append(("list_jobs_of_all" if which.owner is None else "list_jobs_of_owner", recurring))
    return statements


def _live_statements(which: JobFilter) -> list[str]:
    if which.key is not None:
        return ["list_one_shots_keyed"]
    if which.status is JobStatus.PAUSED:
        return ["list_one_shots_paused"]
    if which.status is JobStatus.CANCELLED:
        return ["list_one_shots_held"]  # a cancel that waits for its node
    return ["list_one_shots_waiting", "list_one_shots_held"]


def _ended_statement(which: JobFilter, states: Sequence[State]) -> str:
    if which.key is not None:
        return "list_one_shots_ended_keyed"
    return _ended_list("list_one_shots_ended", which, well=State.SUCCEEDED in states)


def _ended_states(status: JobStatus | None) -> frozenset[State]:
    """The states of ended one-shots that stand so."""
    match status:
        case None:
            return FINAL
        case JobStatus.FINISHED:
            return FINAL - {State.CANCELLED}
        case JobStatus.CANCELLED:
            return frozenset({State.CANCELLED})
        case _:
            return frozenset()


def _job_arguments(which: JobFilter, before: str, limit: int) -> tuple[Any, ...]:
    label, value = which.label or (None, None)
    return (which.owner, which.task, which.name, which.key, which.queue, label, value, which.text, before, limit)


def _ident(text: str) -> str:
    """An id from a cursor; anything else cannot be found, and sorts before everything."""
    return text if len(text) == 32 and all(digit in "0123456789abcdef" for digit in text) else LOWEST_ID
