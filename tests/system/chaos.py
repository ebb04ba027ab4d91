"""Continuous load while nodes are killed, frozen and restarted, and checks of the outcome."""

import itertools
import math
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx2

from tests.system.cluster import Cluster, Server
from tests.system.on_time import percentile
from tests.system.rest import Document, instant, run_of, timestamp
from tests.system.waiting import eventually, let_pass

RECOVERY_SECONDS = 30.0
RELEASE_SECONDS = 0.05
COSTS_NOTHING = {"lost", "released", "succeeded"}  # outcomes of attempts that use up no retry


@dataclass
class Figures:
    """The measured figures."""

    accepted: int = 0
    refused: int = 0  # answers other than 2xx, or none: the client does not know, and asks another node
    slots: int = 0
    crashed: int = 0  # runs that lost a worker
    recoveries: list[float] = field(default_factory=list)  # seconds from a kill to the last run started again
    latenesses: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        worst = f"{max(self.recoveries):.1f} s" if self.recoveries else "none"
        late = [f"p{p} {percentile(self.latenesses, p) * 1000:.0f} ms" for p in (50, 99)] if self.latenesses else []
        return (
            f"{self.accepted} accepted, {self.refused} refused, {self.slots} slots, {self.crashed} lost a worker,"
            f" worst recovery {worst}, lateness of slots {' '.join(late)}"
        )


class Load:
    """Creates jobs continuously at any API node that answers, and remembers which were accepted."""

    def __init__(self, cluster: Cluster, *, per_second: float, seconds: float = 0.2) -> None:
        self._cluster = cluster
        self._pause = 1 / per_second
        self._body = {"task": "effects.work", "params": {"seconds": seconds, "label": "load"}}
        self._stop = threading.Event()
        self._turn = itertools.count()
        self._thread = threading.Thread(target=self._create_all_the_while, daemon=True)
        self._failure: BaseException | None = None
        self.accepted: list[str] = []
        self.refused = 0

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _create_all_the_while(self) -> None:
        try:
            with httpx2.Client(timeout=5, trust_env=False) as client:
                while not self._stop.wait(self._pause):
                    self._create(client)
        except BaseException as exc:  # noqa: BLE001 - raised in the test when it leaves
            self._failure = exc

    def _create(self, client: httpx2.Client) -> None:
        nodes = [server for server in self._cluster.of_role("api") if server.url]
        if not nodes:
            return
        number = next(self._turn)
        node = nodes[number % len(nodes)]
        body: dict[str, Any] = dict(self._body)
        if number % 3 == 0:
            body["schedule"] = timestamp(time.time() + 2)
        try:
            response = client.post(f"{node.url}/v1/jobs", json=body)
        except httpx2.TransportError:  # killed, or just starting: nobody knows whether it was accepted
            self.refused += 1
            return
        if response.status_code == 201:
            self.accepted.append(response.json()["id"])
        else:
            assert response.status_code in (502, 503), response.text
            self.refused += 1


def create_every_second(cluster: Cluster, jobs: int, **fields: Any) -> list[str]:
    """Create jobs that fire every second."""
    body = {"task": "effects.work", "params": {"label": "slot"}, "schedule": "* * * * * *", **fields}
    return cluster.rest.create_many([body] * jobs)


def create_long(cluster: Cluster, jobs: int, seconds: float) -> list[str]:
    """Create jobs that are due now and run for a while."""
    return cluster.rest.create_many([{"task": "effects.work", "params": {"seconds": seconds, "label": "long"}}] * jobs)


# --- killing


def busiest(cluster: Cluster, jobs: Iterable[str], at_least: int, *, within: float) -> tuple[Server, set[str]]:
    """Return a worker that runs at least so many of the jobs, and their runs."""
    wanted = set(jobs)
    workers = {server.pid: server for server in cluster.of_role("worker")}

    def look() -> tuple[Server, set[str]] | None:
        running = cluster.effects.running_by_process(wanted)
        pid = max(workers, key=lambda pid: len(running.get(pid, ())))
        return (workers[pid], running[pid]) if len(running.get(pid, ())) >= at_least else None

    found = eventually(look, f"a worker runs {at_least} of {len(wanted)} jobs", within=within)
    assert found is not None
    return found


def recovery(cluster: Cluster, runs: set[str], killed_at: float, *, within: float = RECOVERY_SECONDS) -> float:
    """Return the seconds from a kill until another process has restarted each of the runs."""

    def again() -> dict[str, float]:
        found: dict[str, float] = {}
        for start in cluster.effects.starts():
            if start.run in runs and start.at > killed_at:
                found.setdefault(start.run, start.at)
        return found

    eventually(
        lambda: len(again()) == len(runs),
        f"all {len(runs)} runs of the killed worker start again",
        within=max(killed_at + within - time.time(), 0),
    )
    return max(again().values()) - killed_at


# --- checks


def judge(cluster: Cluster, one_shots: list[str], recurring: list[str], figures: Figures, *, within: float) -> None:
    """Check that every accepted job succeeded, no slot is missing or doubled, and no retry was used."""
    paused_at = {}
    for job_id in recurring:
        paused_at[job_id] = time.time()  # what comes due while the request is under way may be skipped
        cluster.rest.post(f"/v1/jobs/{job_id}/pause")
    runs = _ended(cluster, one_shots, within)
    for job_id in one_shots:
        _check_success(cluster, runs[run_of(job_id)], figures)
    figures.accepted += len(one_shots)
    for job_id in recurring:
        _check_slots(cluster, job_id, paused_at[job_id], figures, within)


def _ended(cluster: Cluster, one_shots: list[str], within: float) -> dict[str, Document]:
    """Wait until all one-shots have ended, and return every run by its id."""
    wanted = {run_of(job_id) for job_id in one_shots}

    def unfinished() -> list[Document]:
        live = ("scheduled", "queued", "running", "retrying", "cancelling")
        return [
            run
            for status in live
            for run in cluster.rest.pages("/v1/runs", {"status": status, "task": "effects.work"})
            if run["id"] in wanted
        ]

    eventually(lambda: not unfinished(), "no accepted job is unfinished", within=within)
    found = {run["id"]: run for run in cluster.rest.pages("/v1/runs", {"task": "effects.work"})}
    missing = wanted - found.keys()
    assert not missing, f"{len(missing)} accepted jobs are lost: {sorted(missing)[:5]}"
    return found


def _check_success(cluster: Cluster, run: Document, figures: Figures) -> None:
    story = f"{run}\nhandlers: {cluster.effects.story(run['id'])}"
    assert (run["status"], run["attempt"]) == ("succeeded", 1), story
    assert cluster.effects.ends(run=run["id"]), f"succeeded, but no handler ended: {story}"
    if run["crashes"]:
        figures.crashed += 1
    if run["crashes"] or len(cluster.effects.starts(run=run["id"])) > 1:
        attempts = cluster.rest.run(run["id"])["attempts"]
        assert {attempt["outcome"] for attempt in attempts} <= COSTS_NOTHING, f"{attempts}\n{story}"
        assert [attempt["outcome"] for attempt in attempts].count("succeeded") == 1, f"{attempts}\n{story}"


def _check_slots(cluster: Cluster, job_id: str, paused_at: float, figures: Figures, within: float) -> None:
    job = cluster.rest.job(job_id)
    first, last = math.floor(instant(job["created_at"])) + 1, math.floor(paused_at)
    wanted = [float(slot) for slot in range(first, last + 1)]
    eventually(
        lambda: all(run["status"] == "succeeded" for run in cluster.rest.runs_of(job_id) if _slot(run) <= last),
        f"every run of {job_id} succeeds",
        within=within,
    )
    shown = [
        (instant(slot["from"]), slot["count"], slot["outcome"])
        for slot in cluster.rest.slots(job_id, end=timestamp(last))
    ]
    assert shown == [(slot, 1, "ran") for slot in wanted], f"{set(shown) ^ {(slot, 1, 'ran') for slot in wanted}}"
    ended = {end.due: end.run for end in cluster.effects.ends(job_id)}
    missing = set(wanted) - ended.keys()
    assert not missing, f"no handler ended for {sorted(missing)}"
    assert not cluster.effects.doubled(job_id), cluster.effects.doubled(job_id)
    for run in cluster.rest.runs_of(job_id):
        assert run["attempt"] <= 1, run
    figures.slots += len(wanted)
    first_starts: dict[float, float] = {}
    for start in cluster.effects.starts(job_id):
        first_starts.setdefault(start.due, start.lateness)
    figures.latenesses += first_starts.values()


def _slot(run: Document) -> float:
    return instant(run["slot"]) if run["slot"] else math.inf


# --- what is done to the nodes


def start_fleet(cluster: Cluster, *, workers: int, planners: int, apis: int, concurrency: int = 100) -> None:
    """Start some nodes of each role."""
    nodes = [cluster.node(role, wait=False) for role in ["api"] * apis + ["planner"] * planners]
    nodes += [cluster.node("worker", "--concurrency", str(concurrency), wait=False) for _ in range(workers)]
    cluster.ready(*nodes)


def replace(cluster: Cluster, server: Server) -> Server:
    """Start a node with the roles of one that has ended, without waiting until it is ready."""
    return cluster.node(",".join(sorted(server.roles)), *server.options, wait=False)


def check_everything_down(cluster: Cluster) -> None:
    """Kill every node with kill -9: after the restart the interrupted run succeeds without using a retry."""
    job_id = cluster.rest.create("effects.work", {"seconds": 1})["id"]
    cluster.rest.wait(run_of(job_id), "running", within=5)
    nodes = [server for server in cluster.servers if server.alive]
    for server in nodes:
        server.kill()
    cluster.ready(*[replace(cluster, server) for server in nodes])
    run = cluster.rest.wait(run_of(job_id), within=RECOVERY_SECONDS)
    assert (run["status"], run["attempt"], run["crashes"]) == ("succeeded", 1, 1), run
    assert [attempt["outcome"] for attempt in run["attempts"]] == ["lost", "succeeded"], run


def check_kills(
    cluster: Cluster, *, rounds: int, running: int, seconds: float, recurring: int, per_second: float
) -> Figures:
    """Kill a busy worker, a planner and an API node with kill -9, repeatedly and under load."""
    figures = Figures()
    one_shots: list[str] = []
    slots = create_every_second(cluster, recurring, overlap="allow")
    with Load(cluster, per_second=per_second) as load:
        for _ in range(rounds):
            long = create_long(cluster, running * len(cluster.of_role("worker")), seconds)
            one_shots += long
            victim, _ = busiest(cluster, long, running, within=seconds)
            victim.freeze()  # so that what it runs does not change before it is killed
            runs = cluster.effects.running_by_process(set(long))[victim.pid]
            assert len(runs) >= running
            victims = list(dict.fromkeys([victim, cluster.of_role("planner")[0], cluster.of_role("api")[0]]))
            killed_at, *_ = [server.kill() for server in victims]
            replacements = [replace(cluster, server) for server in victims]
            figures.recoveries.append(recovery(cluster, runs, killed_at))
            cluster.ready(*replacements)
    figures.refused = load.refused
    judge(cluster, one_shots + load.accepted, slots, figures, within=RECOVERY_SECONDS)
    assert figures.crashed >= rounds * running, "the kills hit nothing"
    return figures


def check_freeze(cluster: Cluster, *, seconds: float, running: int, per_second: float) -> Figures:
    """Freeze a worker for longer than its lease: others take over, and its late results are void."""
    figures = Figures()
    slots = create_every_second(cluster, 2, overlap="allow")
    with Load(cluster, per_second=per_second) as load:
        long = create_long(cluster, running * len(cluster.of_role("worker")), seconds / 2)
        eventually(
            lambda: {start.job for start in cluster.effects.starts()} >= set(long),
            "all of them run",
            within=seconds / 4,
        )
        sleeper, _ = busiest(cluster, long, running, within=seconds / 2)
        sleeper.freeze()
        frozen_at = time.time()
        runs = cluster.effects.running_by_process(set(long))[sleeper.pid]
        figures.recoveries.append(recovery(cluster, runs, frozen_at))
        let_pass(frozen_at + seconds - time.time())
        sleeper.thaw()
        thawed_at = time.time()
        eventually(
            lambda: any(start.pid == sleeper.pid and start.at > thawed_at for start in cluster.effects.starts()),
            "the sleeper comes back to work",
            within=RECOVERY_SECONDS,
        )
    figures.refused = load.refused
    judge(cluster, long + load.accepted, slots, figures, within=RECOVERY_SECONDS)
    _check_nothing_stale(cluster, sleeper, runs, frozen_at, thawed_at)
    return figures


def _check_nothing_stale(cluster: Cluster, sleeper: Server, runs: set[str], frozen_at: float, thawed_at: float) -> None:
    for start in cluster.effects.starts():
        # A run that was released at the very instant of the freeze, after the worker had looked at its lease, may have
        # its first instruction after the thaw: no check can come later than that. Its result is void all the same.
        being_released = frozen_at - RELEASE_SECONDS < start.due <= frozen_at
        if start.pid == sleeper.pid and start.at > thawed_at and not being_released:
            newer = [other for other in cluster.effects.starts(run=start.run) if other.fence > start.fence]
            assert not newer, f"the sleeper started a run that had moved on: {cluster.effects.story(start.run)}"
    for run_id in runs:
        [held] = [s.fence for s in cluster.effects.starts(run=run_id) if s.pid == sleeper.pid and s.at < thawed_at]
        attempts = cluster.rest.run(run_id)["attempts"]
        [success] = [attempt for attempt in attempts if attempt["outcome"] == "succeeded"]
        assert success["fence"] > held, f"the late result of {run_id} was taken: {attempts}"


def check_rolling_restart(
    cluster: Cluster, nodes: Sequence[Server], *, longer_than_drain: float, per_second: float
) -> Figures:
    """Restart one node after another under load: nothing is lost, and no crash or retry is counted."""
    figures = Figures()
    slots = create_every_second(cluster, 3, overlap="allow")
    with Load(cluster, per_second=per_second, seconds=0.5) as load:
        long = create_long(cluster, 10, longer_than_drain)
        eventually(lambda: len([s for s in cluster.effects.starts() if s.job in set(long)]) == 10, "they run", within=5)
        for server in nodes:
            figures.recoveries.append(server.stop(within=30))
            cluster.ready(replace(cluster, server))
            assert "Traceback" not in server.output(), server.tail()
    figures.refused = load.refused
    judge(cluster, long + load.accepted, slots, figures, within=RECOVERY_SECONDS)
    assert figures.crashed == 0, "a restart in order counted as a crash"
    return figures
