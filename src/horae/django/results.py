"""Reads the results of `django.tasks` from the store."""

import builtins
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from django.utils.module_loading import import_string

from horae.core.ids import is_id
from horae.core.model import Attempt, JobError, Run, RunId, State
from horae.django import app
from horae.django.task_api import TaskError, TaskResult, TaskResultDoesNotExist, TaskResultStatus
from horae.jobs.params import Parameters
from horae.lookup import find_run

if TYPE_CHECKING:
    from horae.sdk.connection import Connection

STATUSES = {
    State.SUCCEEDED: TaskResultStatus.SUCCESSFUL,
    State.FAILED: TaskResultStatus.FAILED,
    State.CANCELLED: TaskResultStatus.FAILED,
    State.SKIPPED: TaskResultStatus.FAILED,
    State.RUNNING: TaskResultStatus.RUNNING,
}


async def read_result(result_id: str, connection: "Connection", *, backend: str) -> Any:
    """Return the result of a task by the id of its job; raises TaskResultDoesNotExist."""
    run_id = RunId(result_id.removeprefix("job_"))
    run = await find_run(connection.store, run_id, owner=app.owner) if is_id(run_id) else None
    if run is None or not run.spec.task.startswith("django."):
        raise TaskResultDoesNotExist(result_id)
    attempts = (await connection.store.attempts([run_id])).get(run_id, ())
    call = msgspec.json.decode(await Parameters(connection.store.blobs).of(run.spec))
    result = TaskResult(
        task=import_string(call["path"]),
        id=result_id,
        status=STATUSES.get(run.state, TaskResultStatus.READY),
        enqueued_at=run.created_at,
        started_at=run.first_started_at,
        last_attempted_at=run.started_at,
        finished_at=run.finished_at,
        args=call["args"],
        kwargs=call["kwargs"],
        backend=backend,
        errors=[_error(attempt.error) for attempt in attempts if attempt.error is not None],
        worker_ids=_workers(run, attempts),
    )
    if run.state is State.SUCCEEDED and run.result is not None:
        object.__setattr__(result, "_return_value", msgspec.json.decode(run.result))  # as Django's own backends do
    return result


def _workers(run: Run, attempts: Sequence[Attempt]) -> list[str]:
    """Return the worker of each counted attempt; Django counts attempts by them."""
    known = {attempt.number: attempt.node or "" for attempt in attempts} | {run.attempt: run.node or ""}
    return [known.get(number, "") for number in range(1, run.attempt + 1)]


def _error(error: JobError) -> Any:
    """Return an error as Django shows it; Horae keeps the name of its class, and the traceback in the run's log."""
    home = "builtins." if hasattr(builtins, error.type) else ""
    return TaskError(exception_class_path=f"{home}{error.type}", traceback=f"{error.type}: {error.message}")
