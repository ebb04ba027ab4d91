"""The cloud on real servers: every combination, and campaigns of faults against two of them."""

from pathlib import Path

import pytest

from tests.acceptance.conftest import ReportFigure
from tests.system.cloud_campaign import REAL, as_often_as_promised, run_cloud_campaign
from tests.system.combinations import COMBINATIONS, Combination
from tests.system.combinations import REAL as REAL_SERVERS
from tests.system.fixtures import QUICK, open_combination
from tests.system.scenario import run_scenario

pytestmark = pytest.mark.acceptance

ON_SERVERS = [each for each in COMBINATIONS if (each.store, each.queue, each.blobs) != ("sqlite", "store", "store")]


@pytest.mark.parametrize("combination", ON_SERVERS, ids=str)
def test_a_combination_keeps_every_promise_on_the_real_servers(combination: Combination, tmp_path: Path) -> None:
    with open_combination(combination, tmp_path, REAL_SERVERS, **QUICK) as cluster:
        cluster.patience = 10.0  # of bounds of milliseconds: what is shown here is that nothing is lost or doubled
        run_scenario(cluster)


@pytest.mark.parametrize("cloud", REAL)
def test_a_queue_in_front_of_a_store_loses_nothing_whatever_happens(
    cloud: str, tmp_path: Path, report_figure: ReportFigure
) -> None:
    result = run_cloud_campaign(
        REAL[cloud], tmp_path, seconds=60, times=as_often_as_promised, HORAE_DRAIN_SECONDS="3", report=print
    )
    report_figure(result)
    assert not result.wrong, "\n".join(result.wrong[:10])
