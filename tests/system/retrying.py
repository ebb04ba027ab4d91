"""Checks of retries: which attempts there are, when each starts, and how the run ends."""

from itertools import pairwise
from typing import Any

from tests.system.cluster import Cluster
from tests.system.rest import Document, instant, run_of

TOLERANCE = 0.060  # seconds that an attempt may begin late
CLOCK = 0.001  # what two readings of the store's clock may differ by


def check_exact_delays(cluster: Cluster, *, initial: float) -> list[float]:
    """Check that `demo.fail` with `times: 2` succeeds on attempt 3 after its delays; return the lateness of retries."""
    retry = {"initial_seconds": initial, "factor": 2, "jitter": False}
    job = cluster.rest.create("demo.fail", {"times": 2}, retry=retry)
    run = cluster.rest.wait(run_of(job["id"]), within=3 * initial + 5)
    assert (run["status"], run["attempt"], run["result"]) == ("succeeded", 3, 3), run
    assert outcomes(run) == ["failed", "failed", "succeeded"], run
    late = [delay - wanted for delay, wanted in zip(delays(run), (initial, 2 * initial), strict=True)]
    assert all(-CLOCK <= value <= TOLERANCE * cluster.patience for value in late), f"{late} for {run}"
    return late


def check_handlers_see_the_delays(cluster: Cluster, *, initial: float) -> None:
    """Check by the effect log that three attempts started, none of them early."""
    retry = {"initial_seconds": initial, "factor": 2, "jitter": False}
    job = cluster.rest.create("effects.flaky", {"failures": 2}, retry=retry)
    run = cluster.rest.wait(run_of(job["id"]), "succeeded", within=3 * initial + 5)
    starts, ends = cluster.effects.starts(job["id"]), cluster.effects.ends(job["id"])
    assert [start.attempt for start in starts] == [1, 2, 3], run
    gaps = [start.at - end.at for end, start in zip(ends, starts[1:], strict=False)]
    late = [gap - wanted for gap, wanted in zip(gaps, (initial, 2 * initial), strict=True)]
    assert all(-CLOCK <= value <= TOLERANCE * cluster.patience for value in late), gaps


def check_jitter(cluster: Cluster, *, initial: float, times: int) -> list[float]:
    """Check that jitter adds 0 to 25 % to each delay, in different amounts; return the shares."""
    retry = {"initial_seconds": initial, "factor": 1, "jitter": True}
    ids = cluster.rest.create_many([{"task": "demo.fail", "params": {"times": 2}, "retry": retry}] * times)
    runs = cluster.rest.wait_all([run_of(job_id) for job_id in ids], within=3 * initial + 10)
    added = [delay - initial for run in runs for delay in delays(run)]
    assert all(-CLOCK <= more <= 0.25 * initial + TOLERANCE * cluster.patience for more in added), sorted(added)
    assert max(added) - min(added) > 0.02 * initial, f"jitter adds the same to every delay: {sorted(added)}"
    return [more / initial for more in added]


def check_giving_up(cluster: Cluster) -> None:
    """Check that a task that always fails ends as failed after its retries, by default three."""
    quick = {"initial_seconds": 0.1, "factor": 1, "jitter": False}
    for retries in (0, 2, None):
        more: dict[str, Any] = {} if retries is None else {"max_retries": retries}
        job = cluster.rest.create("demo.fail", retry=quick, **more)
        run = cluster.rest.wait(run_of(job["id"]), within=10)
        tries = (3 if retries is None else retries) + 1
        assert (run["status"], run["attempt"]) == ("failed", tries), run
        assert outcomes(run) == ["failed"] * tries, run
        assert run["error"]["type"] == "DemoError", run


def check_timeouts(cluster: Cluster) -> None:
    """Check that a timeout counts as a failed attempt for every kind of task."""
    quick = {"initial_seconds": 0.1, "factor": 1, "jitter": False}
    tasks: list[tuple[str, Document]] = [
        ("effects.work", {"seconds": 30}),
        ("effects.thread", {"seconds": 30}),
        ("effects.process", {"seconds": 30}),
        ("shell.run", {"command": ["sleep", "30"]}),
    ]
    ids = [
        cluster.rest.create(task, params, timeout_seconds=0.5, max_retries=1, retry=quick)["id"]
        for task, params in tasks
    ]
    for job_id, (task, _) in zip(ids, tasks, strict=True):
        run = cluster.rest.wait(run_of(job_id), within=15)
        assert (run["status"], run["attempt"], run["error"]["type"]) == ("failed", 2, "timeout"), (task, run)
        assert outcomes(run) == ["timeout", "timeout"], (task, run)


def outcomes(run: Document) -> list[str]:
    return [attempt["outcome"] for attempt in run["attempts"]]


def delays(run: Document) -> list[float]:
    """The seconds between the end of each attempt and the start of the next."""
    return [
        instant(later["started_at"]) - instant(sooner["finished_at"]) for sooner, later in pairwise(run["attempts"])
    ]
