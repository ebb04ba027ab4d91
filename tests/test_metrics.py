"""The figures of a node, as Prometheus reads them."""

from datetime import datetime, timedelta
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from horae.core.decisions.results import Failure, Settled, cancel, fail, skip
from horae.core.model import JobError, Node, NodeId, Reason, Run, Spec, State, Trigger
from horae.core.values import replace
from horae.metrics import (
    KEYS_PER_OWNER,
    LATENESS_BUCKETS,
    MOST_KEYS,
    MOST_QUEUES,
    MOST_RUN_LABELS,
    QUEUES_PER_TASK,
    Metrics,
)
from horae.ports.reader import QueueDepth
from tests.core.builders import NOON, a_run


def samples(metrics: Metrics, family: str, *, without: str = "") -> dict[str, float]:
    """The samples of a family by name and labels, in the order of the labels' names."""
    families = {found.name: found for found in text_string_to_metric_families(metrics.text().decode())}
    return {
        " ".join(
            (one.name, *(one.labels[name] for name in sorted(one.labels) if name not in without.split()))
        ): one.value
        for one in families[family].samples
    }


def run_of(
    queue: str = "default", task: str = "echo", *, state: State = State.SUCCEEDED, owner: str = "ada", **spec: Any
) -> Run:
    """A run that ended at noon."""
    return replace(a_run(), state=state, owner=owner, finished_at=NOON, spec=Spec(task=task, queue=queue, **spec))


def late_run(lateness: timedelta, *place: str, lasted: timedelta = timedelta()) -> Run:
    """A run that started late and ended after a while."""
    run = run_of(*place)
    started_at = run.due_at + lateness
    return replace(run, started_at=started_at, finished_at=started_at + lasted)


def test_lateness_is_a_histogram_with_every_bound_and_early_starts_count_as_punctual() -> None:
    metrics = Metrics()
    for milliseconds in (-1, 1, 3, 7_200_000):
        metrics.started([late_run(timedelta(milliseconds=milliseconds))])
    found = samples(metrics, "horae_lateness_seconds", without="queue task")
    assert found["horae_lateness_seconds_bucket 0.001"] == 2, "a bound belongs to its bucket"
    assert found["horae_lateness_seconds_bucket 0.002"] == 2
    assert found["horae_lateness_seconds_bucket 0.005"] == 3
    assert found["horae_lateness_seconds_bucket 3600.0"] == 3
    assert found["horae_lateness_seconds_bucket +Inf"] == found["horae_lateness_seconds_count"] == 4
    assert found["horae_lateness_seconds_sum"] == 7200.004
    assert len(found) == len(LATENESS_BUCKETS) + 3


def test_ends_are_counted_by_state_queue_and_task() -> None:
    metrics = Metrics()
    metrics.ended([run_of("mail"), run_of("mail"), run_of("mail", state=State.FAILED), run_of("slow", "sum")])
    assert samples(metrics, "horae_runs") == {
        "horae_runs_total mail succeeded echo": 2,
        "horae_runs_total mail failed echo": 1,
        "horae_runs_total slow succeeded sum": 1,
    }


def test_durations_are_a_histogram_by_queue_and_task() -> None:
    metrics = Metrics()
    metrics.settled([Settled(run=late_run(timedelta(), "mail", lasted=timedelta(seconds=0.3)))])
    found = samples(metrics, "horae_run_seconds")
    assert (found["horae_run_seconds_bucket 0.1 mail echo"], found["horae_run_seconds_bucket 0.5 mail echo"]) == (0, 1)
    assert found["horae_run_seconds_sum mail echo"] == 0.3


def test_each_attempt_that_ended_has_one_duration() -> None:
    metrics, later = Metrics(), NOON + timedelta(seconds=3)
    retried = fail(a_run(State.RUNNING), Failure(error=JobError(type="E", message="")), later, 0.0)
    waiting_again = replace(retried.run, fence=2)
    metrics.settled(
        [
            retried,
            cancel(waiting_again, later),
            cancel(a_run(State.RUNNING), later),
            skip(a_run(State.CLAIMED), Reason.OVERLAP, later),
        ]
    )
    found = samples(metrics, "horae_run_seconds", without="queue task")
    assert (found["horae_run_seconds_count"], found["horae_run_seconds_sum"]) == (2, 6)


def test_whoever_invents_queues_is_counted_as_other_and_takes_no_label_from_others() -> None:
    metrics = Metrics()
    for number in range(5000):
        metrics.ended([run_of(f"q{number}", "http.request")])
        metrics.started([late_run(timedelta(), f"q{number}", "http.request")])
    metrics.ended([run_of("mail", "send")])
    found = samples(metrics, "horae_runs")
    assert len(found) == QUEUES_PER_TASK + 2
    assert found["horae_runs_total other succeeded http.request"] == 5000 - QUEUES_PER_TASK
    assert found["horae_runs_total mail succeeded send"] == 1
    for number in range(2 * MOST_RUN_LABELS):
        metrics.ended([run_of("mail", f"task{number}")])
    found = samples(metrics, "horae_runs")
    assert len(found) == MOST_RUN_LABELS + 1
    assert sum(found.values()) == 5001 + 2 * MOST_RUN_LABELS


def test_the_last_success_of_recurring_jobs_is_told_by_key() -> None:
    metrics, at = Metrics(), NOON.timestamp()
    metrics.ended([run_of(key="nightly"), run_of(key="failing", state=State.FAILED), run_of()])
    metrics.ended([replace(run_of(key="once"), slot=None), replace(run_of(key="filled"), trigger=Trigger.BACKFILL)])
    family = "horae_last_success_timestamp_seconds"
    assert samples(metrics, family) == {f"{family} nightly": at}
    metrics.ended(run_of(key=f"k{number}", owner="eve") for number in range(10_000))
    metrics.ended([run_of(key="hourly", owner="bob")])
    found = samples(metrics, family)
    assert len(found) == KEYS_PER_OWNER + 3
    assert found[f"{family} hourly"] == found[f"{family} nightly"] == found[f"{family} other"] == at
    for number in range(MOST_KEYS):
        metrics.ended([run_of(key=f"own{number}", owner=f"owner{number}")])
    assert len(samples(metrics, family)) == MOST_KEYS + 1


def test_the_queues_with_the_most_work_are_told_and_the_rest_as_one() -> None:
    metrics = Metrics()
    due = NOON - timedelta(seconds=9)
    metrics.queues([_queue(f"q{number}", number, due) for number in range(MOST_QUEUES + 3)], {"q7": 5}, NOON)
    depth, age = samples(metrics, "horae_queue_depth"), samples(metrics, "horae_oldest_due_age_seconds")
    assert len(depth) == len(age) == MOST_QUEUES + 1
    assert depth["horae_queue_depth other"] == 0 + 1 + 2
    assert depth["horae_queue_depth q3"] == 3
    assert age["horae_oldest_due_age_seconds other"] == 9
    soon = samples(metrics, "horae_due_soon")
    assert len(soon) == MOST_QUEUES + 1
    assert (soon["horae_due_soon q7"], soon["horae_due_soon other"]) == (5, 0)


def _queue(name: str, depth: int, oldest: datetime) -> QueueDepth:
    return QueueDepth(queue=name, depth=depth, oldest_due_at=oldest, running=0, paused=False, concurrency=None)


def test_slots_are_read_when_they_are_asked_for() -> None:
    metrics, busy = Metrics(), [1]
    metrics.watch_slots(free=lambda: 10 - len(busy), busy=lambda: len(busy))
    busy.append(2)
    assert samples(metrics, "horae_slots") == {"horae_slots free": 8, "horae_slots busy": 2}


def test_live_nodes_are_counted_by_role() -> None:
    metrics = Metrics()
    metrics.nodes([_node(0, "api", "worker"), _node(1, "worker")])
    assert samples(metrics, "horae_nodes") == {"horae_nodes api": 1, "horae_nodes planner": 0, "horae_nodes worker": 2}


def _node(hours: int, *roles: str) -> Node:
    return Node(
        id=NodeId(f"{hours}"),
        name=f"host:{hours}",
        roles=roles,
        version="1",
        started_at=NOON,
        beat_at=NOON,
        wall_ahead=timedelta(hours=hours),
    )


def test_the_clocks_of_nodes_are_told_while_they_live() -> None:
    metrics = Metrics()
    nodes = [_node(hours, "worker") for hours in (0, 1)]
    family = "horae_node_wall_clock_offset_seconds"
    metrics.nodes(nodes)
    assert samples(metrics, family) == {f"{family} host:0": 0.0, f"{family} host:1": 3600.0}
    metrics.nodes(nodes[:1])
    assert samples(metrics, family) == {f"{family} host:0": 0.0}
