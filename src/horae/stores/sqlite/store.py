"""The SQLite store: one file on one host, shared by any number of its processes."""

import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TypeVar

from horae.core.changes import Change, Refusal
from horae.core.decisions.results import Settled
from horae.core.model import Attempt, Job, JobId, Node, NodeId, Reason, Run, RunId
from horae.core.signals import Signal
from horae.core.values import replace
from horae.ports.database import SchemaStatus, Tell, tell_nobody
from horae.ports.reader import (
    MAX_QUEUES,
    ErrorGroup,
    JobFilter,
    Kept,
    KeptPage,
    KnownId,
    Ledger,
    Listing,
    QueueDepth,
    R,
    RunFilter,
)
from horae.ports.store import Beat, ClaimRequest, Claims, EndedRuns, Plannable, Waiting
from horae.stores.common.subscribers import Subscribers
from horae.stores.sqlite import events, list_queries, queues, reads, upkeep
from horae.stores.sqlite import runs as sqlite_runs
from horae.stores.sqlite.apply import apply
from horae.stores.sqlite.batches import claimed
from horae.stores.sqlite.blobs import SqliteBlobs
from horae.stores.sqlite.claim import claim
from horae.stores.sqlite.database import Database
from horae.stores.sqlite.executor import SqliteExecutor, ThreadedExecutor
from horae.stores.sqlite.gates import tidy
from horae.stores.sqlite.migrations.apply import create_or_check, migrate, read_status

T = TypeVar("T")


class SqliteStore:
    """Every verb is a function of a transaction or of a connection, done by the executor."""

    def __init__(
        self,
        path: Path | str,
        *,
        executor: SqliteExecutor | None = None,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._database = Database(Path(path))
        self._executor = executor or ThreadedExecutor()
        self._wall = wall
        self._subscribers = Subscribers()
        self._tidied_to = ""  # the gate up to which we looked for parked runs that nothing blocks
        self.blobs = SqliteBlobs(self._executor, wall)
        self.events = events.SqliteEventLog(self._executor)

    async def open(self) -> None:
        """Open the file, creating a new one; raises Misconfigured if its schema is not for this version."""
        await self._executor.run(lambda: self._database.use(create_or_check))
        await self._executor.open(
            self._database,
            self._subscribers.tell,
            lambda db, transactions: events.write(db, transactions, self._wall()),
        )

    async def close(self) -> None:
        await self._executor.close()

    async def migrate(self, tell: Tell = tell_nobody) -> list[int]:
        """Bring the file to the version of this code, making it if there is none; the migrations that were applied."""
        return await self._executor.run(lambda: self._database.use(lambda db: migrate(db, tell)))

    async def status(self) -> SchemaStatus:
        """The version of the file, the one that this code expects, and the oldest that may use it."""
        return await self._executor.run(lambda: self._database.use(read_status))

    def subscribe(self, heard: Callable[[Signal], None]) -> Callable[[], None]:
        unsubscribe = self._subscribers.add(heard)
        self._executor.listen(True)

        def stop() -> None:
            unsubscribe()
            self._executor.listen(len(self._subscribers) > 0)

        return stop

    async def time(self) -> datetime:
        return self._wall()

    # --- creating and firing

    async def create(self, runs: Sequence[Run]) -> None:
        await self._executor.write(sqlite_runs.creating(runs))

    async def apply(self, changes: Sequence[Change]) -> list[Refusal | None]:
        return await self._executor.write(lambda transaction: apply(transaction, changes))

    async def plannable(self, shards: Sequence[int], *, now: datetime, limit: int) -> Plannable:
        return await self._executor.read(lambda db: reads.plannable(db, shards, now, limit))

    # --- the life of a run

    async def claim(self, request: ClaimRequest) -> Claims:
        rows, claims = await self._executor.write(lambda transaction: claim(transaction, request))
        return replace(claims, runs=claimed(rows, request.node))

    async def waiting(
        self,
        shards: Sequence[int],
        *,
        since: datetime | None,
        until: datetime,
        cursor: str | None,
        limit: int,
        gates: Sequence[str] | None = None,
    ) -> Waiting:
        if gates is not None:
            return await self._executor.read(lambda db: reads.next_in_gates(db, gates, shards, since, until))
        return await self._executor.read(lambda db: reads.waiting(db, shards, since, until, cursor, limit))

    async def start(self, runs: Sequence[Run]) -> list[bool]:
        return await self._executor.write(lambda transaction: sqlite_runs.start(transaction, runs))

    async def settle(self, results: Sequence[Settled]) -> list[bool]:
        return await self._executor.write(sqlite_runs.settling(results))

    async def stops(self, node: NodeId) -> Mapping[RunId, Reason]:
        return await self._executor.read(lambda db: sqlite_runs.stops(db, node))

    async def still_held(self, runs: Sequence[Run]) -> list[bool]:
        return await self._executor.read(lambda db: sqlite_runs.held(db, runs))

    async def held_by(self, node: NodeId, *, until: datetime) -> list[Run]:
        return await self._executor.read(lambda db: sqlite_runs.held_by(db, node, until))

    async def orphans(self, *, limit: int) -> list[Run]:
        return await self._executor.read(lambda db: sqlite_runs.orphans(db, limit))

    # --- upkeep

    async def beat(
        self, node: NodeId, *, now: datetime, running: int, dead_after: timedelta, wall_ahead: timedelta = timedelta()
    ) -> Beat | None:
        return await self._executor.write(
            lambda transaction: upkeep.beat(transaction, node, now, running, dead_after, wall_ahead)
        )

    async def tidy(self, *, now: datetime) -> int:
        found, self._tidied_to = await self._executor.write(lambda transaction: tidy(transaction, now, self._tidied_to))
        return found

    async def ended(self, *, before: date, after: Run | None = None, limit: int) -> EndedRuns | None:
        return await self._executor.read(lambda db: upkeep.ended(db, before, after, limit))

    async def prune(self, *, now: datetime, before: date, limit: int, runs: int | None = None) -> int:
        # Two transactions, because everybody else waits for each.
        expired = await self._executor.write(lambda transaction: upkeep.expire(transaction, now, limit))
        return expired + await self._executor.write(lambda transaction: upkeep.prune(transaction, before, limit, runs))

    # --- look-ups and lists

    async def jobs(self, job_ids: Sequence[JobId]) -> Mapping[JobId, Job]:
        return await self._executor.read(lambda db: reads.jobs(db, job_ids))

    async def runs(self, run_ids: Sequence[RunId], *, ended: bool = False) -> Mapping[RunId, Run]:
        return await self._executor.read(lambda db: reads.runs(db, run_ids, ended))

    async def attempts(self, run_ids: Sequence[RunId]) -> Mapping[RunId, Sequence[Attempt]]:
        return await self._executor.read(lambda db: reads.attempts(db, run_ids))

    async def records(self, kind: type[R], *, owner: str = "", key: str | None = None) -> list[R]:
        return await self._executor.read(lambda db: reads.records(db, kind, owner, key))

    async def ahead_of(self, run: Run, *, limit: int = 10) -> list[Run]:
        return await self._executor.read(lambda db: reads.ahead_of(db, run, limit))

    async def last_runs(self, job_ids: Sequence[JobId], *, now: datetime) -> Mapping[JobId, Run]:
        return await self._executor.read(lambda db: reads.last_runs(db, job_ids, now))

    async def list_jobs(
        self, which: JobFilter, *, cursor: str | None, limit: int, look: int | None = None
    ) -> Listing[Job]:
        return await self._reader(look)(lambda db: list_queries.list_jobs(db, which, cursor, limit, look))

    async def list_runs(
        self, which: RunFilter, *, cursor: str | None, limit: int, look: int | None = None
    ) -> Listing[Run]:
        return await self._reader(look)(lambda db: list_queries.list_runs(db, which, cursor, limit, look))

    async def ids(self, first: str, last: str, *, limit: int) -> list[KnownId]:
        return await self._executor.read(lambda db: reads.ids(db, first, last, limit))

    async def ledger(
        self, job_id: JobId, *, start: datetime, end: datetime, limit: int, look: int | None = None
    ) -> Ledger:
        return await self._reader(look)(lambda db: reads.ledger(db, job_id, start, end, limit, look))

    def _reader(self, look: int | None) -> Callable[[Callable[[sqlite3.Connection], T]], Awaitable[T]]:
        """What reads a list: with a bound it is a user's, otherwise the engine or an act needs it."""
        return self._executor.read if look is None else self._executor.browse

    async def nodes(self) -> list[Node]:
        return await self._executor.read(reads.nodes)

    async def queues(
        self,
        *,
        now: datetime,
        owner: str | None = None,
        queue: str | None = None,
        after: str = "",
        limit: int = MAX_QUEUES,
    ) -> list[QueueDepth]:
        return await self._executor.browse(lambda db: queues.queues(db, now, owner, queue, after, limit))

    async def queue_lateness(
        self, *, since: datetime, owner: str | None = None, after: str = "", until: str | None = None
    ) -> Mapping[str, timedelta]:
        return await self._executor.browse(lambda db: queues.lateness(db, since, owner, after, until))

    async def due_soon(self, *, now: datetime, within: timedelta) -> Mapping[str, int]:
        return await self._executor.browse(lambda db: queues.due_soon(db, now, now + within))

    async def kept_by(self, owner: str, part: Kept, *, cursor: str | None, limit: int) -> KeptPage:
        return await self._executor.read(lambda db: reads.kept_by(db, owner, part, cursor, limit))

    async def dead_letter_groups(self, which: RunFilter) -> list[ErrorGroup]:
        return await self._executor.browse(lambda db: reads.dead_letter_groups(db, which))

    async def count_dead_letters(self) -> int:
        return await self._executor.browse(reads.count_dead_letters)
