"""What pages of searches and long lines cost in SQLite, in steps of its machine: no more among many rows than few."""

import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import pytest

from horae.core.decisions.results import start, succeed
from horae.core.model import JobStatus, OnFailure, Policy, State, Trigger
from horae.ports.reader import JobFilter, RunFilter
from horae.stores.sqlite import list_queries, queues
from horae.stores.sqlite.database import Database
from horae.stores.sqlite.executor import InlineExecutor
from horae.stores.sqlite.store import SqliteStore
from tests import acts
from tests.conformance.builders import (
    MINUTE,
    NOW,
    SECOND,
    claimed,
    claims_of,
    failed,
    given_job,
    given_node,
    given_running,
    one_shot,
    recurring,
)

FEW, MANY = 2_000, 20_000  # runs; both are more than a page looks at
LIMIT, LOOK = 50, 500
UNIT = 100  # steps

SEARCHES = [
    RunFilter(owner="ada", text="nowhere"),
    RunFilter(owner="ada", trigger=Trigger.REQUEUE),
    RunFilter(owner="ada", label=("no", "where")),
    RunFilter(owner="ada", queue="default", text="nowhere"),
    RunFilter(owner="ada", states=frozenset({State.SUCCEEDED}), error_type="None"),
    RunFilter(owner="ada", states=frozenset({State.SCHEDULED}), text="nowhere"),
    RunFilter(text="nowhere"),
    RunFilter(owner="bob"),
    JobFilter(owner="ada", text="nowhere"),
    JobFilter(owner="ada", name="nowhere", status=JobStatus.FINISHED),
    JobFilter(owner="ada", last_run_states=frozenset({State.FAILED}), now=NOW),
    JobFilter(text="nowhere"),
]


async def filled(path: Path, runs: int) -> Path:
    """A store with so many runs of one owner, half of which have ended."""
    store = SqliteStore(path, executor=InlineExecutor(durable=False))
    await store.open()
    await store.create([one_shot(NOW) for _ in range(runs // 2)])
    node = await given_node(store)
    while held := await claimed(store, node, limit=5_000):
        await store.settle([succeed(start(run, NOW), None, NOW) for run in held])
    await store.create([one_shot(NOW + place * SECOND) for place in range(runs // 2)])
    for _ in range(20):
        await given_job(store, recurring())
    await store.close()
    return path


def steps(path: Path, read: Callable[[sqlite3.Connection], object]) -> int:
    """How many steps a read takes, in units."""
    taken = 0

    def count() -> None:
        nonlocal taken
        taken += 1

    with closing(Database(path).reader()) as db:
        db.set_progress_handler(count, UNIT)
        read(db)
    return taken


def search(which: RunFilter | JobFilter, look: int | None = LOOK) -> Callable[[sqlite3.Connection], object]:
    def read(db: sqlite3.Connection) -> object:
        if isinstance(which, RunFilter):
            return list_queries.list_runs(db, which, None, LIMIT, look)
        return list_queries.list_jobs(db, which, None, LIMIT, look)

    return read


def lateness(db: sqlite3.Connection) -> object:
    """Of none: nothing that was due lately has ended, and much is still to come."""
    return queues.lateness(db, NOW, "ada", "", None)


async def test_a_page_of_a_search_takes_no_more_steps_among_many(tmp_path: Path) -> None:
    few, many = await filled(tmp_path / "few.db", FEW), await filled(tmp_path / "many.db", MANY)
    for which in SEARCHES:
        assert steps(many, search(which)) <= 1.2 * steps(few, search(which)) + 20, which
    assert steps(many, lateness) <= steps(few, lateness) + 20
    unbounded = search(SEARCHES[0], None)
    assert steps(many, unbounded) > 5 * steps(few, unbounded), "the bound is what makes the difference"


async def test_a_late_page_of_what_is_due_at_one_instant_takes_no_more_steps_than_the_first(tmp_path: Path) -> None:
    path = await filled(tmp_path / "horae.db", MANY)
    which = RunFilter(owner="ada", end_at=NOW + SECOND / 2)
    with closing(Database(path).reader()) as db:
        page = list_queries.list_runs(db, which, None, MANY // 4, None)
    first = steps(path, lambda db: list_queries.list_runs(db, which, None, LIMIT, LOOK))
    late = steps(path, lambda db: list_queries.list_runs(db, which, page.cursor, LIMIT, LOOK))
    assert page.cursor is not None
    assert late <= first + 20


@pytest.mark.parametrize("names", [100, 2_000])
async def test_a_page_of_queues_takes_steps_for_what_it_shows(tmp_path: Path, names: int) -> None:
    store = SqliteStore(tmp_path / "horae.db", executor=InlineExecutor(durable=False))
    await store.open()
    await store.create([one_shot(NOW, queue=f"q{place:05}") for place in range(names)])
    await store.close()
    taken = steps(tmp_path / "horae.db", lambda db: queues.queues(db, NOW, "ada", None, "", 20))
    assert taken <= 400


# --- gates


async def steps_beside_line(path: Path, length: int) -> dict[str, int]:
    """What verbs take beside a dead letter that blocks its gate, and so many runs behind it, of which few are due."""
    executor = InlineExecutor(durable=False)
    store = SqliteStore(path, executor=executor)
    await store.open()
    blocking = Policy(on_failure=OnFailure.BLOCK)
    [letter] = await given_running(store, one_shot(NOW - MINUTE, gate="g", policy=blocking))
    await store.settle([failed(letter)])
    due = [one_shot(NOW, gate="g") for _ in range(10)]
    await store.create([*due, *(one_shot(NOW + MINUTE, gate="g") for _ in range(length))])
    node, taken = await given_node(store), dict[str, int]()

    async def count(name: str, verb: Awaitable[object]) -> None:
        def step() -> None:
            taken[name] += 1

        taken[name] = 0
        db = executor._connection()
        db.set_progress_handler(step, UNIT)
        await verb
        db.set_progress_handler(None, 0)

    await count("claim", claims_of(store, node))
    await count("ahead_of", store.ahead_of(due[0]))
    await acts.park(store, due)
    await count("tidy", store.tidy(now=NOW))
    await store.close()
    return taken


async def test_a_long_line_behind_a_dead_letter_takes_no_more_steps_than_a_short_one(tmp_path: Path) -> None:
    """Claims and `tidy` hold the lock that everybody waits for."""
    short, long = [await steps_beside_line(tmp_path / f"{length}.db", length) for length in (200, 4_000)]
    for name, steps_of_short in short.items():
        assert long[name] <= 1.2 * steps_of_short + 20, name
