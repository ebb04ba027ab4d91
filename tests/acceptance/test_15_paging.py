"""Issue 3, line 5: paging through 100,000 runs while new ones arrive."""

from pathlib import Path

import pytest

from tests.acceptance.conftest import ReportFigure
from tests.system import paging, scale
from tests.system.cluster import Cluster
from tests.system.fixtures import scratch_store

pytestmark = pytest.mark.acceptance

RUNS = 100_000


async def test_each_run_comes_once_and_every_page_takes_as_long(
    kind: str, tmp_path: Path, report_figure: ReportFigure
) -> None:
    async with scratch_store(kind, tmp_path) as address:
        async with scale.sized(kind, address, RUNS // 2):  # that wait, and as many that have ended
            pass
        with Cluster(tmp_path, address) as cluster:
            cluster.node()
            report_figure(paging.check_paging(cluster, runs=RUNS, limit=100))
            report_figure(paging.check_paging(cluster, runs=RUNS, limit=1000))
