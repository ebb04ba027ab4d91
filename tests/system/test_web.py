"""A web application with embedded nodes at a small size: two processes on SQLite."""

from tests.system import embedded
from tests.system.fixtures import OpenCluster


def test_a_web_application_with_two_processes_runs_each_job_once(new_cluster: OpenCluster) -> None:
    cluster = new_cluster("sqlite", HORAE_DRAIN_SECONDS="2")
    web = embedded.serve_web(cluster, processes=2)
    embedded.check_once_a_second(cluster, seconds=5)
    embedded.check_requests_submit(cluster, web, times=5)
    embedded.check_ends_in_order(cluster, web, within=20)
    cluster.check()
