"""Line 4: cancel, pause, run-now, patch, overlap and order."""

import pytest

from tests.acceptance.conftest import ReportFigure
from tests.system import chaos, control
from tests.system.cluster import Cluster
from tests.system.fixtures import OpenCluster

pytestmark = pytest.mark.acceptance


def test_a_run_that_is_cancelled_before_its_time_never_starts(one_node: Cluster) -> None:
    for _ in range(3):
        control.check_cancel_before_start(one_node)


def test_a_running_run_is_cancelled_within_2_s_and_leaves_nothing_behind(
    one_node: Cluster, report_figure: ReportFigure
) -> None:
    took = control.check_cancel_while_running(one_node)
    report_figure(", ".join(f"{what} {seconds * 1000:.0f} ms" for what, seconds in took.items()))


def test_a_pause_stops_new_runs_and_missed_decides_about_the_others(one_node: Cluster) -> None:
    control.check_pause_and_resume(one_node, pause=8)


def test_a_job_can_be_run_at_any_time(one_node: Cluster) -> None:
    control.check_run_now(one_node)


def test_a_patched_schedule_moves_the_next_run(one_node: Cluster) -> None:
    control.check_patched_schedule(one_node)


def test_overlap_does_what_it_says(one_node: Cluster) -> None:
    control.check_overlap(one_node, seconds=12)


def test_order_holds_on_three_workers_with_retries(
    kind: str, new_cluster: OpenCluster, report_figure: ReportFigure
) -> None:
    cluster = new_cluster(kind)
    chaos.start_fleet(cluster, workers=3, planners=1, apis=1, concurrency=3)  # so that no worker can do it all
    processes = control.check_order(cluster, keys=8, runs=40, seconds=0.1)
    report_figure(f"320 runs of 8 keys in order on {processes} workers")
    assert processes > 1, "one worker did everything"
