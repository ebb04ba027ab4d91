"""A correct sample history in a store, and violations that can be planted in its tables."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol
from uuid import UUID

import asyncpg  # type: ignore[import-untyped]

from horae.core.decisions.new_runs import requeued
from horae.core.decisions.results import Failure
from horae.core.decisions.retry import RetryPolicy
from horae.core.drafts import Draft
from horae.core.model import (
    Job,
    JobError,
    JobId,
    Misfire,
    OnFailure,
    Overlap,
    Policy,
    Run,
    RunId,
    State,
)
from horae.core.schedule.timestamps import rfc3339
from horae.lookup import find_job
from horae.ports.reader import RunFilter
from horae.ports.store import Store
from horae.proof.checking import Code
from horae.stores.common.codecs import encode_policy
from horae.stores.sqlite.executor import InlineExecutor
from tests import acts
from tests.acts import Resolution
from tests.clocks import ManualClock
from tests.engine.system import System, failing, instantly, taking
from tests.engine.test_jobs import jobs_of

SECOND = timedelta(seconds=1)
MILLISECOND = timedelta(milliseconds=1)
BOOM = Failure(error=JobError(type="ValueError", message="boom"))
RETRY = RetryPolicy(max_retries=2, initial=2 * SECOND, jitter=False)


# --- the sample history -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleHistory:
    """The jobs and runs that violations are planted in."""

    steady: Job  # every second, never late
    busy: Job  # every second, and each of its runs takes 2.5 s
    patient: Job  # every 5 s, was paused for a while
    daily: Job  # has a key, and was changed
    keyed: Run  # had a key of its own
    flaky: Run  # failed twice, then succeeded
    broken: Run  # failed for good
    requeued: Run  # failed for good, and was replaced
    cancelled: Run  # before its time
    prompt: Run  # had to start within a second, and did
    first: Run  # of three with an ordering key
    second: Run
    blocking: Run  # failed, which blocked `blocked` until it was discarded
    blocked: Run
    steady_runs: list[Run]
    busy_runs: list[Run]


async def create_sample_history(store: Store, clock: ManualClock) -> SampleHistory:
    """Run jobs of every kind on a system in virtual time."""
    system = System(store, clock, seed=7)
    system.scripts = {
        "echo": instantly,
        "busy": taking(2.5),
        "flaky": failing(2, BOOM),
        "broken": failing(99, BOOM),
        "step": taking(0.5),
    }
    await system.add_node()
    steady = await _recurring(system, "echo", "every 1s")
    busy = await _recurring(system, "busy", "every 1s")
    patient = await _recurring(system, "echo", "every 5s")
    daily = await _recurring(system, "echo", "every 1d", key="daily")
    keyed = await _once(system, "echo", key="once")
    flaky = await _once(system, "flaky", policy=Policy(retry=RETRY))
    broken = await _once(system, "broken", policy=Policy(retry=RETRY))
    replaced = await _once(system, "broken", policy=Policy(retry=RETRY))
    cancelled = await _once(system, "echo", delay=30)
    prompt = await _once(system, "echo", delay=5, policy=Policy(start_within=SECOND))
    first, second, _ = [await _once(system, "step", delay=15, ordering_key="a") for _ in range(3)]
    block = Policy(retry=RetryPolicy(max_retries=0), on_failure=OnFailure.BLOCK)
    blocking = await _once(system, "broken", delay=15, ordering_key="b", policy=block)
    blocked = await _once(system, "step", delay=16, ordering_key="b")
    jobs = jobs_of(system)
    await jobs.cancel_run(cancelled.id, owner=None)
    await jobs.put(_draft("echo", "every 2d", key="daily"), owner="local", by="local")
    await system.advance(seconds=10)
    await jobs.pause(patient.id, owner=None)
    await system.advance(seconds=12)
    await jobs.resume(patient.id, missed=Misfire.SKIP, owner=None)
    await acts.resolve(store, [Resolution(run_id=blocking.id)], now=clock.now())
    letter = await system.run(replaced.id)
    successor = requeued(letter, now=clock.now(), new_id=system.new_id)
    await acts.resolve(store, [Resolution(run_id=letter.id, successor=successor)], now=clock.now())
    await system.advance(seconds=40)
    await system.nodes[0].drain()
    return SampleHistory(
        steady=await _job(store, steady.id),
        busy=await _job(store, busy.id),
        patient=await _job(store, patient.id),
        daily=await _job(store, daily.id),
        keyed=await system.run(keyed.id),
        flaky=await system.run(flaky.id),
        broken=await system.run(broken.id),
        requeued=await system.run(letter.id),
        cancelled=await system.run(cancelled.id),
        prompt=await system.run(prompt.id),
        first=await system.run(first.id),
        second=await system.run(second.id),
        blocking=await system.run(blocking.id),
        blocked=await system.run(blocked.id),
        steady_runs=await _ended(store, steady.id, State.SUCCEEDED),
        busy_runs=await _ended(store, busy.id, State.SUCCEEDED, State.SKIPPED),
    )


async def _recurring(system: System, task: str, schedule: str, **changes: Any) -> Job:
    return await jobs_of(system).create(_draft(task, schedule, **changes), owner="local", by="local")


def _draft(task: str, schedule: str, **changes: Any) -> Draft:
    policy = Policy(overlap=Overlap.SKIP)
    return Draft(task=task, schedule=schedule, allow_unknown_task=True, policy=policy, **changes)


async def _once(system: System, task: str, *, delay: float = 0, policy: Policy | None = None, **changes: Any) -> Run:
    policy = policy or Policy()
    schedule = rfc3339(system.clock.now() + timedelta(seconds=delay)) if delay else "now"
    draft = Draft(
        task=task,
        schedule=schedule,
        allow_unknown_task=True,
        policy=policy,
        max_retries=policy.retry.max_retries,
        **changes,
    )
    job = await jobs_of(system).create(draft, owner="local", by="local")
    assert job.run is not None
    return job.run


async def _job(store: Store, job_id: JobId) -> Job:
    job = await find_job(store, job_id, owner=None)
    assert job is not None
    return job


async def _ended(store: Store, job_id: JobId, *states: State) -> list[Run]:
    which = RunFilter(job_id=job_id, states=frozenset(states))
    return sorted((await store.list_runs(which, cursor=None, limit=1000)).items, key=lambda run: run.due_at)


# --- tables of both stores --------------------------------------------------------------------------------------------


class Tables(Protocol):
    """Direct access to the tables of a store."""

    async def update(self, table: str, where: dict[str, Any], **values: Any) -> None: ...
    async def delete(self, table: str, where: dict[str, Any]) -> None: ...
    async def copy(self, table: str, where: dict[str, Any], **values: Any) -> None:
        """Insert copies of rows with some other values."""


IDS = frozenset({"id", "job_id", "run_id", "node", "requeue_of"})


class SqliteTables:
    """SQLite, where ended and live runs are in one table."""

    def __init__(self, executor: InlineExecutor) -> None:
        self._executor = executor

    async def update(self, table: str, where: dict[str, Any], **values: Any) -> None:
        changes = ", ".join(f"{column} = ?" for column in values)
        await self._execute(f"UPDATE {_sqlite(table)} SET {changes}", where, values)

    async def delete(self, table: str, where: dict[str, Any]) -> None:
        await self._execute(f"DELETE FROM {_sqlite(table)}", where, {})

    async def copy(self, table: str, where: dict[str, Any], **values: Any) -> None:
        def work(transaction: Any) -> None:
            db, name = transaction.db, _sqlite(table)
            columns = [row[1] for row in db.execute(f"PRAGMA table_info({name})") if row[1] != "seq"]
            picked = ", ".join("?" if column in values else column for column in columns)
            given = [self._value(column, values[column]) for column in columns if column in values]
            condition, bound = self._where(where)
            db.execute(
                f"INSERT INTO {name} ({', '.join(columns)}) SELECT {picked} FROM {name}{condition}", [*given, *bound]
            )

        await self._executor.write(work)

    async def _execute(self, statement: str, where: dict[str, Any], values: dict[str, Any]) -> None:
        given = [self._value(column, value) for column, value in values.items()]
        condition, bound = self._where(where)

        def work(transaction: Any) -> None:
            assert transaction.db.execute(statement + condition, [*given, *bound]).rowcount, "there is no such row"

        await self._executor.write(work)

    def _where(self, where: dict[str, Any]) -> tuple[str, list[Any]]:
        condition = " AND ".join(f"{column} = ?" for column in where)
        return f" WHERE {condition}", [self._value(column, value) for column, value in where.items()]

    def _value(self, column: str, value: Any) -> Any:
        if isinstance(value, datetime):
            return (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        return bytes.fromhex(value) if column in IDS and value is not None else value


TABLES = ("runs", "history", "attempts", "jobs", "skips", "records")


class PostgresTables:
    """PostgreSQL, where ended runs are in the table `history`."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection

    async def remember(self) -> None:
        """Save all tables."""
        for table in TABLES:
            await self._connection.execute(f"CREATE TABLE saved_{table} AS SELECT * FROM {table}")

    async def restore(self) -> None:
        """Restore the saved tables."""
        for table in TABLES:
            await self._connection.execute(f"DELETE FROM {table}")
            await self._connection.execute(f"INSERT INTO {table} SELECT * FROM saved_{table}")

    async def update(self, table: str, where: dict[str, Any], **values: Any) -> None:
        changes = ", ".join(f"{column} = ${place}" for place, column in enumerate(values, 1))
        await self._execute(f"UPDATE {table} SET {changes}", where, values)

    async def delete(self, table: str, where: dict[str, Any]) -> None:
        await self._execute(f"DELETE FROM {table}", where, {})

    async def copy(self, table: str, where: dict[str, Any], **values: Any) -> None:
        found = await self._connection.fetch(
            "SELECT column_name FROM information_schema.columns"
            " WHERE table_schema = current_schema AND table_name = $1",
            table,
        )
        columns = [row[0] for row in found]
        given = {column: values[column] for column in columns if column in values}
        places = {column: f"${place}" for place, column in enumerate(given, 1)}
        picked = ", ".join(places.get(column, column) for column in columns)
        await self._execute(f"INSERT INTO {table} ({', '.join(columns)}) SELECT {picked} FROM {table}", where, given)

    async def _execute(self, statement: str, where: dict[str, Any], values: dict[str, Any]) -> None:
        first = len(values) + 1
        condition = " AND ".join(f"{column} = ${place}" for place, column in enumerate(where, first))
        bound = [self._value(column, value) for column, value in (*values.items(), *where.items())]
        done = await self._connection.execute(f"{statement} WHERE {condition}", *bound)
        assert not done.endswith(" 0"), "there is no such row"

    def _value(self, column: str, value: Any) -> Any:
        return UUID(value) if column in IDS and value is not None else value


def _sqlite(table: str) -> str:
    return "runs" if table == "history" else table


# --- violations -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoreMutant:
    """A planted violation with the code by which it must be found."""

    code: Code
    plant: Callable[[Tables, SampleHistory], Awaitable[None]]

    @property
    def name(self) -> str:
        return self.plant.__name__


async def a_run_is_lost(tables: Tables, sample: SampleHistory) -> None:
    await tables.delete("history", {"id": sample.steady_runs[5].id})


async def a_slot_has_two_runs(tables: Tables, sample: SampleHistory) -> None:
    await tables.copy("history", {"id": sample.steady_runs[5].id}, id=another_id(sample.steady_runs[5].id))


async def a_skip_of_a_pause_is_lost(tables: Tables, sample: SampleHistory) -> None:
    await tables.delete("skips", {"job_id": sample.patient.id})


async def a_skip_is_stored_twice(tables: Tables, sample: SampleHistory) -> None:
    await tables.copy("skips", {"job_id": sample.patient.id}, reason="misfire")


async def a_skip_counts_one_too_many(tables: Tables, sample: SampleHistory) -> None:
    await tables.update("skips", {"job_id": sample.patient.id}, count=99)


async def a_run_is_for_no_slot(tables: Tables, sample: SampleHistory) -> None:
    run = sample.steady_runs[5]
    assert run.slot is not None
    copied = another_id(run.id)
    await tables.copy("history", {"id": run.id}, id=copied, slot=run.slot + SECOND / 2, due_at=run.due_at + SECOND / 2)


async def a_job_is_set_back_to_a_fired_slot(tables: Tables, sample: SampleHistory) -> None:
    await tables.update("jobs", {"id": sample.steady.id}, next_fire_at=sample.steady_runs[20].slot)


async def a_skip_overlaps_nothing(tables: Tables, sample: SampleHistory) -> None:
    never = {"first_started_at": None, "started_at": None, "attempt": 0, "result": None}
    await tables.update("history", {"id": sample.steady_runs[5].id}, state="skipped", reason="overlap", **never)


async def a_skip_has_no_reason(tables: Tables, sample: SampleHistory) -> None:
    skipped = next(run for run in sample.busy_runs if run.state is State.SKIPPED)
    await tables.update("history", {"id": skipped.id}, reason=None)


async def a_run_starts_early(tables: Tables, sample: SampleHistory) -> None:
    run = sample.steady_runs[5]
    early = run.due_at - 5 * MILLISECOND
    await tables.update("history", {"id": run.id}, first_started_at=early, started_at=early)


async def a_run_starts_too_late(tables: Tables, sample: SampleHistory) -> None:
    late = sample.prompt.due_at + 2 * SECOND
    times = {"first_started_at": late, "started_at": late, "finished_at": late}
    await tables.update("history", {"id": sample.prompt.id}, **times)


async def a_success_was_a_failure_as_well(tables: Tables, sample: SampleHistory) -> None:
    attempt = {"run_id": sample.flaky.id, "fence": 2}
    await tables.update("attempts", attempt, fence=sample.flaky.fence)


async def an_attempt_ends_after_its_run(tables: Tables, sample: SampleHistory) -> None:
    assert sample.broken.finished_at is not None
    later = sample.broken.finished_at + SECOND
    await tables.update("attempts", {"run_id": sample.broken.id, "number": 3}, ended_at=later)


async def a_success_starts_after_its_end(tables: Tables, sample: SampleHistory) -> None:
    run = sample.steady_runs[5]
    await tables.update("history", {"id": run.id}, started_at=run.due_at + 5 * SECOND)


async def a_cancelled_run_had_started(tables: Tables, sample: SampleHistory) -> None:
    await tables.copy("attempts", {"run_id": sample.flaky.id, "number": 1}, run_id=sample.cancelled.id)


async def a_cancelled_run_starts_later(tables: Tables, sample: SampleHistory) -> None:
    at = sample.cancelled.due_at
    await tables.update("history", {"id": sample.cancelled.id}, first_started_at=at, started_at=at)


async def two_attempts_run_at_once(tables: Tables, sample: SampleHistory) -> None:
    overlapping = (sample.flaky.started_at or sample.flaky.due_at) + MILLISECOND
    await tables.update("attempts", {"run_id": sample.flaky.id, "number": 2}, ended_at=overlapping)


async def an_attempt_is_lost(tables: Tables, sample: SampleHistory) -> None:
    await tables.delete("attempts", {"run_id": sample.broken.id, "number": 2})


async def a_failure_leaves_no_attempt(tables: Tables, sample: SampleHistory) -> None:
    await tables.delete("attempts", {"run_id": sample.broken.id})


async def a_fence_is_given_out_twice(tables: Tables, sample: SampleHistory) -> None:
    await tables.update("history", {"id": sample.broken.id}, fence=1)


async def a_retry_comes_early(tables: Tables, sample: SampleHistory) -> None:
    soon = sample.broken.due_at + SECOND
    await tables.update("attempts", {"run_id": sample.broken.id, "number": 2}, started_at=soon)


async def a_run_is_given_up_early(tables: Tables, sample: SampleHistory) -> None:
    await tables.update("history", {"id": sample.broken.id}, policy=with_retries(sample.broken, 9))


async def a_run_is_tried_too_often(tables: Tables, sample: SampleHistory) -> None:
    await tables.update("history", {"id": sample.broken.id}, policy=with_retries(sample.broken, 0))


async def an_exhausted_run_is_no_dead_letter(tables: Tables, sample: SampleHistory) -> None:
    await tables.update("history", {"id": sample.broken.id}, state="cancelled")


async def a_letter_is_replaced_by_nothing(tables: Tables, sample: SampleHistory) -> None:
    await tables.update("history", {"id": sample.broken.id}, resolution=another_id(sample.broken.id))


async def a_letter_is_replaced_twice(tables: Tables, sample: SampleHistory) -> None:
    successor = sample.requeued.resolution
    assert successor is not None
    await tables.copy("history", {"id": successor}, id=another_id(successor))


async def a_success_is_resolved(tables: Tables, sample: SampleHistory) -> None:
    await tables.update("history", {"id": sample.flaky.id}, resolution="discarded")


async def runs_of_a_key_change_places(tables: Tables, sample: SampleHistory) -> None:
    assert sample.first.finished_at is not None
    await tables.update("history", {"id": sample.first.id}, finished_at=sample.first.finished_at + SECOND)


async def a_block_is_passed(tables: Tables, sample: SampleHistory) -> None:
    await tables.update("history", {"id": sample.blocking.id}, resolution=None)


async def two_runs_of_a_job_overlap(tables: Tables, sample: SampleHistory) -> None:
    run = next(run for run in sample.busy_runs[20:] if run.state is State.SUCCEEDED)
    assert run.finished_at is not None
    await tables.update("history", {"id": run.id}, finished_at=run.finished_at + SECOND)


async def a_success_was_never_started(tables: Tables, sample: SampleHistory) -> None:
    await tables.update("history", {"id": sample.steady_runs[5].id}, first_started_at=None, started_at=None)


async def a_key_is_lost(tables: Tables, sample: SampleHistory) -> None:
    await tables.delete("records", {"kind": "key", "key": "daily"})


async def a_key_is_held_by_another_job(tables: Tables, sample: SampleHistory) -> None:
    await tables.update("records", {"kind": "key", "key": "daily"}, value=sample.steady.id)


async def a_key_outlives_its_job(tables: Tables, sample: SampleHistory) -> None:
    await tables.copy("records", {"kind": "key", "key": "daily"}, key="once", value=sample.keyed.job_id)


async def a_run_is_given_to_another_owner(tables: Tables, sample: SampleHistory) -> None:
    await tables.update("history", {"id": sample.steady_runs[5].id}, owner="eve")


async def a_one_shot_is_in_the_gate_of_another_owner(tables: Tables, sample: SampleHistory) -> None:
    await tables.update("history", {"id": sample.first.id}, owner="eve")


async def a_run_has_a_revision_that_never_was(tables: Tables, sample: SampleHistory) -> None:
    await tables.update("history", {"id": sample.steady_runs[5].id}, revision=7)


async def a_job_has_a_revision_that_never_was(tables: Tables, sample: SampleHistory) -> None:
    await tables.update("jobs", {"id": sample.steady.id}, revision=7)


async def a_changed_job_has_a_revision_that_never_was(tables: Tables, sample: SampleHistory) -> None:
    await tables.update("jobs", {"id": sample.daily.id}, revision=7)


STORE_MUTANTS = (
    StoreMutant(Code.SLOT_MISSING, a_run_is_lost),
    StoreMutant(Code.SLOT_TWICE, a_slot_has_two_runs),
    StoreMutant(Code.SLOT_MISSING, a_skip_of_a_pause_is_lost),
    StoreMutant(Code.SLOT_TWICE, a_skip_is_stored_twice),
    StoreMutant(Code.SLOT_MISCOUNTED, a_skip_counts_one_too_many),
    StoreMutant(Code.SLOT_UNPLANNED, a_run_is_for_no_slot),
    StoreMutant(Code.SLOT_TWICE, a_job_is_set_back_to_a_fired_slot),
    StoreMutant(Code.SKIPPED_WITHOUT_CAUSE, a_skip_overlaps_nothing),
    StoreMutant(Code.SKIPPED_WITHOUT_CAUSE, a_skip_has_no_reason),
    StoreMutant(Code.EARLY_START, a_run_starts_early),
    StoreMutant(Code.LATE_START, a_run_starts_too_late),
    StoreMutant(Code.COMMITTED_TWICE, a_success_was_a_failure_as_well),
    StoreMutant(Code.MOVED_AFTER_END, an_attempt_ends_after_its_run),
    StoreMutant(Code.MOVED_AFTER_END, a_success_starts_after_its_end),
    StoreMutant(Code.CANCELLED_YET_STARTED, a_cancelled_run_had_started),
    StoreMutant(Code.CANCELLED_YET_STARTED, a_cancelled_run_starts_later),
    StoreMutant(Code.ATTEMPTS_OVERLAP, two_attempts_run_at_once),
    StoreMutant(Code.ATTEMPT_HOLE, an_attempt_is_lost),
    StoreMutant(Code.ATTEMPT_HOLE, a_failure_leaves_no_attempt),
    StoreMutant(Code.FENCE_REUSED, a_fence_is_given_out_twice),
    StoreMutant(Code.RETRIED_EARLY, a_retry_comes_early),
    StoreMutant(Code.GAVE_UP_EARLY, a_run_is_given_up_early),
    StoreMutant(Code.TRIED_TOO_OFTEN, a_run_is_tried_too_often),
    StoreMutant(Code.NOT_A_DEAD_LETTER, an_exhausted_run_is_no_dead_letter),
    StoreMutant(Code.BAD_RESOLUTION, a_letter_is_replaced_by_nothing),
    StoreMutant(Code.BAD_RESOLUTION, a_letter_is_replaced_twice),
    StoreMutant(Code.BAD_RESOLUTION, a_success_is_resolved),
    StoreMutant(Code.OUT_OF_ORDER, runs_of_a_key_change_places),
    StoreMutant(Code.BLOCK_IGNORED, a_block_is_passed),
    StoreMutant(Code.OVERLAPPED, two_runs_of_a_job_overlap),
    StoreMutant(Code.SUCCEEDED_UNSTARTED, a_success_was_never_started),
    StoreMutant(Code.KEY_LOST, a_key_is_lost),
    StoreMutant(Code.KEY_LOST, a_key_is_held_by_another_job),
    StoreMutant(Code.KEY_LOST, a_key_outlives_its_job),
    StoreMutant(Code.FOREIGN, a_run_is_given_to_another_owner),
    StoreMutant(Code.FOREIGN, a_one_shot_is_in_the_gate_of_another_owner),
    StoreMutant(Code.REVISION_UNKNOWN, a_run_has_a_revision_that_never_was),
    StoreMutant(Code.REVISION_UNKNOWN, a_job_has_a_revision_that_never_was),
    StoreMutant(Code.REVISION_UNKNOWN, a_changed_job_has_a_revision_that_never_was),
)


def another_id(ident: str) -> RunId:
    """An id that no run has."""
    return RunId(f"{ident[:-4]}{int(ident[-4:], 16) ^ 0x1111:04x}")


def with_retries(run: Run, max_retries: int) -> str:
    retry = RetryPolicy(max_retries=max_retries, initial=RETRY.initial, jitter=False)
    return encode_policy(Policy(retry=retry))
