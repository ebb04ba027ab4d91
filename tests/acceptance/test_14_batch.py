"""Issue 3, line 4: 10,000 jobs in one request, 100 of them invalid."""

import pytest

from tests.acceptance.conftest import ReportFigure
from tests.system import batches
from tests.system.fixtures import OpenCluster

pytestmark = pytest.mark.acceptance

WITHIN_SECONDS = 2.0


def test_10_000_jobs_in_one_call_take_less_than_2_s(
    new_cluster: OpenCluster, kind: str, report_figure: ReportFigure
) -> None:
    cluster = new_cluster(kind)
    cluster.node()
    seconds = [batches.check_batch(cluster, jobs=10_000, wrong=100, lines=lines) for lines in (False, True, False)]
    report_figure(", ".join(f"{one:.2f} s" for one in seconds))
    if kind == "postgres":
        assert max(seconds) < WITHIN_SECONDS, seconds
