"""Compares the cost of the hot verbs in a small and in a very large store, measured in turn."""

import asyncio
import gc
import hashlib
import re
import sqlite3
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg

from horae.core.decisions.results import Failure, Settled, cancel, fail, start, succeed
from horae.core.ids import Ids
from horae.core.model import JobError, JobId, JobStatus, Node, NodeId, Run, RunId, Spec, State
from horae.core.schedule.parse import parse_schedule
from horae.core.values import replace
from horae.ports.reader import JobFilter, RunFilter
from horae.ports.store import ClaimRequest, Store
from horae.stores.common.statements import load
from horae.stores.postgres.connection.database import SERVER_SETTINGS
from horae.stores.postgres.store import PostgresStore
from horae.stores.sqlite.database import Database
from horae.stores.sqlite.store import SqliteStore
from tests import acts

OWNER = "local"
TASKS = ("demo.echo", "demo.sleep", "effects.work")
QUEUES = ("default", "mail", "reports")
ENDS = (State.SUCCEEDED, State.FAILED, State.CANCELLED)
DAYS = 10  # over which what has finished is spread, in the small store as in the large one
BATCH = 10
PAGE = 20  # of which there are enough of every kind in the small store too
FAR = timedelta(days=30)
ALLOWED = 1.25
NOISE_SECONDS = 0.0002
# A list searches the index of each day of history. With a hundred times as many rows each of these is one page higher,
# which costs so much in all; that it is no more than a page each is judged by `check_pages`.
DESCENT_SECONDS = 0.0005

new_id = Ids()


@dataclass
class Sized:
    """A store and its number of rows."""

    store: Store
    kind: str
    address: str
    runs: int  # that wait, and as many that have finished
    node: NodeId = field(default_factory=lambda: NodeId(new_id()))

    async def reopen(self) -> None:
        """Close every connection, so that PostgreSQL updates its statistics, and open new ones."""
        await self.store.close()
        await self.store.open()


@asynccontextmanager
async def sized(kind: str, address: str, runs: int) -> AsyncIterator[Sized]:
    """Fill an empty store with waiting and finished runs of several tasks, queues and outcomes."""
    store = PostgresStore(address) if kind == "postgres" else SqliteStore(Path(address.removeprefix("sqlite:///")))
    await store.migrate()
    await store.open()
    try:
        filled = Sized(store, kind, address, runs)
        await _register(filled)
        await _make_templates(filled)
        if kind == "postgres":
            await _multiply_in_postgres(filled)
        else:
            await asyncio.to_thread(_multiply_in_sqlite, filled)
        yield filled
    finally:
        await store.close()


# --- filling: a few runs through the verbs of the store, and copies of their rows by SQL


async def _register(sized: Sized) -> None:
    now = datetime.now(UTC)
    await acts.register(
        sized.store,
        Node(
            id=sized.node,
            name="scale",
            roles=("worker",),
            version="test",
            concurrency=100,
            started_at=now,
            beat_at=now,
            tasks=dict.fromkeys(TASKS, "{}"),
        ),
    )


async def _make_templates(sized: Sized) -> None:
    """Create one waiting run and one per outcome, for every task and queue."""
    shelves = [(task, queue) for task in TASKS for queue in QUEUES]
    for end in ENDS:
        now = datetime.now(UTC)
        await acts.create(sized.store, [one_shot(task, queue, now) for task, queue in shelves])
        claims = await sized.store.claim(claim_request(sized, limit=len(shelves)))
        assert len(claims.runs) == len(shelves)
        assert all(await sized.store.settle([_ended(run, end) for run in claims.runs]))
    await acts.create(sized.store, [one_shot(task, queue, datetime.now(UTC) + FAR) for task, queue in shelves])


def one_shot(task: str, queue: str, due_at: datetime) -> Run:
    job_id = JobId(new_id())
    now = datetime.now(UTC)
    return Run(
        id=RunId(job_id),
        job_id=job_id,
        owner=OWNER,
        created_by=OWNER,
        spec=Spec(task=task, queue=queue, params='{"message":"hello"}'),
        schedule=parse_schedule("now", now=now),
        due_at=due_at,
        wake_at=due_at,
        created_at=now,
    )


def claim_request(sized: Sized, *, limit: int = BATCH) -> ClaimRequest:
    now = datetime.now(UTC)
    return ClaimRequest(node=sized.node, queues=(), tasks=TASKS, now=now, until=now + timedelta(seconds=1), limit=limit)


def _ended(run: Run, end: State) -> Settled:
    now = datetime.now(UTC)
    started = start(run, now)
    match end:
        case State.SUCCEEDED:
            return succeed(started, '"hello"', now)
        case State.FAILED:
            return fail(started, Failure(error=JobError(type="Boom", message="boom"), fatal=True), now, 0.0)
        case _:
            return cancel(started, now)


_MOVED = ("due_at", "wake_at", "created_at", "first_started_at", "started_at", "finished_at")


async def _multiply_in_postgres(sized: Sized) -> None:
    connection = await asyncpg.connect(sized.address, command_timeout=600)
    try:
        today = datetime.now(UTC).date()
        for day in range(DAYS + 1):
            await connection.execute("SELECT ensure_history_day($1)", today - timedelta(days=day))
        await connection.execute("SET synchronous_commit = off")
        await _copy_rows(connection, "runs", sized.runs, FAR.total_seconds())
        await _copy_rows(connection, "history", sized.runs, -timedelta(days=DAYS - 1).total_seconds())
        for table in ("runs", "history"):
            await connection.execute(f"VACUUM ANALYZE {table}")
    finally:
        await connection.close()


async def _copy_rows(connection: Any, table: str, total: int, span_seconds: float) -> None:
    """Copy the rows until there are `total`, each copy with a new id and new times."""
    columns = [
        row[0]
        for row in await connection.fetch(
            "SELECT column_name FROM information_schema.columns"
            " WHERE table_schema = current_schema() AND table_name = $1 AND is_generated = 'NEVER'",
            table,
        )
    ]
    copies = round(total / await connection.fetchval(f"SELECT count(*) FROM {table}")) - 1
    moved = {name: f"{name} + shift" for name in _MOVED} | {"id": "fresh", "job_id": "fresh"}
    if "ended_on" in columns:
        moved["ended_on"] = "((finished_at + shift) AT TIME ZONE 'UTC')::date"
    chosen = ", ".join(moved.get(name, name) for name in columns)
    await connection.execute(
        f"""
        INSERT INTO {table} ({", ".join(columns)})
        SELECT {chosen}
          FROM (SELECT each.*, shift,
                       (lpad(to_hex((extract(epoch FROM created_at + shift) * 1000)::bigint), 12, '0')
                        || '7' || substr(hash, 1, 3) || '8' || substr(hash, 4, 15))::uuid AS fresh
                  FROM {table} AS each
                 CROSS JOIN generate_series(1, {copies}) AS place
                 CROSS JOIN LATERAL (SELECT make_interval(secs => {span_seconds} * place / {copies}) AS shift,
                                            md5(each.id::text || place) AS hash) AS made
                 ORDER BY due_at + shift) AS copies  -- as they would have come in
        """
    )


def _multiply_in_sqlite(sized: Sized) -> None:
    path = sized.address.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path, timeout=60, isolation_level=None)) as db:
        db.execute("PRAGMA synchronous = OFF")
        db.execute("PRAGMA cache_size = -500000")
        db.create_function("fresh", 3, _fresh_id, deterministic=True)
        columns = [row[1] for row in db.execute("PRAGMA table_info(runs)") if row[5] == 0]  # but the primary key
        indexes = db.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = 'runs' AND sql IS NOT NULL"
        ).fetchall()
        for name, _ in indexes:
            db.execute(f"DROP INDEX {name}")
        _copy_sqlite_rows(db, columns, "finished_at IS NULL", sized.runs, FAR.total_seconds())
        past = -timedelta(days=DAYS - 1).total_seconds()
        _copy_sqlite_rows(db, columns, "finished_at IS NOT NULL", sized.runs, past)
        for _, sql in indexes:
            db.execute(sql)
        db.execute("ANALYZE")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _copy_sqlite_rows(
    db: sqlite3.Connection, columns: Sequence[str], which: str, total: int, span_seconds: float
) -> None:
    db.execute("DROP TABLE IF EXISTS temp.templates")
    db.execute(f"CREATE TEMP TABLE templates AS SELECT * FROM runs WHERE {which}")
    copies = round(total / db.execute("SELECT count(*) FROM templates").fetchone()[0]) - 1
    shift = f"CAST({span_seconds * 1e6} * place / {copies} AS INTEGER)"
    moved = {name: f"{name} + {shift}" for name in _MOVED}
    moved |= dict.fromkeys(("id", "job_id"), f"fresh(id, place, created_at + {shift})")
    chosen = ", ".join(moved.get(name, name) for name in columns)
    db.execute(
        f"""
        INSERT INTO runs ({", ".join(columns)})
        WITH RECURSIVE places(place) AS (SELECT 1 UNION ALL SELECT place + 1 FROM places WHERE place < {copies})
        SELECT {chosen} FROM places CROSS JOIN templates
        """
    )


def _fresh_id(origin: bytes, place: int, micros: int) -> bytes:
    """A UUIDv7 of that time; the same for the same origin and place."""
    digest = bytearray(hashlib.md5(origin + place.to_bytes(8, "big"), usedforsecurity=False).digest()[:10])
    digest[0] = 0x70 | digest[0] & 0x0F
    digest[2] = 0x80 | digest[2] & 0x3F
    return (micros // 1000).to_bytes(6, "big") + bytes(digest)


# --- measuring

Measure = Callable[[Sized], Awaitable[None]]


@dataclass
class Medians:
    """The median seconds of a verb in the small and in the large store."""

    small: float
    large: float
    allowed_seconds: float = NOISE_SECONDS

    @property
    def holds(self) -> bool:
        return self.large <= ALLOWED * self.small + self.allowed_seconds

    def __str__(self) -> str:
        return f"{self.small * 1000:.2f} → {self.large * 1000:.2f} ms"


async def measure_life(small: Sized, large: Sized, *, turns: int) -> dict[str, Medians]:
    """Time creating, claiming and settling batches, in turn in both stores."""
    took: dict[str, dict[int, list[float]]] = {verb: {0: [], 1: []} for verb in ("create", "claim", "settle")}
    gc.disable()
    try:
        for turn in range(turns + WARM_UP):
            for which in (0, 1) if turn % 2 else (1, 0):
                seconds = await _one_life(large if which else small)
                if turn >= WARM_UP:
                    for verb, value in seconds.items():
                        took[verb][which].append(value)
    finally:
        gc.enable()
    return {verb: _medians(values) for verb, values in took.items()}


WARM_UP = 10


async def _one_life(sized: Sized) -> dict[str, float]:
    now = datetime.now(UTC)
    runs = [one_shot(TASKS[place % 3], QUEUES[place % 3], now) for place in range(BATCH)]
    began = time.perf_counter()
    await acts.create(sized.store, runs)
    created = time.perf_counter()
    claims = await sized.store.claim(claim_request(sized))
    claimed = time.perf_counter()
    assert len(claims.runs) == BATCH, f"claimed {len(claims.runs)} of {BATCH}"
    results = [_ended(run, State.SUCCEEDED) for run in claims.runs]
    ready = time.perf_counter()
    assert all(await sized.store.settle(results))
    return {"create": created - began, "claim": claimed - created, "settle": time.perf_counter() - ready}


def lists() -> dict[str, Measure]:
    """The usual list requests."""
    now = datetime.now(UTC)
    own = RunFilter(owner=OWNER, now=now)
    waiting = frozenset({State.SCHEDULED, State.CLAIMED})
    runs = {
        "all": own,
        "scheduled": replace(own, states=waiting, due=False, stopping=False),
        "queued": replace(own, states=waiting, due=True, stopping=False),
        "running": replace(own, states=frozenset({State.RUNNING}), stopping=False),
        "succeeded": replace(own, states=frozenset({State.SUCCEEDED})),
        "failed": replace(own, states=frozenset({State.FAILED})),
        "task": replace(own, task=TASKS[1]),
        "queue": replace(own, queue=QUEUES[1]),
        "task and queue": replace(own, task=TASKS[2], queue=QUEUES[2]),
        "time past": replace(own, start_at=now - timedelta(days=8), end_at=now - timedelta(days=1)),
        "time to come": replace(own, start_at=now + timedelta(days=35), end_at=now + timedelta(days=50)),
    }
    jobs = {
        "jobs": JobFilter(owner=OWNER),
        "jobs scheduled": JobFilter(owner=OWNER, status=JobStatus.SCHEDULED),
        "jobs finished": JobFilter(owner=OWNER, status=JobStatus.FINISHED),
        "jobs by task": JobFilter(owner=OWNER, task=TASKS[1]),
        "jobs by queue": JobFilter(owner=OWNER, queue=QUEUES[1]),
    }
    return {name: _runs_page(which) for name, which in runs.items()} | {
        name: _jobs_page(which) for name, which in jobs.items()
    }


def _runs_page(which: RunFilter) -> Measure:
    async def page(sized: Sized) -> None:
        await sized.store.list_runs(which, cursor=None, limit=PAGE)

    return page


def _jobs_page(which: JobFilter) -> Measure:
    async def page(sized: Sized) -> None:
        await sized.store.list_jobs(which, cursor=None, limit=PAGE)

    return page


async def measure_lists(small: Sized, large: Sized, *, turns: int) -> dict[str, Medians]:
    """Time first pages, in turn in both stores."""
    found = {}
    for name, page in lists().items():
        values: dict[int, list[float]] = {0: [], 1: []}
        for turn in range(turns + WARM_UP):
            for which in (0, 1) if turn % 2 else (1, 0):
                began = time.perf_counter()
                await page(large if which else small)
                if turn >= WARM_UP:
                    values[which].append(time.perf_counter() - began)
        found[name] = _medians(values, allowed_seconds=DESCENT_SECONDS)
    return found


def _medians(values: dict[int, list[float]], *, allowed_seconds: float = NOISE_SECONDS) -> Medians:
    few, many = (statistics.median(values[which]) for which in (0, 1))
    return Medians(small=few, large=many, allowed_seconds=allowed_seconds)


def check_medians(found: dict[str, Medians]) -> str:
    """Check that medians differ by less than 25 %; return them as text."""
    words = "; ".join(f"{name} {medians}" for name, medians in found.items())
    slower = [name for name, medians in found.items() if not medians.holds]
    assert not slower, f"slower with more in the store: {', '.join(slower)}\n{words}"
    return words


# --- plans and pages

HOT = ("create_runs", "claim", "start_runs", "end_runs", "return_runs", "plannable_jobs", "orphans")


async def check_plans(small: Sized, large: Sized) -> int:
    """Check that every hot statement and list has the same plan in both; return how many were compared."""
    plans = [await _postgres_plans(each) if each.kind == "postgres" else _sqlite_plans(each) for each in (small, large)]
    other = {name: (plans[0][name], plans[1][name]) for name in plans[0] if plans[0][name] != plans[1][name]}
    assert not other, "\n".join(f"{name}:\n  small {few}\n  large {many}" for name, (few, many) in other.items())
    return len(plans[0])


async def _postgres_plans(sized: Sized) -> dict[str, Any]:
    connection = await asyncpg.connect(sized.address, server_settings=SERVER_SETTINGS)
    plans = {}
    try:
        for name, sql in load("postgres").items():
            if name in HOT or name.startswith("list_"):
                await connection.execute(f"PREPARE {name} AS {sql}")
                types = await connection.fetchval(
                    "SELECT parameter_types::text[] FROM pg_prepared_statements WHERE name = $1", name
                )
                days = iter(("'-infinity'", "'infinity'"))
                nothing = ", ".join(next(days) if kind == "date" else "NULL" for kind in types)
                explained = await connection.fetch(f"EXPLAIN (COSTS off) EXECUTE {name}({nothing})")
                plans[name] = _steps([row[0] for row in explained])
    finally:
        await connection.close()
    return plans


def _steps(lines: Sequence[str]) -> list[str]:
    """The steps of a plan without conditions; partitions with equal steps are merged."""
    steps: list[str] = []
    for line in lines:
        depth, arrow, step = line.partition("->  ")
        if arrow or not steps:
            steps.append(f"{len(depth) // 2} {_DAY.sub('', step or line).rstrip()}")
    return list(dict.fromkeys(steps))


_DAY = re.compile(r"_\d{8}| history_\d+$")


def _sqlite_plans(sized: Sized) -> dict[str, Any]:
    plans = {}
    with closing(Database(Path(sized.address.removeprefix("sqlite:///"))).writer()) as db:
        for name, sql in load("sqlite").items():
            if sql.lstrip().split(None, 1)[0].upper() in ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH"):
                steps = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {sql}", _nothing(sql))]
                plans[name] = [step for step in steps if not step.startswith("BLOOM FILTER")]  # an aid, no other way
    return plans


def _nothing(sql: str) -> Any:
    """NULL for every parameter, named or not."""

    class Nothing(dict[str, None]):
        def __missing__(self, key: str) -> None:
            return None

    return [None] * sql.count("?") if "?" in sql else Nothing()


@dataclass(frozen=True, slots=True)
class Touched:
    """The pages of tables and indexes that one call reads."""

    pages: float
    searches: float  # of an index, from its root to a leaf

    def at_most_in_a_larger_store(self) -> "Touched":
        """The bound for a larger store: the same searches in higher indexes."""
        pages = max(HIGHER * self.pages, self.pages + LEVELS * self.searches)
        return Touched(pages + SOME, self.searches + SOME)


HIGHER = 2
LEVELS = 2  # the indexes of a day are one page high in the small store and up to three in the large one
SOME = 10


async def check_pages(small: Sized, large: Sized, *, turns: int) -> str:
    """Check that each verb reads the same pages in both, except for the height of indexes (PostgreSQL)."""
    few, many = [await _pages_read(each, turns) for each in (small, large)]
    words = "; ".join(f"{name} {few[name].pages:.0f} → {many[name].pages:.0f}" for name in few)
    for name, found in many.items():
        most = few[name].at_most_in_a_larger_store()
        assert found.searches <= most.searches, f"{name} searches more with more in the store: {few[name]} → {found}"
        assert found.pages <= most.pages, f"{name} reads more pages with more in the store: {words}"
    return words


async def _pages_read(sized: Sized, turns: int) -> dict[str, Touched]:
    """The pages that one call of each verb reads."""
    connection = await asyncpg.connect(sized.address)
    counts: dict[str, Touched] = {}
    seen = await _touched(connection)

    async def count(name: str, calls: int) -> None:
        nonlocal seen
        await sized.reopen()
        now = await _touched(connection)
        counts[name] = Touched((now.pages - seen.pages) / calls, (now.searches - seen.searches) / calls)
        seen = now

    try:
        await sized.reopen()
        seen = await _touched(connection)
        for _ in range(turns):
            now = datetime.now(UTC)
            await acts.create(sized.store, [one_shot(TASKS[n % 3], QUEUES[n % 3], now) for n in range(BATCH)])
        await count("create", turns)
        claimed = [await sized.store.claim(claim_request(sized)) for _ in range(turns)]
        await count("claim", turns)
        for claims in claimed:
            await sized.store.settle([_ended(run, State.SUCCEEDED) for run in claims.runs])
        await count("settle", turns)
        for name, page in lists().items():
            for _ in range(turns):
                await page(sized)
            await count(name, turns)
    finally:
        await connection.close()
    return counts


async def _touched(connection: Any) -> Touched:
    row = await connection.fetchrow(
        "SELECT coalesce(sum(heap_blks_read + heap_blks_hit + coalesce(idx_blks_read + idx_blks_hit, 0)), 0)::float8,"
        " coalesce(sum(idx_scan), 0)::float8"
        " FROM pg_statio_user_tables JOIN pg_stat_user_tables USING (relid, schemaname)"
        " WHERE schemaname = current_schema()"
    )
    return Touched(*row)
