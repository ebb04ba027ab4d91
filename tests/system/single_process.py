"""Checks of one process: it becomes ready, costs little, stops on a signal, and continues after a restart."""

import os
import signal
import time
from dataclasses import dataclass
from itertools import pairwise

import psutil  # type: ignore[import-untyped]

from tests.system.cluster import Server
from tests.system.rest import Rest, instant, run_of
from tests.system.waiting import eventually, let_pass

CPU_LIMIT = 0.02  # of a core
MEMORY_LIMIT = 150e6  # bytes
END_WITHIN = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """The cost of an idle process."""

    cpu: float  # of a core
    memory: float  # bytes

    def __str__(self) -> str:
        return f"{self.cpu:.2%} of a core, {self.memory / 1e6:.0f} MB"


def check_demo_jobs_run(rest: Rest, *, within: float) -> str:
    """Check that the demo jobs exist and one of them has run; return its id."""
    wanted = {"demo-hello", "demo-flaky", "demo-report"}
    eventually(lambda: wanted <= _jobs_by_key(rest).keys(), "the demo jobs are there", within=within)
    hello = _jobs_by_key(rest)["demo-hello"]
    eventually(
        lambda: any(run["status"] == "succeeded" for run in rest.runs_of(hello)), "a demo job runs", within=within
    )
    return hello


def _jobs_by_key(rest: Rest) -> dict[str, str]:
    return {job["key"]: job["id"] for job in rest.get("/v1/jobs")["items"]}


def check_costs_little(server: Server, rest: Rest, *, seconds: float) -> Idle:
    """Check that, with every job paused, all processes use less than 2 % of a core and 150 MB."""
    for job in rest.get("/v1/jobs", status="scheduled")["items"]:
        rest.post(f"/v1/jobs/{job['id']}/pause")
    eventually(lambda: not rest.get("/v1/runs", status="running")["items"], "nothing runs", within=10)
    let_pass(1)
    processes = server.tree()
    before, began = _cpu_seconds(processes), time.monotonic()
    let_pass(seconds)
    used, elapsed = _cpu_seconds(processes) - before, time.monotonic() - began
    idle = Idle(cpu=used / elapsed, memory=sum(process.memory_info().rss for process in processes))
    assert idle.cpu < CPU_LIMIT, f"idle, but {idle}"
    assert idle.memory < MEMORY_LIMIT, f"idle, but {idle}"
    for job in rest.get("/v1/jobs", status="paused")["items"]:
        rest.post(f"/v1/jobs/{job['id']}/resume")
    return idle


def _cpu_seconds(processes: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def check_ends_at_once(server: Server, number: signal.Signals, *, code: int | None = 0) -> float:
    """Send a signal to the whole group, as Ctrl-C does; check that all end within 5 s without a traceback."""
    family = server.tree()
    began = time.monotonic()
    os.killpg(server.pid, number)
    _, alive = psutil.wait_procs(family, timeout=END_WITHIN)
    took = time.monotonic() - began
    assert not alive, f"after {END_WITHIN:g} s there is still {alive}:\n{server.tail()}"
    ended = server.wait(1)
    assert code in (None, ended), f"ended with {ended}:\n{server.tail()}"
    assert "Traceback" not in server.output(), server.output()
    return took


def start_long_run(rest: Rest) -> str:
    """Start a run that lasts beyond the end of the process; return its id."""
    run_id = run_of(rest.create("demo.sleep", {"seconds": 600})["id"])
    rest.wait(run_id, "running", within=5)
    return run_id


def check_goes_on(rest: Rest, job_id: str, long_run: str, *, slot_seconds: float) -> None:
    """Check that after a restart the jobs exist, the interrupted run is restarted, and every slot is accounted for."""
    restarted_at = time.time()
    run = rest.wait(long_run, "running", within=30)
    assert (run["attempt"], run["crashes"]) == (1, 0), f"the end in order was counted against it: {run}"
    rest.post(f"/v1/runs/{long_run}/cancel")
    eventually(
        lambda: any(
            run["status"] == "succeeded" and instant(run["due_at"]) > restarted_at for run in rest.runs_of(job_id)
        ),
        "the job goes on",
        within=3 * slot_seconds + 5,
    )
    slots = [
        instant(entry["from"]) + place * slot_seconds for entry in rest.slots(job_id) for place in range(entry["count"])
    ]
    assert slots == sorted(slots), slots
    gaps = {round(later - sooner, 3) for sooner, later in pairwise(slots)}
    assert gaps == {slot_seconds}, f"slots are missing or doubled: {slots}"
