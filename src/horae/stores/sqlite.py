"""The SQLite store: one file on one host, shared by any number of its processes."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path

from horae.core.model import Attempt, Backfill, Job, JobId, Node, NodeId, Reason, Run, RunId
from horae.core.plan import Firing, Page, Settled
from horae.store import (
    Beat,
    Changed,
    ClaimRequest,
    Claims,
    JobChange,
    JobFilter,
    Ledger,
    Listing,
    Plannable,
    QueueDepth,
    Retraction,
    RunFilter,
    Signal,
)
from horae.stores import sqlite_claim, sqlite_plan, sqlite_reads, sqlite_runs
from horae.stores.sqlite_blobs import SqliteBlobs
from horae.stores.sqlite_database import Database, expected_version, migrate, version
from horae.stores.sqlite_executor import SqliteExecutor, ThreadedExecutor
from horae.stores.sqlite_rows import to_micros


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
        self._hearers: list[Callable[[Signal], None]] = []
        self.blobs = SqliteBlobs(self._executor, wall)

    async def open(self) -> None:
        await self.migrate()
        await self._executor.open(self._database, self._tell)

    async def close(self) -> None:
        await self._executor.close()

    async def migrate(self) -> list[int]:
        """Bring the file to the version of this code, making it if there is none; the migrations that were applied."""
        return await self._executor.run(lambda: self._database.use(migrate))

    async def status(self) -> tuple[int, int]:
        """The version of the file, and the one that this code expects."""
        return await self._executor.run(lambda: self._database.use(version)), expected_version()

    def subscribe(self, heard: Callable[[Signal], None]) -> Callable[[], None]:
        def stop() -> None:
            if heard in self._hearers:
                self._hearers.remove(heard)
            self._executor.listen(bool(self._hearers))

        self._hearers.append(heard)
        self._executor.listen(True)
        return stop

    def _tell(self, signals: Sequence[Signal]) -> None:
        for signal in signals:
            for heard in tuple(self._hearers):
                heard(signal)

    async def time(self) -> datetime:
        return self._wall()

    # --- creating and firing

    async def create(self, items: Sequence[Run | Firing]) -> list[JobId]:
        return await self._executor.write(lambda transaction: sqlite_plan.create(transaction, items))

    async def plannable(self, shards: Sequence[int], *, now: datetime, limit: int) -> Plannable:
        return await self._executor.read(lambda db: sqlite_plan.plannable(db, shards, now, limit))

    async def fire(self, firings: Sequence[Firing]) -> list[bool]:
        return await self._executor.write(lambda transaction: sqlite_plan.fire(transaction, firings))

    async def fill(self, pages: Sequence[Page]) -> list[bool]:
        return await self._executor.write(lambda transaction: sqlite_plan.fill(transaction, pages))

    async def backfill(self, backfills: Sequence[Backfill]) -> None:
        await self._executor.write(lambda transaction: sqlite_plan.begin_backfills(transaction, backfills))

    async def change(self, change: JobChange) -> Changed | None:
        return await self._executor.write(lambda transaction: sqlite_plan.change(transaction, change))

    async def change_one_shot(self, run: Run, *, expected: int) -> bool:
        return await self._executor.write(lambda transaction: sqlite_plan.change_one_shot(transaction, run, expected))

    # --- the life of a run

    async def claim(self, request: ClaimRequest) -> Claims:
        return await self._executor.write(lambda transaction: sqlite_claim.claim(transaction, request))

    async def start(self, runs: Sequence[Run]) -> list[bool]:
        return await self._executor.write(lambda transaction: sqlite_runs.start(transaction, runs))

    async def settle(self, results: Sequence[Settled]) -> list[bool]:
        return await self._executor.write(lambda transaction: sqlite_runs.settle(transaction, results))

    async def end_waiting(self, results: Sequence[Settled]) -> list[bool]:
        return await self._executor.write(lambda transaction: sqlite_runs.end_waiting(transaction, results))

    async def park(self, runs: Sequence[Run]) -> None:
        await self._executor.write(lambda transaction: sqlite_claim.park(transaction, runs))

    async def request_stop(self, run_ids: Sequence[RunId], reason: Reason) -> list[NodeId | None]:
        return await self._executor.write(lambda transaction: sqlite_runs.request_stop(transaction, run_ids, reason))

    async def retract(self, runs: Sequence[Run], *, now: datetime) -> list[Retraction]:
        return await self._executor.write(lambda transaction: sqlite_plan.retract(transaction, runs, now))

    async def stops(self, node: NodeId) -> Mapping[RunId, Reason]:
        return await self._executor.read(lambda db: sqlite_runs.stops(db, node))

    async def held(self, node: NodeId) -> Mapping[RunId, int]:
        return await self._executor.read(lambda db: sqlite_runs.held(db, node))

    # --- nodes

    async def register(self, node: Node) -> None:
        await self._executor.write(lambda transaction: sqlite_runs.register(transaction, node))

    async def beat(self, node: NodeId, *, now: datetime, running: int, dead_after: timedelta) -> Beat | None:
        return await self._executor.write(
            lambda transaction: sqlite_runs.beat(transaction, node, now, running, dead_after)
        )

    async def unregister(self, node: NodeId) -> None:
        await self._executor.write(lambda transaction: sqlite_runs.unregister(transaction, node))

    async def bury(self, *, now: datetime, dead_after: timedelta) -> list[NodeId]:
        return await self._executor.write(lambda transaction: sqlite_runs.bury(transaction, now, dead_after))

    async def orphans(self, *, limit: int) -> list[Run]:
        return await self._executor.read(lambda db: sqlite_runs.orphans(db, limit))

    async def tidy(self, *, now: datetime) -> int:
        return await self._executor.write(lambda transaction: sqlite_claim.tidy(transaction, now))

    # --- history

    async def prune(self, *, before: date, limit: int) -> int:
        moment = to_micros(datetime.combine(before, time(), UTC))
        return await self._executor.write(lambda transaction: sqlite_runs.prune(transaction, moment, limit))

    # --- look-ups and lists

    async def job(self, job_id: JobId, *, owner: str | None) -> Job | Run | None:
        return await self._executor.read(lambda db: sqlite_reads.job(db, job_id, owner))

    async def run(self, run_id: RunId, *, owner: str | None) -> Run | None:
        return await self._executor.read(lambda db: sqlite_reads.run(db, run_id, owner))

    async def attempts(self, run_id: RunId) -> list[Attempt]:
        return await self._executor.read(lambda db: sqlite_reads.attempts(db, run_id))

    async def last_runs(self, job_ids: Sequence[JobId], *, now: datetime) -> Mapping[JobId, Run]:
        return await self._executor.read(lambda db: sqlite_reads.last_runs(db, job_ids, now))

    async def list_jobs(self, which: JobFilter, *, cursor: str | None, limit: int) -> Listing[Job | Run]:
        return await self._executor.read(lambda db: sqlite_reads.list_jobs(db, which, cursor, limit))

    async def list_runs(self, which: RunFilter, *, cursor: str | None, limit: int) -> Listing[Run]:
        return await self._executor.read(lambda db: sqlite_reads.list_runs(db, which, cursor, limit))

    async def ledger(self, job_id: JobId, *, start: datetime, end: datetime, limit: int) -> Ledger:
        return await self._executor.read(lambda db: sqlite_reads.ledger(db, job_id, start, end, limit))

    async def nodes(self) -> list[Node]:
        return await self._executor.read(sqlite_reads.nodes)

    async def tasks(self) -> Mapping[str, str]:
        return await self._executor.read(sqlite_reads.tasks)

    async def queues(self, *, now: datetime) -> list[QueueDepth]:
        return await self._executor.read(lambda db: sqlite_reads.queues(db, now))

    async def dead_letters(self) -> int:
        return await self._executor.read(sqlite_reads.dead_letters)
