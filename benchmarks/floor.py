"""Measures the bare stores with only the writes of a job, durably and 1,000 jobs at a time.

A job is three transactions: insert due rows, claim them, finish them. No product can be faster than its store; how
close it comes is a figure that says something about the product on any machine.
"""

import asyncio
import multiprocessing
import sqlite3
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import uvloop

from benchmarks.machine import own_cpu_seconds
from tests.postgres_server import scratch_schema

BATCH = 1000
PARAMS = '{"n":12345}'  # as small as those of `horae bench`


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The jobs done, the time, and the CPU time of all processes."""

    done: int
    seconds: float
    cpu_seconds: float

    @property
    def per_s(self) -> float:
        return self.done / self.seconds

    @property
    def cpu_us(self) -> float:
        """Microseconds of CPU time per job."""
        return self.cpu_seconds / self.done * 1e6

    def figures(self) -> dict[str, float]:
        return {"per_s": round(self.per_s), "cpu_s_per_1000": round(self.cpu_us / 1000, 4)}


# --- PostgreSQL

POSTGRES_TABLE = """
CREATE TABLE run (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, task text NOT NULL, params text NOT NULL,
    due_at timestamptz NOT NULL, state smallint NOT NULL DEFAULT 0, attempt int NOT NULL DEFAULT 0,
    worker text, started_at timestamptz, finished_at timestamptz
);
CREATE INDEX run_due ON run (due_at) WHERE state = 0;
"""
POSTGRES_INSERT = """
INSERT INTO run (task, params, due_at) SELECT * FROM unnest($1::text[], $2::text[], $3::timestamptz[])
"""
POSTGRES_CLAIM = """
WITH due AS (SELECT id FROM run WHERE state = 0 AND due_at <= $1 ORDER BY due_at LIMIT $2 FOR UPDATE SKIP LOCKED)
UPDATE run SET state = 1, attempt = attempt + 1, worker = 'floor', started_at = $1 FROM due WHERE run.id = due.id
RETURNING run.id, run.task, run.params, run.attempt
"""
POSTGRES_FINISH = "UPDATE run SET state = 2, finished_at = $1 WHERE id = ANY($2::bigint[])"


@asynccontextmanager
async def postgres_table(address: str) -> AsyncIterator[str]:
    """Yield the address of a scratch schema with an empty table."""
    async with scratch_schema(address) as schema:
        connection = await asyncpg.connect(address)
        name = schema.rpartition("search_path=")[2]
        await connection.execute(f"CREATE SCHEMA {name}; SET search_path = {name}; {POSTGRES_TABLE}")
        await connection.close()
        yield schema


async def postgres_lives(table: str, jobs: int) -> Pace:
    """Run jobs on one connection."""
    async with _connected(table) as (connection, cpu):
        insert, claim, finish = [
            await connection.prepare(text) for text in (POSTGRES_INSERT, POSTGRES_CLAIM, POSTGRES_FINISH)
        ]
        began, before, done = time.perf_counter(), cpu(), 0
        while done < jobs:
            now = datetime.now(UTC)
            await insert.fetch(["job"] * BATCH, [PARAMS] * BATCH, [now] * BATCH)
            claimed = [row["id"] for row in await claim.fetch(now, BATCH)]
            await finish.fetch(now, claimed)
            done += len(claimed)
        return Pace(done=done, seconds=time.perf_counter() - began, cpu_seconds=cpu() - before)


async def postgres_inserts(table: str, jobs: int) -> Pace:
    """Insert rows only."""
    async with _connected(table) as (connection, cpu):
        insert = await connection.prepare(POSTGRES_INSERT)
        began, before = time.perf_counter(), cpu()
        for _ in range(jobs // BATCH):
            await insert.fetch(["job"] * BATCH, [PARAMS] * BATCH, [datetime.now(UTC)] * BATCH)
        return Pace(done=jobs, seconds=time.perf_counter() - began, cpu_seconds=cpu() - before)


@asynccontextmanager
async def _connected(table: str) -> AsyncIterator[tuple[Any, Any]]:
    """Yield a connection and a reader of the CPU time of both its processes."""
    connection = await asyncpg.connect(table)
    try:
        backend = connection.get_server_pid()
        yield connection, lambda: time.process_time() + own_cpu_seconds(backend)
    finally:
        await connection.close()


# --- SQLite

SQLITE_TABLE = """
PRAGMA journal_mode = wal;
PRAGMA synchronous = full;
DROP TABLE IF EXISTS run;
CREATE TABLE run (
    id integer PRIMARY KEY, task text NOT NULL, params text NOT NULL, due_at real NOT NULL,
    state int NOT NULL DEFAULT 0, attempt int NOT NULL DEFAULT 0, worker text, started_at real, finished_at real
);
CREATE INDEX run_due ON run (due_at) WHERE state = 0;
"""
SQLITE_INSERT = "INSERT INTO run (task, params, due_at) VALUES (?, ?, ?)"
SQLITE_CLAIM = """
UPDATE run SET state = 1, attempt = attempt + 1, worker = 'floor', started_at = ?1
 WHERE id IN (SELECT id FROM run WHERE state = 0 AND due_at <= ?1 ORDER BY due_at LIMIT ?2)
RETURNING id, task, params, attempt
"""
SQLITE_FINISH = "UPDATE run SET state = 2, finished_at = ? WHERE id = ?"


def sqlite_lives(folder: Path, jobs: int) -> Pace:
    """Run jobs on one connection to a new file, with `synchronous = full`."""
    with closing(_sqlite_table(folder)) as connection:
        began, before, done = time.perf_counter(), time.process_time(), 0
        while done < jobs:
            now = time.time()
            with _transaction(connection):
                connection.executemany(SQLITE_INSERT, [("job", PARAMS, now)] * BATCH)
            with _transaction(connection):
                claimed = connection.execute(SQLITE_CLAIM, (now, BATCH)).fetchall()
            with _transaction(connection):
                connection.executemany(SQLITE_FINISH, [(now, row[0]) for row in claimed])
            done += len(claimed)
        return Pace(done=done, seconds=time.perf_counter() - began, cpu_seconds=time.process_time() - before)


def _sqlite_table(folder: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(folder / "floor.db", isolation_level=None)
    connection.executescript(SQLITE_TABLE)
    return connection


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    yield
    connection.execute("COMMIT")


# --- as parts of the table


def measure_postgres(address: str, jobs: int, *, connections: int = 1) -> dict[str, float]:
    """Measure jobs per second on some connections, each in its own process."""

    async def measured() -> dict[str, float]:
        async with postgres_table(address) as table:
            with multiprocessing.get_context("spawn").Pool(connections) as pool:
                paces = await asyncio.to_thread(pool.starmap, _lives, [(table, jobs // connections)] * connections)
        return Pace(
            done=sum(pace.done for pace in paces),
            seconds=max(pace.seconds for pace in paces),
            cpu_seconds=sum(pace.cpu_seconds for pace in paces),
        ).figures()

    return uvloop.run(measured())


def _lives(table: str, jobs: int) -> Pace:
    return uvloop.run(postgres_lives(table, jobs))


def measure_postgres_inserts(address: str, jobs: int) -> dict[str, float]:
    """Measure inserted rows per second on one connection."""

    async def measured() -> dict[str, float]:
        async with postgres_table(address) as table:
            return (await postgres_inserts(table, jobs)).figures()

    return uvloop.run(measured())


def measure_sqlite(jobs: int) -> dict[str, float]:
    """Measure jobs per second on SQLite."""
    with tempfile.TemporaryDirectory(prefix="horae-bench-") as folder:
        return sqlite_lives(Path(folder), jobs).figures()
