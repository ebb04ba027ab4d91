"""Why a run has not started: the first cause that holds, in the order in which people would look."""

from datetime import timedelta
from typing import Any

import pytest

from horae.core.model import JobError, JobId, Node, NodeId, Reason, Run, RunId, Spec, State
from horae.core.records import QueueSettings
from horae.core.values import replace
from horae.queries.why import Cause, StartConditions, explain_by_conditions, explain_by_run
from tests.conformance.builders import NOW

RUN = Run(
    id=RunId("1" * 32),
    job_id=JobId("1" * 32),
    owner="local",
    created_by="local",
    spec=Spec(task="mail.send", queue="mail"),
    due_at=NOW,
    wake_at=NOW,
    created_at=NOW,
)
LATER = NOW + timedelta(minutes=1)


def worker(**fields: Any) -> Node:
    fields = {"queues": ("mail",), "tasks": {"mail.send": "{}"}, "concurrency": 2} | fields
    return Node(id=NodeId("2" * 32), name="w", roles=("worker",), version="1", started_at=NOW, beat_at=NOW, **fields)


def around(*workers: Node, ahead: tuple[Run, ...] = (), running: int = 0, **settings: Any) -> StartConditions:
    queue = QueueSettings(queue="mail", **settings)
    return StartConditions(queue=queue, running=running, ahead=ahead, workers=workers)


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"state": State.SUCCEEDED, "finished_at": NOW}, Cause.ENDED),
        ({"state": State.SKIPPED, "reason": Reason.OVERLAP}, Cause.ENDED),
        ({"state": State.RUNNING, "attempt": 1, "node": NodeId("2" * 32)}, Cause.STARTED),
        ({"state": State.CLAIMED, "stop": Reason.CANCELLED}, Cause.CANCELLING),
        ({"state": State.CLAIMED}, Cause.STARTING),
        ({"paused": True, "due_at": LATER, "wake_at": LATER}, Cause.JOB_PAUSED),
        ({"due_at": LATER, "wake_at": LATER}, Cause.NOT_DUE),
        ({"due_at": LATER, "wake_at": LATER, "state": State.CLAIMED}, Cause.NOT_DUE),
        ({"state": State.RETRYING, "attempt": 1, "wake_at": LATER}, Cause.RETRY_DELAY),
        ({"crashes": 2, "wake_at": LATER}, Cause.RETRY_DELAY),
    ],
)
def test_what_a_run_tells_by_itself(changes: dict[str, Any], cause: Cause) -> None:
    explanation = explain_by_run(replace(RUN, **changes), NOW)
    assert explanation is not None
    assert explanation.cause is cause
    assert (explanation.expected_at is not None) == (cause in (Cause.NOT_DUE, Cause.RETRY_DELAY, Cause.STARTING))


@pytest.mark.parametrize("run", [RUN, replace(RUN, state=State.RETRYING, attempt=1)])
def test_a_run_that_is_due_and_waits_tells_nothing_by_itself(run: Run) -> None:
    assert explain_by_run(run, NOW) is None


def test_a_suspect_tells_how_many_workers_died() -> None:
    explanation = explain_by_run(replace(RUN, crashes=3, wake_at=LATER), NOW)
    assert explanation is not None
    assert explanation.detail.startswith("3 workers died while they held it")


def test_a_delay_names_what_failed() -> None:
    error = JobError(type="Timeout", message="too slow")
    run = replace(RUN, state=State.RETRYING, attempt=2, wake_at=LATER, error=error)
    explanation = explain_by_run(run, NOW)
    assert explanation is not None
    assert "attempt 2 failed with Timeout" in explanation.detail


AHEAD = replace(RUN, id=RunId("3" * 32), state=State.RUNNING)
FAILED = replace(AHEAD, state=State.FAILED)


@pytest.mark.parametrize(
    ("conditions", "cause", "word"),
    [
        (around(paused=True, ahead=(AHEAD,)), Cause.QUEUE_PAUSED, "mail"),
        (around(ahead=(AHEAD, FAILED)), Cause.WAITING_FOR_RUN, "run_333"),
        (around(ahead=(FAILED,)), Cause.BLOCKED_BY_FAILURE, "run_333"),
        (around(), Cause.NO_WORKER, "horae worker"),
        (around(worker(queues=("other",))), Cause.NO_WORKER_FOR_QUEUE, "--queues mail"),
        (around(worker(tasks={})), Cause.NO_WORKER_FOR_TASK, "mail.send"),
        (around(worker(tasks={}), worker(queues=("other",))), Cause.NO_WORKER_FOR_TASK, "mail.send"),
        (around(worker(), concurrency=3, running=3), Cause.QUEUE_FULL, "at most 3"),
        (around(worker(running=2)), Cause.WORKERS_BUSY, "busy"),
        (around(worker(running=2), worker(queues=(), running=1)), Cause.STARTING, "any moment"),
        (around(worker(), concurrency=3, running=2), Cause.STARTING, "any moment"),
    ],
)
def test_what_a_run_waits_for(conditions: StartConditions, cause: Cause, word: str) -> None:
    explanation = explain_by_conditions(RUN, conditions)
    assert explanation.cause is cause
    assert word in explanation.detail
