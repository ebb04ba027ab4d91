"""Checks of punctuality, by the clocks of the handlers."""

import math
import time

from tests.system.cluster import Cluster
from tests.system.rest import instant, timestamp
from tests.system.waiting import eventually

EARLIEST = -0.001  # seconds; what counts as early lies before
LATEST = 0.050
AT_ONCE = 0.100


def check_jobs_for_now(cluster: Cluster, *, times: int) -> list[float]:
    """Check that each starts within 100 ms of its answer; return the delays."""
    delays = []
    for _ in range(times):
        job = cluster.rest.create("effects.work")
        answered_at = cluster.rest.answered_at
        eventually(lambda: cluster.effects.starts(job["id"]), "a job for now starts", within=5)  # noqa: B023
        [start] = cluster.effects.starts(job["id"])
        delays.append(start.at - answered_at)
    assert max(delays) <= AT_ONCE * cluster.patience, f"started late after the answer: {_milliseconds(delays)}"
    return delays


def check_jobs_for_later(cluster: Cluster, *, delay: float, times: int) -> list[float]:
    """Check that each starts -1 to 50 ms after its due time; return the lateness of each."""
    first = time.time() + delay
    jobs = [cluster.rest.create("effects.work", schedule=timestamp(first + 0.037 * place)) for place in range(times)]
    ids = {job["id"] for job in jobs}
    eventually(
        lambda: len({start.job for start in cluster.effects.starts() if start.job in ids}) == times,
        f"{times} jobs due in {delay:g} s start",
        within=delay + 5,
    )
    starts = [start for start in cluster.effects.starts() if start.job in ids]
    assert len(starts) == times, "a job started twice"
    latenesses = [start.lateness for start in starts]
    _check_latenesses(latenesses, LATEST * cluster.patience)
    for job in jobs:
        run = cluster.rest.wait(job["id"].replace("job_", "run_"), "succeeded", within=5)
        assert EARLIEST <= run["lateness_ms"] / 1000 <= LATEST * cluster.patience, run
    return latenesses


def check_every_second(cluster: Cluster, *, seconds: int) -> list[float]:
    """Check that each second starts once and on time, with overlap `allow` and `skip`; return the lateness of each."""
    jobs = [
        cluster.rest.create("effects.work", schedule="* * * * * *", overlap="allow"),
        cluster.rest.create("effects.work", schedule="* * * * * *"),
    ]
    latenesses = [late for job in jobs for late in _each_second_once(cluster, job, seconds)]
    for job in jobs:
        cluster.rest.delete(f"/v1/jobs/{job['id']}")
    _check_latenesses(latenesses, LATEST * cluster.patience)
    return latenesses


def _each_second_once(cluster: Cluster, job: dict[str, object], seconds: int) -> list[float]:
    job_id = str(job["id"])
    first = math.floor(instant(str(job["created_at"]))) + 1
    wanted = [float(first + place) for place in range(seconds)]
    eventually(
        lambda: any(end.due >= wanted[-1] for end in cluster.effects.ends(job_id)),
        f"the slot of {timestamp(wanted[-1])} runs",
        within=seconds + 10,
    )
    starts = [start for start in cluster.effects.starts(job_id) if start.due <= wanted[-1]]
    assert sorted(start.due for start in starts) == wanted, "a second is missing or doubled"
    _check_ledger(cluster, job_id, wanted)
    return [start.lateness for start in starts]


def _check_ledger(cluster: Cluster, job_id: str, wanted: list[float]) -> None:
    def slots() -> list[tuple[float, int, str]]:
        slots = cluster.rest.slots(job_id, end=timestamp(wanted[-1]))
        return [(instant(slot["from"]), slot["count"], slot["outcome"]) for slot in slots]

    eventually(lambda: all(outcome != "pending" for *_, outcome in slots()), "the last slot is settled", within=2)
    assert slots() == [(slot, 1, "ran") for slot in wanted]


def _check_latenesses(latenesses: list[float], latest: float) -> None:
    early = [late for late in latenesses if late < EARLIEST]
    assert not early, f"started early: {_milliseconds(early)}"
    assert percentile(latenesses, 99) <= latest, f"started late: {_milliseconds(latenesses)}"


def percentile(values: list[float], percent: float) -> float:
    """The value that so many percent of all do not exceed."""
    ordered = sorted(values)
    return ordered[min(math.ceil(len(ordered) * percent / 100), len(ordered)) - 1]


def _milliseconds(seconds: list[float]) -> str:
    return ", ".join(f"{value * 1000:.1f}" for value in sorted(seconds)) + " ms"
