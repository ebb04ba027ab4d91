"""Waits of a task for other runs: lends its slot to them, and refuses a wait that could never end."""

from typing import TYPE_CHECKING

from horae.core.errors import WaitRefused
from horae.core.lifecycle import FINAL
from horae.core.model import Run, RunId
from horae.lookup import find_run, queue_settings
from horae.run import CurrentRun

if TYPE_CHECKING:
    from horae.sdk.connection import Connection


async def wait_in_task(task: CurrentRun, connection: "Connection", run_id: RunId) -> Run:
    """Wait until the run has ended, as part of a task that runs here; raises WaitRefused."""
    waiting = task.lend_slot()
    if waiting is None:
        return await connection.waiter.wait(run_id)
    try:
        await _refuse_if_in_the_way(waiting, connection, run_id)
        return await connection.waiter.wait(run_id)
    finally:
        task.take_slot_back()


async def _refuse_if_in_the_way(waiting: Run, connection: "Connection", run_id: RunId) -> None:
    """Refuse to wait for a run that starts only when the waiting run itself has ended."""
    queue = waiting.spec.queue
    limit = (await queue_settings(connection.store, queue)).concurrency
    if limit is None and waiting.gate is None:
        return
    awaited = await find_run(connection.store, run_id, owner=None)
    if awaited is None or awaited.state in FINAL:
        return
    if waiting.gate is not None and awaited.gate == waiting.gate:
        raise WaitRefused(
            f"run_{run_id} has the same ordering key as the task that waits for it, so it starts only after that has"
            " ended; submit it with another ordering key, or do not wait for it"
        )
    if limit is not None and awaited.spec.queue == queue:
        raise WaitRefused(
            f"run_{run_id} is in the queue {queue}, as is the task that waits for it; that queue runs at most {limit}"
            " at a time, so tasks that wait might fill it; submit it to another queue, or do not wait for it"
        )
