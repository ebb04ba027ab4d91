"""Line 3: retries wait for their delays, end, and count timeouts."""

import pytest

from tests.acceptance.conftest import ReportFigure
from tests.system import retrying
from tests.system.cluster import Cluster

pytestmark = pytest.mark.acceptance


def test_a_failing_run_succeeds_on_attempt_3_after_exactly_its_delays(
    one_node: Cluster, report_figure: ReportFigure
) -> None:
    late = retrying.check_exact_delays(one_node, initial=1)
    report_figure(f"attempts began {', '.join(f'{value * 1000:.1f}' for value in late)} ms late")
    retrying.check_handlers_see_the_delays(one_node, initial=1)


def test_jitter_makes_delays_up_to_a_quarter_longer(one_node: Cluster, report_figure: ReportFigure) -> None:
    added = retrying.check_jitter(one_node, initial=1, times=50)
    report_figure(f"{min(added):.1%} to {max(added):.1%} longer")


def test_a_run_that_fails_without_end_is_given_up(one_node: Cluster) -> None:
    retrying.check_giving_up(one_node)


def test_a_timeout_counts_as_a_failed_attempt(one_node: Cluster) -> None:
    retrying.check_timeouts(one_node)
