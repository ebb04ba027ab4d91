"""The plans of PostgreSQL's statements: hot ones follow their index, and read no more of a large table than of a small.

Plans are those that the store itself gets: of prepared statements, on connections with its settings.
"""

import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio

from horae.core.decisions.results import start, succeed
from horae.core.lifecycle import FINAL, WAITING
from horae.core.model import Run, State
from horae.core.values import replace
from horae.stores.common.statements import load
from horae.stores.postgres import codecs as rows
from horae.stores.postgres.connection.database import Address
from horae.stores.postgres.store import PostgresStore
from tests.conformance.builders import new_id, one_shot
from tests.postgres_server import postgres_url, scratch_schema

EMPTY, SMALL, LARGE = 0, 1_000, 40_000
# tables that no plan may read as a whole
MANY = ("runs", "history", "jobs", "gates", "attempts", "skips", "blobs", "blocks", "records", "events")
GROWING = ("lanes", "shelves")  # tables that have few rows in most stores
FEW = ("runs_stopped", "runs_started")  # indexes of what is few at any time
SCANS = ("Index Scan", "Index Only Scan", "Seq Scan")
NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
LATEST = datetime(9999, 12, 31, tzinfo=UTC)
NODE = new_id()
LOWEST, HIGHEST = "0" * 32, "f" * 32
DAYS = (date.min, date.max, True)
PAGE, LOOK = 51, 300

# $1 rows of each kind. Waiting ones have begun once, and are due later than anything that a test asks for; the ended
# ones are of ten days.
FILL = """
INSERT INTO lanes (queue, priority) SELECT queue, priority FROM unnest(ARRAY['default', 'mail']) AS queue, unnest(ARRAY[0, 5]) AS priority;
INSERT INTO lanes (queue, priority, owner, next_at) SELECT 'idle ' || n, 0, 'bob', 'infinity' FROM generate_series(1, {size}) AS n;
INSERT INTO shelves (owner, task, queue) SELECT 'ada', task, queue FROM unnest(ARRAY['a', 'b']) AS task, unnest(ARRAY['default', 'mail']) AS queue;
SELECT ensure_history_day('2026-03-01'::date + n) FROM generate_series(0, 9) AS n;
CREATE TEMPORARY TABLE made AS
SELECT n, (lpad(to_hex(1772000000000 + n), 12, '0') || '7' || substr(md5(n::text), 1, 3) || '8' || substr(md5(n::text), 4, 15))::uuid AS id,
       CASE WHEN n % 2 = 0 THEN 'a' ELSE 'b' END AS task, CASE WHEN n % 3 = 0 THEN 'mail' ELSE 'default' END AS queue,
       CASE WHEN n % 5 = 0 THEN 5 ELSE 0 END AS priority
  FROM generate_series(1, {size}) AS n;
INSERT INTO runs (id, job_id, owner, created_by, task, params, queue, priority, policy, schedule, trigger, due_at, wake_at, paused, revision,
                  created_at, first_started_at, lane, shelf)
SELECT made.id, made.id, 'ada', 'ada', task, '{{}}', queue, priority, '{{}}', '{{"type":"now"}}', 'schedule',
       '2026-06-01'::timestamptz + n * interval '1 s', '2026-06-01'::timestamptz + n * interval '1 s', false, 1, '2026-03-01', '2026-03-01',
       lanes.id, shelves.id
  FROM made JOIN lanes USING (queue, priority) JOIN shelves USING (task, queue);
INSERT INTO history (id, job_id, owner, created_by, task, params, queue, priority, policy, schedule, trigger, due_at, wake_at, state, paused, fence,
                     attempt, crashes, revision, created_at, finished_at, shelf, ended_on)
SELECT gen_random_uuid(), job, 'ada', 'ada', task, '{{}}', queue, priority, '{{}}', CASE WHEN n % 4 <> 0 THEN '{{"type":"now"}}' END, 'schedule',
       at, at, CASE WHEN n % 11 = 0 THEN 'failed' ELSE 'succeeded' END, false, 1, 1, 0, 1, at, at, shelves.id, at::date
  FROM (SELECT *, gen_random_uuid() AS job, '2026-03-01'::timestamptz + (n % 10) * interval '1 day' + (n / 10) * interval '100 ms' AS at
          FROM made) AS made JOIN shelves USING (task, queue);
INSERT INTO jobs (id, owner, created_by, task, params, queue, priority, policy, schedule, status, plan_at, revision, created_at, updated_at, shard)
SELECT id, 'ada', 'ada', task, '{{}}', queue, priority, '{{}}', '{{"type":"cron"}}', 'scheduled', '2026-06-01'::timestamptz + n * interval '1 s', 1,
       '2026-03-01', '2026-03-01', n % 64
  FROM made;
INSERT INTO records (kind, owner, key, value, at) SELECT 'idempotency', 'ada', n::text, '[]', '2026-03-10'::timestamptz + n * interval '1 ms' FROM made;
INSERT INTO events (kind, owner, at, subjects)
SELECT 'run.succeeded', CASE WHEN n % 10 = 0 THEN 'bob' ELSE 'ada' END, '2026-03-10'::timestamptz + n * interval '1 ms', ARRAY[id] FROM made;
INSERT INTO blocks (gate, due_at, run_id, job_id, ended_on) SELECT 'gate ' || n % 100, '2026-03-10'::timestamptz + n * interval '1 s', id, id, '2026-03-10' FROM made;
DROP TABLE made;
"""  # noqa: E501 - a table of columns is easier to compare in long lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a statement did."""

    indexes: frozenset[str]
    walked: frozenset[str]  # indexes of tables with many rows that were read from end to end, and not up to a limit
    read_as_a_whole: frozenset[str]
    buffers: int


class Filled:
    """A schema with many rows, and connections like those of the store."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._prepared: set[str] = set()

    async def vacuum(self) -> None:
        """Let the server see how much there is."""
        await self._connection.execute(f"VACUUM ANALYZE {await tables(self._connection)}")

    async def plan(self, name: str, *arguments: Any) -> Plan:
        """Run a statement, undo it, and tell how it was done; the second time, when all it needs is in memory."""
        if name not in self._prepared:
            await self._connection.execute(f"PREPARE {name} AS {load('postgres')[name]}")
            self._prepared.add(name)
        given = f"({', '.join(map(literal, arguments))})" if arguments else ""
        for _ in range(2):
            transaction = self._connection.transaction()
            await transaction.start()
            answer = await self._connection.fetchval(
                f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) EXECUTE {name}{given}"
            )
            await transaction.rollback()
        [found] = json.loads(answer)
        return _plan_of(found["Plan"])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sizes() -> AsyncIterator[list[Filled]]:
    """The same schema with no rows, with few and with many."""
    async with AsyncExitStack() as stack:
        yield [await filled(stack, size) for size in (EMPTY, SMALL, LARGE)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def emptied() -> AsyncIterator[Filled]:
    """A schema of which the server knows for sure that there is nothing in it, as when all that ran has ended."""
    async with AsyncExitStack() as stack:
        schema = await filled(stack, EMPTY)
        await schema.vacuum()
        yield schema


async def filled(stack: AsyncExitStack, size: int) -> Filled:
    url = await stack.enter_async_context(scratch_schema(postgres_url()))
    await PostgresStore(url).migrate()
    connection = await Address(url).connect()
    stack.push_async_callback(connection.close)
    await connection.execute(FILL.format(size=size), timeout=60)
    if size:
        await connection.execute(f"ANALYZE {await tables(connection)}", timeout=60)
    await connection.execute("INSERT INTO nodes VALUES ($1, 'n', '{worker}', '1', '{}', 1, $2, $2, 0, '{}')", NODE, NOW)
    return Filled(connection)


async def tables(connection: Any) -> str:
    """The tables of this schema alone: other tests lock theirs."""
    found = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
    return ", ".join(name for (name,) in found)


FIRST = datetime(1, 1, 1, tzinfo=UTC)


def of_runs(states: Sequence[State], **which: Any) -> tuple[Any, ...]:
    """The parameters of a list of runs."""
    return (
        *("ada", which.get("task"), which.get("queue"), PAGE, which.get("job"), sorted(states), None),
        *(FIRST, which.get("before", LATEST), HIGHEST, which.get("look", LOOK)),
        *(which.get("error"), None, None, None, None, None, which.get("text")),
    )


def of_jobs(**which: Any) -> tuple[Any, ...]:
    """The parameters that all lists of jobs begin with."""
    return ("ada", which.get("task"), None, PAGE, None, which.get("key"), None, None, which.get("text"), HIGHEST, LOOK)


def due_now() -> list[Run]:
    return [one_shot(NOW, owner="ada", task="a") for _ in range(10)]


# Of a day, whose indexes PostgreSQL names itself: the second of these columns is of the dead letters.
LETTERS_OF_SHELF, LETTERS_OF_JOB = "shelf_due_at_id_idx1", "job_id_due_at_id_idx1"

PLACES: rows.Places = {("ada", "a", "default", 0): (1, 1)}

CASES: dict[str, tuple[Callable[[], tuple[Any, ...]], set[str]]] = {
    "create_runs": (lambda: (Rows("new_runs", rows.new_runs(due_now(), PLACES)), True, [1], [NOW]), {"runs_pkey"}),
    "claim": (
        lambda: (
            *(NODE, [1], ["a"], NOW, LATEST, rows.BEGINNING, 20, [], [], ["g"], [rows.BEGINNING]),
            *([20], [], [], 200, 1000),
        ),
        {"runs_claim", "runs_pkey", "runs_counted", "gates_pkey", "lanes_next"},
    ),
    "claim_among": (
        lambda: (NODE, [new_id(), new_id()], ["a"], NOW, LATEST, [], 20, [], ["default"], ["g"], []),
        {"runs_pkey", "runs_counted", "gates_pkey"},
    ),
    "contested_among": (lambda: ([new_id()], ["default"], ["a"], NOW), {"runs_pkey"}),
    "waiting": (lambda: (NOW, LATEST, 100), {"runs_claim", "lanes_next"}),
    "waiting_at": (lambda: (datetime(2026, 6, 1, 0, 0, 9, tzinfo=UTC), LATEST, 100, LOWEST), {"runs_claim"}),
    "next_in_gates": (lambda: (["gate 1"], rows.BEGINNING, LATEST), {"runs_gate"}),
    "due_lanes_of_each_owner": (lambda: (NOW, [], 1, 10, 10), {"lanes_owner"}),
    "look_later": (lambda: ([1, 2], NOW, 1), {"lanes_pkey"}),
    "offers": (
        lambda: (
            *(NODE, [1, 2], ["a"], NOW, LATEST, rows.BEGINNING, 20, [], [], ["g"]),
            [rows.BEGINNING, rows.BEGINNING],
        ),
        {"runs_claim", "runs_counted", "gates_pkey"},
    ),
    "guarded_jobs": (lambda: ([new_id()],), {"jobs_pkey"}),
    "guarded_runs": (lambda: ([new_id()],), {"runs_pkey"}),
    "guarded_letters": (lambda: ([new_id()], NOW.date()), {"history_20260310_pkey"}),
    "delete_runs": (lambda: ([new_id()],), {"runs_pkey"}),
    "set_stops": (lambda: ([new_id()], ["cancelled"]), {"runs_pkey"}),
    "start_runs": (lambda: ([new_id()], [1], [1], [None], [NOW], [NOW]), {"runs_pkey"}),
    "end_runs": (lambda: (True, Rows("run_ends", rows.run_ends([ENDED])), 1, True), {"runs_pkey"}),
    "return_runs": (
        lambda: ([new_id()], [1], ["scheduled"], [NOW], [0], [0], [None], [None], [None], [None]),
        {"runs_pkey"},
    ),
    "settled_before": (lambda: ([new_id()], [1], ["failed"]), {"runs_pkey", "history_20260310_pkey"}),
    "contested_beyond_limits": (
        lambda: ([1, 2], [rows.BEGINNING, rows.BEGINNING], ["a"], NOW, 100),
        {"runs_claim", "runs_pkey"},
    ),
    "rivals": (
        lambda: (NODE, [new_id()], [new_id()], ["g"], [NOW]),
        {"runs_gate", "runs_job", "blocks_pkey"},
    ),
    "park_runs": (lambda: ([new_id()],), {"runs_pkey"}),
    "wake_parked": (lambda: (["g"], [NOW]), set()),
    "wake_unblocked": (lambda: (NOW, "", 1000), {"runs_parked", "runs_gate", "blocks_pkey"}),
    "ahead_of": (
        lambda: (new_id(), "gate 1", NOW, 10),
        {"runs_gate", "blocks_pkey", "history_20260310_pkey"},
    ),
    "stops": (lambda: (NODE,), {"runs_stopped"}),
    "held": (lambda: ([new_id()], [1], [NODE]), {"runs_pkey"}),
    "orphans": (lambda: ([NODE], 1, NOW - timedelta(days=1), NOW, 1000), {"runs_claim"}),
    "lanes_up_to": (lambda: (NOW,), {"runs_claim"}),
    "recheck_lanes": (lambda: (0, 10), {"lanes_pkey", "runs_claim"}),
    "settle_lanes": (lambda: (NOW,), set()),
    "put_off_lanes": (lambda: (NOW,), {"lanes_next", "runs_claim"}),
    "free_gates_of_dead_nodes": (tuple, {"gates_node", "runs_gate"}),
    "count_held": (lambda: (1, NOW - timedelta(days=1), NOW, 1000), {"runs_claim", "runs_pkey"}),
    "plannable_jobs": (lambda: (range(64), LATEST, 10, 50), {"jobs_plan", "runs_job"}),
    "next_plan_at": (lambda: (range(64), NOW), {"jobs_plan", "backfills_plan"}),
    "plannable_backfills": (lambda: (range(64), LATEST, 10, 50), {"backfills_plan", "jobs_pkey"}),
    "move_jobs": (lambda: ([new_id()], [NOW], [NOW], ["scheduled"]), {"jobs_pkey"}),
    "delete_skips": (lambda: ([new_id()], [NOW]), {"skips_job"}),
    "live_runs_among": (lambda: ([new_id()],), {"runs_pkey"}),
    "last_runs": (
        lambda: ([new_id()], NOW, NOW.date()),
        {"runs_pkey", "runs_job", "history_20260310_pkey", "job_id_due_at"},
    ),
    "queue_depths": (lambda: (NOW, 10_000, None, "", 1000), {"runs_claim", "runs_started"}),
    "queue_depths_of_owner": (lambda: (NOW, 10_000, None, "", 1000, "ada"), {"runs_shelf", "runs_started"}),
    "queue_lateness": (lambda: (NOW, "ada", 1000, "", None), {"shelf_due_at_id"}),
    "due_soon": (lambda: (NOW, NOW + timedelta(minutes=5), 10_000, [*range(64)]), {"runs_claim", "jobs_plan"}),
    "kept_jobs": (lambda: ("ada", PAGE, 0, LOWEST), {"jobs_owner"}),
    "kept_live": (lambda: ("ada", PAGE, 0, 1, datetime(2026, 6, 1, tzinfo=UTC), LOWEST), {"runs_shelf"}),
    "kept_ended": (lambda: ("ada", PAGE, 0, 1, NOW - timedelta(days=5), LOWEST), {"shelf_due_at_id"}),
    "ids": (lambda: (LOWEST, HIGHEST, 20), {"jobs_pkey", "runs_pkey", "history_20260310_pkey"}),
    "attempts": (lambda: ([new_id()],), {"attempts_20260310_pkey"}),
    "ended_runs_among": (lambda: ([new_id()], NOW.date()), {"history_20260310_pkey"}),
    "records": (lambda: ("idempotency", "ada", "7"), {"records_pkey"}),
    "records_among": (lambda: (["key"], ["ada"], ["7"]), {"records_pkey"}),
    "delete_records": (lambda: (["key"], ["ada"], ["7"], [NODE]), {"records_pkey"}),
    "reserve_records": (
        lambda: (["idempotency"] * 2, ["ada", "ada"], ["7", "new"], ["[]", "[]"], [NOW, NOW], timedelta(days=1)),
        set(),
    ),
    "expire_idempotency": (lambda: (NOW, 100), {"records_idempotency"}),
    "events_of_all": (lambda: (500, 10_000_000, 50), {"events_pkey"}),
    "events_of_owner": (lambda: (500, 10_000_000, 50, "bob"), {"events_owner"}),
    "expire_events": (lambda: (NOW, 100), {"events_pkey"}),
    "resolve_letters": (lambda: ([new_id()], ["discarded"], NOW.date()), {"history_20260310_pkey"}),
    "delete_blocks": (lambda: (["gate 1"], [NOW], [new_id()]), {"blocks_pkey"}),
    "count_dead_letters": (lambda: (50,), {LETTERS_OF_JOB}),
    "list_dead_letters": (lambda: (*of_runs([State.FAILED]), *DAYS), {LETTERS_OF_SHELF}),
    "list_dead_letters_of_job": (lambda: of_runs([State.FAILED], job=new_id()), {LETTERS_OF_JOB}),
    "group_dead_letters": (lambda: of_runs([State.FAILED], queue="mail", look=PAGE), {LETTERS_OF_SHELF}),
    "group_dead_letters_of_job": (lambda: of_runs([State.FAILED], job=new_id()), {LETTERS_OF_JOB}),
    "ledger_ended": (lambda: (new_id(), NOW, NOW, 10), {"job_id_slot"}),
    "list_live_runs": (lambda: of_runs(list(WAITING)), {"runs_shelf"}),
    "list_retried_runs": (lambda: of_runs([State.RETRYING]), {"runs_retried"}),
    "list_started_runs": (lambda: of_runs([State.RUNNING]), {"runs_started"}),
    "list_stopping_runs": (lambda: of_runs([State.CLAIMED, State.RUNNING]), {"runs_stopped"}),
    "list_ended_runs": (lambda: (*of_runs(list(FINAL)), *DAYS), {"shelf_due_at_id"}),
    "list_unsuccessful_runs": (lambda: (*of_runs([State.FAILED], queue="mail"), *DAYS), {"shelf_state_due_at_id"}),
    "list_live_runs_of_job": (lambda: of_runs(list(WAITING), job=new_id()), {"runs_pkey", "runs_job"}),
    "list_ended_runs_of_job": (lambda: of_runs(list(FINAL), job=new_id()), {"history_20260310_pkey", "job_id_due_at"}),
    "list_jobs_of_owner": (lambda: (*of_jobs(), None, None, NOW), {"jobs_owner"}),
    "list_live_one_shots": (lambda: (*of_jobs(task="a"), None, None, NOW), {"runs_one_shot"}),
    "list_paused_one_shots": (lambda: (*of_jobs(), "paused", None, NOW), {"runs_paused"}),
    "list_stopping_one_shots": (lambda: (*of_jobs(), "cancelled", None, NOW), {"runs_stopped"}),
    "list_live_one_shots_of_key": (lambda: (*of_jobs(key="k"), None, None, NOW), {"runs_key"}),
    "list_ended_one_shots": (lambda: (*of_jobs(), sorted(FINAL), LATEST, LOWEST, *DAYS), {"shelf_id"}),
    "list_unsuccessful_one_shots": (lambda: (*of_jobs(), ["failed"], LATEST, LOWEST, *DAYS), {"shelf_state_id"}),
    "list_ended_one_shots_of_key": (lambda: (*of_jobs(key="k"), sorted(FINAL), LATEST), {"key_id"}),
    "prune_blobs": (lambda: (NOW, 100), {"blobs_created"}),
    "prune_jobs": (lambda: (NOW, 100), {"jobs_cancelled"}),
    "remove_shelves": (lambda: (0, 100), {"shelves_pkey"}),
}
# Lists that find nothing, and their edges.
SEARCHES: dict[str, tuple[Callable[[], tuple[Any, ...]], set[str]]] = {
    "live_runs": (lambda: of_runs(list(WAITING), text="nowhere"), {"runs_shelf"}),
    "retried_runs": (lambda: of_runs([State.RETRYING], text="nowhere"), {"runs_retried"}),
    "started_runs": (lambda: of_runs([State.RUNNING], text="nowhere"), {"runs_started"}),
    "ended_runs": (lambda: (*of_runs(list(FINAL), text="nowhere"), *DAYS), {"shelf_due_at_id"}),
    "unsuccessful_runs": (lambda: (*of_runs([State.FAILED], text="nowhere"), *DAYS), {"shelf_state_due_at_id"}),
    "dead_letters": (lambda: (*of_runs([State.FAILED], error="{"), *DAYS), {LETTERS_OF_SHELF}),
    "live_runs_of_job": (lambda: of_runs(list(WAITING), job=new_id()), {"runs_job"}),
    "ended_runs_of_job": (lambda: of_runs(list(FINAL), job=new_id()), {"job_id_due_at"}),
    "dead_letters_of_job": (lambda: of_runs([State.FAILED], job=new_id()), {LETTERS_OF_JOB}),
    "jobs_of_owner": (lambda: (*of_jobs(text="nowhere"), None, None, NOW), {"jobs_owner"}),
    "live_one_shots": (lambda: (*of_jobs(text="nowhere"), None, None, NOW), {"runs_one_shot"}),
    "paused_one_shots": (lambda: (*of_jobs(text="nowhere"), "paused", None, NOW), {"runs_paused"}),
    "live_one_shots_of_key": (lambda: (*of_jobs(key="k"), None, None, NOW), {"runs_key"}),
    "ended_one_shots": (lambda: (*of_jobs(text="nowhere"), sorted(FINAL), LATEST, LOWEST, *DAYS), {"shelf_id"}),
    "unsuccessful_one_shots": (
        lambda: (*of_jobs(text="nowhere"), ["failed"], LATEST, LOWEST, *DAYS),
        {"shelf_state_id"},
    ),
    "ended_one_shots_of_key": (lambda: (*of_jobs(key="k"), sorted(FINAL), LATEST), {"key_id"}),
}
ENDED = succeed(start(replace(one_shot(NOW), state=State.CLAIMED, fence=1), NOW), None, NOW)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", CASES)
async def test_a_hot_statement_follows_its_index_however_much_there_is(sizes: list[Filled], name: str) -> None:
    arguments, expected = CASES[name]
    plans = [await schema.plan(name, *arguments()) for schema in sizes]

    empty, small, large = plans
    for plan in plans:
        assert not plan.read_as_a_whole
        missing = {index for index in expected if not any(index in used for used in plan.indexes)}
        if plan is empty:  # to PostgreSQL 18 all indexes of an empty day are alike; plans live a minute at most
            missing -= {"history_20260310_pkey"}
        assert not missing, f"only {sorted(plan.indexes)} were used"
    # An index of many rows is a level or two deeper, and what is next to each other in it lies on more pages.
    assert large.buffers <= 2 * small.buffers + 100, f"{small.buffers} buffers became {large.buffers}"


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("kind", ["list", "edge_of"])
async def test_a_search_reads_no_more_of_a_large_table_than_of_a_small(
    sizes: list[Filled], kind: str, name: str
) -> None:
    given, expected = SEARCHES[name]
    floor = () if kind == "list" else (LOWEST if "one_shots" in name or name.startswith("jobs") else FIRST,)
    plans = [await schema.plan(f"{kind}_{name}", *given(), *floor) for schema in sizes]
    _, small, large = plans
    for plan in plans:
        assert not plan.read_as_a_whole
    for plan in (small, large):
        assert not {index for index in expected if not any(index in used for used in plan.indexes)}, plan.indexes
    assert large.buffers <= 2 * small.buffers + 400, f"{small.buffers} buffers became {large.buffers}"
    assert large.buffers <= 6_000


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", CASES)
async def test_no_table_is_read_as_a_whole_by_plans_from_when_there_was_nothing(emptied: Filled, name: str) -> None:
    plan = await emptied.plan(name, *CASES[name][0]())
    assert not plan.walked


@pytest.mark.asyncio(loop_scope="module")
async def test_a_claim_finds_gates_by_name_however_many_its_node_holds(sizes: list[Filled], emptied: Filled) -> None:
    for schema in (emptied, *sizes):
        plan = await schema.plan("claim", *CASES["claim"][0]())
        assert "gates_pkey" in plan.indexes
        assert "gates_node" not in plan.indexes


class Rows(list[tuple[Any, ...]]):
    """Parameters of a composite type."""

    def __init__(self, kind: str, items: Sequence[tuple[Any, ...]]) -> None:
        super().__init__(items)
        self.kind = kind


def literal(value: Any) -> str:
    """A value as it is written in SQL."""
    match value:
        case None:
            return "NULL"
        case Rows():
            items = (f"ROW({', '.join(map(literal, row))})" for row in value)
            return f"ARRAY[{', '.join(items)}]::{value.kind}[]"
        case bool() | int() | float():
            return str(value)
        case timedelta():
            return f"'{value.total_seconds()} s'"
        case list() | tuple() | range():
            return "'{" + ",".join("NULL" if item is None else f'"{_quoted(item)}"' for item in value) + "}'"
        case _:
            return "'" + str(value).replace("'", "''") + "'"


def _quoted(item: Any) -> str:
    """An item of an array as it is written between quotes."""
    return str(item).replace('"', '\\"').replace("'", "''")


def _plan_of(root: dict[str, Any]) -> Plan:
    nodes = list(_nodes(root))
    whole = (node["Relation Name"] for node in nodes if node["Node Type"] == "Seq Scan")
    return Plan(
        indexes=frozenset(node["Index Name"] for node in nodes if "Index Name" in node),
        walked=frozenset(_walked(root)),
        read_as_a_whole=frozenset(table for table in whole if table.startswith(MANY)),
        buffers=root["Shared Hit Blocks"] + root["Shared Read Blocks"],
    )


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from _nodes(child)


def _walked(node: dict[str, Any], *, limited: bool = False) -> Iterator[str]:
    """The scans without a condition, but for those of which a limit takes the first rows."""
    kind = node["Node Type"]
    whole = kind in SCANS and "Index Cond" not in node and not limited
    if whole and node["Relation Name"].startswith((*MANY, *GROWING)) and node.get("Index Name") not in FEW:
        yield node.get("Index Name", node["Relation Name"])
    passes_on = kind == "Limit" or (limited and kind in ("LockRows", "Subquery Scan", "Append", "Merge Append"))
    for child in node.get("Plans", ()):
        yield from _walked(child, limited=passes_on and child["Parent Relationship"] not in ("InitPlan", "SubPlan"))
