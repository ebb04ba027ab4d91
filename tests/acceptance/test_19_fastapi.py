"""Issue 3, line 9: a FastAPI application with four server processes, each with an embedded planner and worker."""

import pytest

from tests.acceptance.conftest import ReportFigure
from tests.system import embedded
from tests.system.fixtures import OpenCluster

pytestmark = pytest.mark.acceptance


def test_a_per_second_job_runs_once_a_second_for_a_minute(
    new_cluster: OpenCluster, kind: str, report_figure: ReportFigure
) -> None:
    cluster = new_cluster(kind)
    web = embedded.serve_web(cluster, processes=4)
    report_figure(embedded.check_once_a_second(cluster, seconds=60))
    embedded.check_requests_submit(cluster, web, times=50)
    report_figure(f"ended {embedded.check_ends_in_order(cluster, web, within=40):.1f} s after SIGTERM")
    cluster.check()
