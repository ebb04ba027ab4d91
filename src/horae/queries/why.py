"""Explains why a run has not started, in words that users can act on."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from horae.core.lifecycle import FINAL, HELD
from horae.core.model import Node, Reason, Run, RunId, State
from horae.core.records import QueueSettings
from horae.core.schedule.timestamps import rfc3339
from horae.lookup import get_run, queue_settings
from horae.ports.clock import Clock
from horae.ports.reader import Reader

MAX_MESSAGE = 200  # characters of an error


class Cause(StrEnum):
    """What keeps a run from starting, or that it has started or ended."""

    STARTED = "started"
    ENDED = "ended"
    CANCELLING = "cancelling"
    NOT_DUE = "not_due"
    RETRY_DELAY = "retry_delay"
    JOB_PAUSED = "job_paused"
    QUEUE_PAUSED = "queue_paused"
    QUEUE_FULL = "queue_full"
    NO_WORKER = "no_worker"
    NO_WORKER_FOR_QUEUE = "no_worker_for_queue"
    NO_WORKER_FOR_TASK = "no_worker_for_task"
    WAITING_FOR_RUN = "waiting_for_run"
    BLOCKED_BY_FAILURE = "blocked_by_failure"
    WORKERS_BUSY = "workers_busy"
    STARTING = "starting"


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a run has not started yet."""

    cause: Cause
    detail: str
    expected_at: datetime | None = None  # when it should start; None when that is not known


@dataclass(frozen=True, slots=True, kw_only=True)
class StartConditions:
    """What the start of a due run depends on beside the run itself."""

    queue: QueueSettings
    running: int  # in the queue; counted only if its concurrency is limited
    ahead: Sequence[Run]  # that come before it in its gate, earliest first
    workers: Sequence[Node]  # only live ones


class StartExplainer:
    """Finds out what a run is waiting for."""

    def __init__(self, store: Reader, clock: Clock, *, dead_after: timedelta) -> None:
        self._store = store
        self._clock = clock
        self._dead_after = dead_after

    async def explain(self, run_id: RunId, *, owner: str | None) -> Explanation:
        """Explain why the run has not started; raises NotFound also for a run of another owner."""
        run = await get_run(self._store, run_id, owner=owner)
        now = self._clock.now()
        return explain_by_run(run, now) or explain_by_conditions(run, await self._conditions(run, now))

    async def _conditions(self, run: Run, now: datetime) -> StartConditions:
        alive = now - self._dead_after
        settings = await queue_settings(self._store, run.spec.queue)
        nodes = [node for node in await self._store.nodes() if "worker" in node.roles and node.beat_at > alive]
        running = 0
        if settings.concurrency is not None:
            running = sum(depth.running for depth in await self._store.queues(now=now, queue=run.spec.queue))
        return StartConditions(
            queue=settings,
            running=running,
            ahead=await self._store.ahead_of(run) if run.gate is not None else (),
            workers=nodes,
        )


def explain_by_run(run: Run, now: datetime) -> Explanation | None:
    """Explain by the state of the run alone; None when it is due and waits for something else."""
    if run.state in FINAL:
        return Explanation(Cause.ENDED, _ended(run))
    if run.state is State.RUNNING:
        return Explanation(Cause.STARTED, f"attempt {run.attempt} runs on {_worker_name(run.node)}")
    if run.state in HELD and run.stop is Reason.CANCELLED:
        return Explanation(Cause.CANCELLING, f"{_worker_name(run.node)} is asked to give it up for a cancel")
    if run.paused:
        return Explanation(Cause.JOB_PAUSED, f"job_{run.job_id} is paused; resume it")
    if run.wake_at > now and (run.state is State.RETRYING or run.attempt > 0):
        return Explanation(Cause.RETRY_DELAY, _delayed(run), run.wake_at)
    if run.wake_at > now and run.crashes > 1:
        return Explanation(Cause.RETRY_DELAY, _suspected(run), run.wake_at)
    if run.due_at > now:
        return Explanation(Cause.NOT_DUE, f"it is due at {rfc3339(run.due_at)}", run.due_at)
    if run.state is State.CLAIMED:
        return Explanation(Cause.STARTING, f"{_worker_name(run.node)} has taken it and is about to start it", now)
    return None


def explain_by_conditions(run: Run, conditions: StartConditions) -> Explanation:
    """Explain what a due run is waiting for."""
    queue = run.spec.queue
    if conditions.queue.paused:
        return Explanation(Cause.QUEUE_PAUSED, f"the queue {queue} is paused; an administrator can resume it")
    if conditions.ahead:
        return _behind(conditions.ahead[0])
    return _without_worker(run, conditions.workers) or _at_capacity(run, conditions)


def _behind(ahead: Run) -> Explanation:
    if ahead.state is State.FAILED:
        detail = f"run_{ahead.id} failed before it and blocks its ordering key; requeue or discard that one"
        return Explanation(Cause.BLOCKED_BY_FAILURE, detail)
    detail = f"run_{ahead.id}, which is {ahead.state}, comes before it and has to end first"
    return Explanation(Cause.WAITING_FOR_RUN, detail)


def _without_worker(run: Run, workers: Sequence[Node]) -> Explanation | None:
    """Explain that no live worker can take the run; None when one can."""
    task, queue = run.spec.task, run.spec.queue
    if not workers:
        return Explanation(Cause.NO_WORKER, "no worker is alive; start one with `horae worker`")
    serving = [node for node in workers if _serves(node, queue)]
    if not serving:
        detail = f"none of the {len(workers)} workers serves the queue {queue}; start one with --queues {queue}"
        return Explanation(Cause.NO_WORKER_FOR_QUEUE, detail)
    if not any(task in node.tasks for node in serving):
        detail = f"no worker of the queue {queue} knows the task {task}; start one whose app has it"
        return Explanation(Cause.NO_WORKER_FOR_TASK, detail)
    return None


def _at_capacity(run: Run, conditions: StartConditions) -> Explanation:
    """Explain why no worker that could take the run has taken it yet."""
    queue, limit = run.spec.queue, conditions.queue.concurrency
    if limit is not None and conditions.running >= limit:
        detail = f"the queue {queue} runs at most {limit} at a time, and that many are running"
        detail += "; if those wait for this run, submit it to another queue"
        return Explanation(Cause.QUEUE_FULL, detail)
    able = [node for node in conditions.workers if _serves(node, queue) and run.spec.task in node.tasks]
    if all(node.running >= node.concurrency for node in able):
        detail = f"all {len(able)} workers that could take it are busy; it starts when one is free, or add workers"
        return Explanation(Cause.WORKERS_BUSY, detail)
    return Explanation(Cause.STARTING, "it is due and a worker has room: it starts at any moment")


def _serves(node: Node, queue: str) -> bool:
    return not node.queues or queue in node.queues


def _ended(run: Run) -> str:
    at = "" if run.finished_at is None else f" at {rfc3339(run.finished_at)}"
    why = "" if run.reason is None else f" ({run.reason})"
    return f"it has ended: {run.state}{why}{at}"


def _delayed(run: Run) -> str:
    failed = "" if run.error is None else f" with {run.error.type}: {_cut(run.error.message)}"
    return f"attempt {run.attempt} failed{failed}; it is tried again at {rfc3339(run.wake_at)}"


def _cut(message: str) -> str:
    return message if len(message) <= MAX_MESSAGE else f"{message[: MAX_MESSAGE - 1]}…"


def _suspected(run: Run) -> str:
    return f"{run.crashes} workers died while they held it; it is tried again at {rfc3339(run.wake_at)}"


def _worker_name(node: str | None) -> str:
    return "a worker" if node is None else f"the worker {node}"
