"""The plans of SQLite's statements: whatever the engine asks often goes through an index, however much there is."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from horae.stores.sqlite.database import STATEMENTS, Database
from horae.stores.sqlite.migrations.apply import migrate


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlite3.Connection]:
    database = Database(tmp_path_factory.mktemp("plans") / "horae.db")
    database.use(migrate)
    with closing(database.writer()) as connection:
        yield connection


class Anything(dict[str, object]):
    """Parameters by any name."""

    def __missing__(self, name: str) -> int:
        return 1


def plan_of(db: sqlite3.Connection, name: str) -> list[str]:
    """What SQLite would do for a statement, step by step."""
    statement = STATEMENTS[name]
    parameters: object = [1] * statement.count("?") if "?" in statement else Anything()
    return [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)]  # type: ignore[arg-type]


INDEXES = {
    "plannable_jobs": {"jobs_plan"},
    "plannable_backfills": {"backfills_plan"},
    "next_plan_at": {"jobs_plan", "backfills_plan"},
    "count_live": {"runs_live_of_job"},
    "guarded_jobs": {"jobs_id"},
    "guarded_runs": {"runs_id"},
    "cancelled_jobs": {"jobs_id", "runs_id"},
    "guarded_letters": {"letters_id"},
    "move_jobs": {"jobs_id"},
    "delete_runs": {"runs_id"},
    "delete_skips": {"skips_job"},
    "revise_one_shot": {"runs_id"},
    "set_stops": {"runs_id"},
    "offer_of_lane": {"runs_claim"},
    "first_in_lane": {"runs_claim"},
    "lane": {"runs_claim"},
    "among": {"runs_id"},
    "waiting_in_lane": {"runs_claim"},
    "lanes_by": {"lanes_next"},
    "next_in_gate": {"runs_gate"},
    "next_in_lane": {"runs_claim"},
    "gate_state": {"runs_gate", "letters_gate"},
    "rivals": {"runs_gate", "runs_live_of_job", "letters_gate"},
    "park_runs": {"runs_id"},
    "wake_parked": {"runs_parked"},
    "unblocked_gates": {"runs_gate", "runs_parked", "letters_gate"},
    "ahead_of": {"runs_gate", "letters_gate"},
    "runs_by_fence": {"runs_id"},
    "settled_before": {"runs_id"},
    "stops": {"runs_stop"},
    "orphans": {"runs_held"},
    "held_by": {"runs_held"},
    "run": {"runs_id"},
    "job": {"jobs_id"},
    "ids": {"jobs_id", "runs_id"},
    "last_run": {"runs_id", "runs_job"},
    "list_run_of_one_shot": {"runs_id"},
    "list_runs_of_job": {"runs_job"},
    "list_live_runs_of_job": {"runs_live_of_job"},
    "list_runs_of_all": {"runs_due"},
    "list_held_runs": {"runs_held"},
    "list_runs_of_owner": {"runs_owner"},
    "list_live_runs_of_owner": {"runs_live"},
    "list_runs_of_task": {"runs_task"},
    "list_runs_of_queue": {"runs_queue"},
    "list_runs_of_state": {"runs_state"},
    "ledger_runs": {"runs_slot"},
    "ledger_skips": {"skips_job"},
    "ledger_backfills": {"backfills_job"},
    "depth_of_lane": {"runs_claim"},
    "list_stopping_runs": {"runs_stop"},
    "list_jobs_of_owner": {"jobs_owner"},
    "list_jobs_of_key": {"jobs_key"},
    "list_jobs_of_all": {"jobs_id"},
    "list_live_one_shots": {"one_shots_live"},
    "list_ended_one_shots": {"one_shots_ended"},
    "list_paused_one_shots": {"one_shots_paused"},
    "list_cancelled_one_shots": {"one_shots_cancelled"},
    "list_one_shots_of_key": {"one_shots_key"},
    "list_one_shots_of_all": {"runs_id"},
    "parked_by_queue": {"runs_parked"},
    "held_by_queue": {"runs_held"},
    "paused_queues": {"runs_paused"},
    "insert_letter": {"runs_id"},
    "delete_letter": {"letters_id"},
    "resolve_run": {"runs_id"},
    "drop_secrets": {"runs_id"},
    "list_dead_letters_of_all": {"letters_due"},
    "list_dead_letters_of_owner": {"letters_owner"},
    "list_dead_letters_of_job": {"letters_job"},
    "group_dead_letters_of_all": {"letters_due"},
    "group_dead_letters_of_owner": {"letters_owner"},
    "group_dead_letters_of_job": {"letters_job"},
    "held_of_queue": {"runs_held"},
    "queues_of_lanes": {"runs_claim"},
    "parked_by_queue_of_owner": {"runs_live"},
    "paused_queues_of_owner": {"one_shots_paused"},
    "latenesses_of_owner": {"runs_state"},
    "latenesses_of_all": {"runs_finished"},
    "due_soon": {"runs_due", "jobs_plan"},
    "kept_jobs": {"jobs_owner"},
    "kept_live": {"runs_live"},
    "kept_ended": {"runs_owner"},
    "expire_idempotency": {"records_idempotency"},
    "events_of_owner": {"events_owner"},
    "prune_runs": {"runs_finished"},
    "prune_skips": {"skips_end"},
    "prune_jobs": {"jobs_cancelled", "runs_job"},
    "prune_trails": {"jobs_cancelled", "runs_job"},
    "prune_blobs": {"blobs_created", "runs_params_blob", "jobs_params_blob"},
}

# Lists of few rows, and statements that walk an index from one distinct value to the next.
MAY_SCAN = {
    "due_lanes": "(subquery",
    "lanes_by": "queues",  # settings, which are few
    "next_in_gate": "queues",
    "unblocked_gates": "waiting",
    "orphans": "holders",
    "rivals": "(subquery",
    "last_run": "(subquery",
    "next_plan_at": "(subquery",
    "count_live": "(subquery",
    "depth_of_lane": "(subquery",
    "ahead_of": "(subquery",
    "held_of_queue": "(subquery",
    "due_soon": "(subquery",
    "kept_jobs": "page",
    "kept_live": "page",
    "kept_ended": "page",
    "paused_queues": "paused_in",
}


@pytest.mark.parametrize("name", INDEXES)
def test_a_hot_statement_goes_through_its_index(db: sqlite3.Connection, name: str) -> None:
    plan = plan_of(db, name)
    used = {word for step in plan for word in step.replace("(", " ").replace(")", " ").split()}
    assert used >= INDEXES[name], plan


@pytest.mark.parametrize("name", INDEXES)
def test_a_hot_statement_scans_no_table(db: sqlite3.Connection, name: str) -> None:
    for step in plan_of(db, name):
        if not step.startswith("SCAN"):
            continue
        table = step.split()[1]
        few = "VIRTUAL TABLE" in step or table.startswith(("(subquery", "(join", MAY_SCAN.get(name, "(")))
        in_order = "USING" in step and "INDEX" in step
        assert few or in_order or step == "SCAN CONSTANT ROW", step


@pytest.mark.parametrize("name", ["kept_live", "kept_ended"])
def test_runs_of_one_time_are_counted_page_by_page_through_the_index(db: sqlite3.Connection, name: str) -> None:
    assert any("due_at=? AND rowid>?" in step for step in plan_of(db, name))


BOUNDED = [name.removeprefix("edge_of_") for name in STATEMENTS if name.startswith("edge_of_")]
ORDERED = [
    *(f"list_{name}" for name in BOUNDED),
    *(f"edge_of_{name}" for name in BOUNDED),
    *("plannable_jobs", "lane", "ledger_runs", "queues_of_lanes"),
    *("events_of_all", "events_of_owner", "latenesses_of_owner", "latenesses_of_all"),
]


@pytest.mark.parametrize("name", ORDERED)
def test_first_pages_come_in_the_order_of_their_index(db: sqlite3.Connection, name: str) -> None:
    assert not [step for step in plan_of(db, name) if "TEMP B-TREE" in step]


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("due_lanes", "lanes_next (next_at<?)"),
        ("next_lane_at", "lanes_next (next_at>?)"),
        ("lane", "runs_claim (queue=? AND priority=? AND owner=? AND wake_at=? AND rowid>?)"),
        ("lane", "runs_claim (queue=? AND priority=? AND owner=? AND wake_at>? AND wake_at<?)"),
        ("events_of_all", "INTEGER PRIMARY KEY (rowid>?)"),
        ("events_of_owner", "events_owner (owner=? AND rowid>?)"),
        ("records", "sqlite_autoindex_records_1 (kind=? AND owner=? AND key>? AND key<?)"),
        ("list_dead_letters_of_all", "letters_due (due_at>? AND due_at<?)"),
        ("list_dead_letters_of_owner", "letters_owner (owner=? AND due_at>? AND due_at<?)"),
        ("list_dead_letters_of_job", "letters_job (job_id=? AND due_at>? AND due_at<?)"),
        ("list_runs_of_owner", "COVERING INDEX runs_owner (owner=? AND due_at=? AND rowid<?)"),
        ("list_runs_of_owner", "COVERING INDEX runs_owner (owner=? AND due_at>? AND due_at<?)"),
        ("list_live_one_shots", "INDEX one_shots_live (owner=? AND id<?)"),
        ("latenesses_of_owner", "runs_state (owner=? AND state=? AND due_at>?)"),
    ],
)
def test_a_page_is_sought_by_its_position(db: sqlite3.Connection, name: str, step: str) -> None:
    assert step in " | ".join(plan_of(db, name))


@pytest.mark.parametrize("name", ["claim_runs", "start_runs", "return_runs"])
def test_a_batch_of_runs_is_changed_row_by_row(db: sqlite3.Connection, name: str) -> None:
    assert "SEARCH runs USING INTEGER PRIMARY KEY (rowid=?)" in plan_of(db, name)


def test_ends_are_written_row_by_row(db: sqlite3.Connection) -> None:
    assert "SEARCH runs USING INDEX runs_id (id=?)" in plan_of(db, "end_runs")


def test_what_nodes_hold_of_a_queue_is_counted_in_the_index(db: sqlite3.Connection) -> None:
    """The rows themselves are not read: an index that is followed to its table says so by a seek or a column of it."""
    program = db.execute(f"EXPLAIN {STATEMENTS['held_of_queue']}", {"queue": "q", "bound": 10}).fetchall()
    opened = {row[2]: row[3] for row in program if row[1] == "OpenRead"}
    [table] = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'runs'").fetchone()
    cursors = {cursor for cursor, page in opened.items() if page == table}
    assert not [row for row in program if row[1] == "Column" and row[2] in cursors], program


def test_queues_with_paused_runs_are_found_by_jumps(db: sqlite3.Connection) -> None:
    assert "runs_paused (queue>?)" in " | ".join(plan_of(db, "paused_queues"))


@pytest.mark.parametrize("name", BOUNDED)
def test_a_list_stops_at_a_full_page(db: sqlite3.Connection, name: str) -> None:
    """What is looked at comes row by row, and is not put together before the first one is filtered."""
    plan = plan_of(db, f"list_{name}")
    assert any(step.startswith("CO-ROUTINE") for step in plan), plan
    assert not [step for step in plan if step.startswith("MATERIALIZE")], plan


def test_every_statement_can_be_prepared(db: sqlite3.Connection) -> None:
    for name in STATEMENTS:
        if name != "create_versions":
            assert plan_of(db, name) is not None
