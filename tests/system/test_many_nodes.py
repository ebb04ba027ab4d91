"""Several processes on one store: they share the work, keep the order, and outlive each other."""

from tests.system import chaos, control, on_time
from tests.system.fixtures import QUICK, OpenCluster
from tests.system.rest import run_of


def test_a_planner_and_a_worker_in_two_processes_work_together(kind: str, new_cluster: OpenCluster) -> None:
    cluster = new_cluster(kind)
    front, back = cluster.node("api,planner", wait=False), cluster.node("worker", wait=False)
    cluster.ready(front, back)
    on_time.check_jobs_for_now(cluster, times=3)
    on_time.check_every_second(cluster, seconds=2)
    control.check_cancel_before_start(cluster)
    assert {start.pid for start in cluster.effects.starts()} == {back.pid}


def test_runs_of_one_ordering_key_keep_their_order_on_three_workers(kind: str, new_cluster: OpenCluster) -> None:
    cluster = new_cluster(kind)
    chaos.start_fleet(cluster, workers=3, planners=1, apis=1, concurrency=2)
    assert control.check_order(cluster, keys=6, runs=6) > 1, "one worker did everything"


def test_killed_nodes_cost_nothing_but_a_moment(kind: str, new_cluster: OpenCluster) -> None:
    cluster = new_cluster(kind, **QUICK)
    chaos.start_fleet(cluster, workers=2, planners=2, apis=2)
    chaos.check_kills(cluster, rounds=1, running=10, seconds=3, recurring=2, per_second=10)


def test_a_frozen_worker_starts_nothing_stale_and_its_late_results_are_void(
    kind: str, new_cluster: OpenCluster
) -> None:
    cluster = new_cluster(kind, **QUICK)
    chaos.start_fleet(cluster, workers=2, planners=1, apis=1)
    chaos.check_freeze(cluster, seconds=4, running=5, per_second=10)


def test_a_rolling_restart_loses_and_burns_nothing(kind: str, new_cluster: OpenCluster) -> None:
    cluster = new_cluster(kind, HORAE_DRAIN_SECONDS="1")
    cluster.ready(*[cluster.node(wait=False) for _ in range(2)])
    chaos.check_rolling_restart(cluster, longer_than_drain=3, per_second=10)


def test_a_job_survives_the_end_of_every_node(kind: str, new_cluster: OpenCluster) -> None:
    cluster = new_cluster(kind, **QUICK)
    first = cluster.node()
    job_id = cluster.rest.create("effects.work", {"seconds": 1})["id"]
    cluster.rest.wait(run_of(job_id), "running", within=5)
    first.kill()
    cluster.node()
    run = cluster.rest.wait(run_of(job_id), within=15)
    assert (run["status"], run["attempt"], run["crashes"]) == ("succeeded", 1, 1), run
    assert [attempt["outcome"] for attempt in run["attempts"]] == ["lost", "succeeded"], run
