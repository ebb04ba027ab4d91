"""Line 2: jobs start on time, by the clocks of the handlers."""

import pytest

from tests.acceptance.conftest import ReportFigure
from tests.system import on_time
from tests.system.cluster import Cluster

pytestmark = pytest.mark.acceptance


def percentiles(values: list[float]) -> str:
    p50, p99 = (on_time.percentile(values, percent) * 1000 for percent in (50, 99))
    return (
        f"min {min(values) * 1000:.2f}, p50 {p50:.2f}, p99 {p99:.2f}, max {max(values) * 1000:.2f} ms of {len(values)}"
    )


def test_a_job_for_now_starts_within_100_ms_of_the_answer(one_node: Cluster, report_figure: ReportFigure) -> None:
    report_figure(percentiles(on_time.check_jobs_for_now(one_node, times=50)))


def test_a_job_due_in_3_s_starts_at_its_instant(one_node: Cluster, report_figure: ReportFigure) -> None:
    report_figure(percentiles(on_time.check_jobs_for_later(one_node, delay=3, times=20)))


def test_every_second_for_20_s_starts_once_and_on_time(one_node: Cluster, report_figure: ReportFigure) -> None:
    report_figure(percentiles(on_time.check_every_second(one_node, seconds=20)))
