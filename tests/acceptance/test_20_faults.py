"""Issue 5, part 3: the cost of each kind of fault for real processes, and that it took effect.

`make soak` mixes them for minutes under a heavier load.
"""

import random
import sqlite3
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx2
import pytest

from tests.acceptance.conftest import ReportFigure
from tests.live import HORAE
from tests.system import fault_campaign, faults
from tests.system.chaos import Figures, Load, create_every_second, judge
from tests.system.cluster import Cluster
from tests.system.disk import small_disk
from tests.system.failover import Failover, PrimaryDies, PrimaryFallsSilent, open_pair
from tests.system.faults import Fault
from tests.system.fixtures import OpenCluster
from tests.system.fleet import Fleet, open_fleet
from tests.system.postgres import OwnPostgres
from tests.system.waiting import eventually, let_pass

pytestmark = pytest.mark.acceptance

Kind = Callable[[Fleet, random.Random], Fault]

GROUPS: dict[str, Sequence[Kind]] = {
    "links": (faults.Delay, faults.Throttle, faults.HalfOpen, faults.Reset),
    "commits": (faults.CutBefore, faults.CutAfter),
    "processes": (faults.KillApi, faults.KillPlanner, faults.KillWorker, faults.Freeze, faults.Restart),
    "clocks": (faults.JumpAhead, faults.JumpBack),
    "store": (faults.StoreRestart, faults.Storm),
}
STORE_SECONDS = 10.0
SILENT_SECONDS = 30.0  # nodes have to find out by themselves, one command after the other
TIMING = {"HORAE_HEARTBEAT_SECONDS": "1", "HORAE_DEAD_AFTER_SECONDS": "6", "HORAE_HORIZON_SECONDS": "8"}
WORKER_SECONDS = 30.0


@pytest.mark.parametrize("group", GROUPS)
def test_a_fault_costs_nothing_but_a_moment(group: str, tmp_path: Path, report_figure: ReportFigure) -> None:
    verdict = fault_campaign.run_campaign(
        tmp_path, seconds=5, seed=5, per_second=60, recurring=2, kinds=GROUPS[group], times=2
    )
    report_figure(verdict)
    assert not verdict.wrong, "\n".join(verdict.wrong[:10])
    assert min(verdict.fired.values()) >= 2
    assert max(verdict.store_recovery, default=0) <= STORE_SECONDS
    assert max(verdict.worker_recovery, default=0) <= WORKER_SECONDS


@pytest.mark.parametrize("kind", [faults.KillApi, faults.KillPlanner, faults.KillWorker])
def test_a_node_may_die_at_any_point(kind: type[faults.Kill], tmp_path: Path, report_figure: ReportFigure) -> None:
    """Before a write reaches the store, before but it arrives later, and after it without an answer."""
    points = 3 * len(faults.CRASH_POINTS[kind.role])
    verdict = fault_campaign.run_campaign(
        tmp_path, seconds=5, seed=7, per_second=60, recurring=2, kinds=[kind], times=points, **TIMING
    )
    report_figure(verdict)
    assert not verdict.wrong, "\n".join(verdict.wrong[:10])
    assert verdict.fired[kind.name] >= points


@pytest.mark.parametrize(
    ("kind", "within"), [(PrimaryDies, STORE_SECONDS), (PrimaryFallsSilent, SILENT_SECONDS)], ids=["dies", "silent"]
)
def test_a_standby_that_is_promoted_under_load_has_everything(
    kind: type[Failover], within: float, tmp_path: Path, report_figure: ReportFigure
) -> None:
    """Twice, so that the first server is the primary again; nodes know both and are not restarted."""
    verdict = fault_campaign.run_campaign(
        tmp_path, seconds=5, seed=8, per_second=60, recurring=2, kinds=[kind], times=2, opened=open_pair
    )
    report_figure(verdict)
    assert not verdict.wrong, "\n".join(verdict.wrong[:10])
    assert verdict.fired[kind.name] >= 2
    assert verdict.accepted > 300
    assert max(verdict.store_recovery) <= within


def test_clocks_that_were_wrong_from_the_start_change_nothing(tmp_path: Path, report_figure: ReportFigure) -> None:
    figures = Figures()
    with open_fleet(tmp_path, ()) as fleet:
        for role, hours in (("api", 1), ("planner", -1), ("worker", 1), ("worker", -1)):
            fleet.start(role, wrong_by=hours * 3600)
        slots = create_every_second(fleet.cluster, 3, overlap="allow")
        with Load(fleet.cluster, per_second=20) as load:
            let_pass(10)
        for member in fleet.members:
            assert "wall_clock_wrong" in member.server.output(), member.server.tail()
        assert 3590 < _wall_offset(fleet) < 3610
        fleet.of("api")[0].clock.jump(0)
        eventually(lambda: abs(_wall_offset(fleet)) < 10, "the metric tells that the clock is right", within=15)
        assert "ahead of the store's; jobs follow" in _doctor(fleet)
        judge(fleet.cluster, load.accepted, slots, figures, within=30)
        early = [note for note in fleet.cluster.effects.starts() if note.lateness < -0.001]
    report_figure(figures)
    assert not early
    assert load.refused == 0
    assert len(load.accepted) > 100


def test_a_silent_link_makes_nobody_wait_for_ever(tmp_path: Path, report_figure: ReportFigure) -> None:
    """With a half-open link a request ends with 503 in time, /readyz fails, and afterwards all recovers."""
    with open_fleet(tmp_path, ("api", "planner", "worker")) as fleet:
        api = fleet.of("api")[0]
        for member in fleet.members:
            member.link.silent = True
        waited = []
        for _ in range(2):
            began = time.monotonic()
            answer = httpx2.post(
                f"{api.server.url}/v1/jobs", json={"task": "effects.work"}, timeout=60, trust_env=False
            )
            assert answer.status_code == 503, answer.text
            waited.append(time.monotonic() - began)
        assert httpx2.get(f"{api.server.url}/readyz", timeout=60, trust_env=False).status_code == 503
        for member in fleet.members:
            assert member.link.fired["half-open"] > 0
            member.link.heal()
        healed_at = time.monotonic()

        def runs() -> bool:
            try:
                job = httpx2.post(
                    f"{api.server.url}/v1/jobs", json={"task": "effects.work"}, timeout=60, trust_env=False
                )
            except httpx2.TransportError:
                return False
            return job.status_code == 201 and bool(fleet.cluster.rest.wait(_run_of(job), within=20))

        eventually(runs, "a job is accepted and runs", within=20)
        report_figure(
            f"503 after {max(waited):.1f} s, at work again {time.monotonic() - healed_at:.1f} s after the healing"
        )
    assert max(waited) <= 25


def test_logs_are_bounded_while_the_store_is_down(tmp_path: Path, report_figure: ReportFigure) -> None:
    with open_fleet(tmp_path, fault_campaign.ROLES) as fleet:
        before = {server: len(server.output().splitlines()) for server in fleet.cluster.servers}
        fleet.postgres.stop_at_once()
        with Load(fleet.cluster, per_second=100) as load:
            let_pass(20)
        fleet.postgres.start()
        back_at = time.monotonic()
        eventually(lambda: _is_ready(fleet), "the API is ready again", within=STORE_SECONDS)
        took = time.monotonic() - back_at
        lines = {server.name: len(server.output().splitlines()) - before[server] for server in fleet.cluster.servers}
    report_figure(
        f"lines in 20 s with the store down and {load.refused} requests: {lines}; ready again after {took:.1f} s"
    )
    assert load.refused > 200
    assert not load.accepted
    assert max(lines.values()) <= 60


# --- SQLite


def test_sqlite_locked_by_another_process_costs_nothing_but_a_moment(
    new_cluster: OpenCluster, report_figure: ReportFigure
) -> None:
    cluster = new_cluster("sqlite")
    cluster.node()
    slots = create_every_second(cluster, 2, overlap="allow")
    figures = Figures()
    with Load(cluster, per_second=20) as load:
        let_pass(2)
        other = sqlite3.connect(cluster.store.removeprefix("sqlite:///"), isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        accepted = len(load.accepted)
        let_pass(12)
        held_back = len(load.accepted) - accepted
        other.execute("ROLLBACK")
        other.close()
        eventually(lambda: len(load.accepted) > accepted + held_back, "jobs are accepted again", within=STORE_SECONDS)
        let_pass(3)
    figures.refused = load.refused
    judge(cluster, load.accepted, slots, figures, within=30)
    report_figure(figures)
    assert held_back <= 1
    assert load.refused > 0


def test_a_full_disk_under_sqlite_is_told_and_loses_nothing(tmp_path: Path, report_figure: ReportFigure) -> None:
    with small_disk(24) as disk:
        (folder := tmp_path / "cluster").mkdir()
        with Cluster(folder, f"sqlite:///{disk.folder / 'horae.db'}") as cluster:
            cluster.migrate()
            cluster.node()
            report_figure(_through_full_disk(cluster, disk.fill, disk.free))
        cluster.check()


def test_a_full_disk_under_postgres_is_told_and_loses_nothing(tmp_path: Path, report_figure: ReportFigure) -> None:
    settings = "min_wal_size = 32MB\nmax_wal_size = 48MB\nwal_recycle = off\nwal_init_zero = off\n"
    with (
        small_disk(160) as disk,
        OwnPostgres(disk=disk.folder, settings=settings) as postgres,
        Cluster(tmp_path, postgres.url) as cluster,
    ):
        cluster.migrate()
        cluster.node()

        def free() -> None:
            disk.free()
            if not postgres.alive:  # without room for its log it gives up, and whoever runs it starts it again
                postgres.start()

        report_figure(_through_full_disk(cluster, disk.fill, free))
        cluster.check()


def _through_full_disk(cluster: Cluster, fill: Callable[[], int], free: Callable[[], None]) -> Figures:
    slots = create_every_second(cluster, 2, overlap="allow")
    figures = Figures()
    large = "x" * 20_000
    with Load(cluster, per_second=20) as load:
        let_pass(2)
        fill()
        refused = 0

        def is_refused() -> bool:
            """Whether a large write is refused; small ones may fit into half-empty pages."""
            nonlocal refused
            body = {"task": "effects.params", "params": {"value": large}, "schedule": "2099-01-01T00:00:00Z"}
            try:
                answer = httpx2.post(f"{cluster.of_role('api')[0].url}/v1/jobs", json=body, timeout=30, trust_env=False)
            except httpx2.TransportError:
                return False
            refused += answer.status_code in (503, 507)
            assert answer.status_code in (201, 503, 507), answer.text
            return refused >= 3

        eventually(is_refused, "a job that finds no room is refused", within=30)
        let_pass(3)
        assert cluster.of_role("api"), f"the node died\n{cluster.story()}"
        free()
        accepted = len(load.accepted)
        eventually(lambda: len(load.accepted) > accepted + 20, "jobs are accepted again", within=20)
        let_pass(2)
    figures.refused = load.refused + refused
    judge(cluster, load.accepted, slots, figures, within=60)
    return figures


def _wall_offset(fleet: Fleet) -> float:
    """The clock offset that the API node reports."""
    text = httpx2.get(f"{fleet.of('api')[0].server.url}/metrics", timeout=30, trust_env=False).text
    [line] = [line for line in text.splitlines() if line.startswith("horae_wall_clock_offset_seconds ")]
    return float(line.split()[1])


def _doctor(fleet: Fleet) -> str:
    """Run `horae doctor` while the clock of a worker is an hour ahead."""
    settings = dict(fleet.of("worker")[0].server.settings)
    done = subprocess.run(
        [HORAE, "doctor"], env=fleet.cluster.environment | settings, capture_output=True, text=True, check=False
    )
    return " ".join((done.stdout + done.stderr).split())


def _is_ready(fleet: Fleet) -> bool:
    url = fleet.of("api")[0].server.url
    return bool(httpx2.get(f"{url}/readyz", timeout=30, trust_env=False).is_success)


def _run_of(answer: httpx2.Response) -> str:
    return str(answer.json()["id"]).replace("job_", "run_", 1)
