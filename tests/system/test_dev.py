"""`horae dev` as newcomers run it, and `horae serve` on another store."""

import signal
from pathlib import Path

from tests.system import single_process
from tests.system.cluster import Cluster, Server
from tests.system.fixtures import OpenCluster

ALL = frozenset({"api", "planner", "worker"})


def start_dev(cluster: Cluster) -> Server:
    server = cluster.spawn("dev", ["dev"], roles=ALL)
    cluster.ready(server)
    return server


def test_dev_runs_demo_jobs_costs_little_ends_at_once_and_goes_on_where_it_was(tmp_path: Path) -> None:
    with Cluster(tmp_path, "sqlite:///.horae/horae.db") as cluster:
        first = start_dev(cluster)
        hello = single_process.check_demo_jobs_run(cluster.rest, within=10)
        single_process.check_costs_little(first, cluster.rest, seconds=2)
        long_run = single_process.start_long_run(cluster.rest)
        single_process.check_ends_at_once(first, signal.SIGINT)
        start_dev(cluster)
        single_process.check_goes_on(cluster.rest, hello, long_run, slot_seconds=5)


def test_serve_ends_at_once_and_goes_on_where_it_was(kind: str, new_cluster: OpenCluster) -> None:
    cluster = new_cluster(kind)
    first = cluster.node()
    job_id = cluster.rest.create("demo.echo", schedule="every 1s")["id"]
    single_process.check_costs_little(first, cluster.rest, seconds=1)
    single_process.check_ends_at_once(first, signal.SIGINT)
    cluster.node()
    assert cluster.rest.job(job_id)["status"] == "scheduled"
