"""Several processes on one store: they share the work, keep the order, and survive each other."""

from collections.abc import Iterator

import pytest

from tests.system import chaos, control, on_time
from tests.system.cluster import Cluster
from tests.system.fixtures import QUICK, STORES, open_cluster, patience

ROLES = ("api,planner", "api,planner", "worker", "worker", "worker")


@pytest.fixture(scope="module", params=STORES)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with open_cluster(str(request.param), tmp_path_factory.mktemp("fleet"), **QUICK) as cluster:
        cluster.patience = patience(request)
        yield cluster


@pytest.fixture
def fleet(cluster: Cluster) -> Cluster:
    """Two API and planner nodes and three workers; dead ones are restarted."""
    missing = list(ROLES)
    for server in cluster.servers:
        if server.alive:
            missing.remove(",".join(sorted(server.roles)))
    options = {"worker": ("--concurrency", "15")}
    cluster.ready(*[cluster.node(roles, *options.get(roles, ()), wait=False) for roles in missing])
    return cluster


def test_jobs_start_on_time_in_another_process_than_they_came_from(fleet: Cluster) -> None:
    on_time.check_jobs_for_now(fleet, times=3)
    on_time.check_every_second(fleet, seconds=2)
    assert {start.pid for start in fleet.effects.starts()} <= {worker.pid for worker in fleet.of_role("worker")}


def test_runs_of_one_ordering_key_keep_their_order_on_three_workers(fleet: Cluster) -> None:
    control.check_order(fleet, keys=20, runs=3, seconds=0.02)


def test_killed_nodes_cost_nothing_but_a_moment(fleet: Cluster) -> None:
    chaos.check_kills(fleet, rounds=1, running=10, seconds=3, recurring=2, per_second=10)


def test_a_frozen_worker_starts_nothing_stale_and_its_late_results_are_void(fleet: Cluster) -> None:
    chaos.check_freeze(fleet, seconds=4, running=5, per_second=10)


def test_a_rolling_restart_loses_and_burns_nothing(fleet: Cluster) -> None:
    nodes = [fleet.of_role("worker")[0], fleet.of_role("api")[0]]
    chaos.check_rolling_restart(fleet, nodes, longer_than_drain=2.5, per_second=10)


def test_a_run_survives_the_end_of_every_node(fleet: Cluster) -> None:
    chaos.check_everything_down(fleet)
