"""The cloud on real servers: every combination, campaigns of faults against two of them, and jobs on time."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.conftest import ReportFigure
from tests.engines.aws_client import REGION
from tests.engines.provisioned import fresh_dynamodb_local, fresh_elasticmq
from tests.live import environment
from tests.system.cloud_campaign import REAL, as_often_as_promised, run_cloud_campaign
from tests.system.combinations import COMBINATIONS, Combination
from tests.system.combinations import REAL as REAL_SERVERS
from tests.system.fixtures import QUICK, open_combination
from tests.system.scenario import run_scenario

pytestmark = pytest.mark.acceptance

LATE_MS = 100

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


def test_200_jobs_a_second_start_on_time_on_dynamodb_and_sqs(tmp_path: Path, report_figure: ReportFigure) -> None:
    with fresh_dynamodb_local() as dynamodb, fresh_elasticmq() as sqs:
        command = [sys.executable, "-m", "horae", "bench", "--mode", "timed", "--rate", "200", "--seconds", "60"]
        command += ["--store", f"dynamodb://{REGION}/horae?endpoint={dynamodb.url}"]
        command += ["--queue", f"sqs://{REGION}/horae?endpoint={sqs.url}", "-o", "json"]
        done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    report = json.loads(done.stdout)
    late = report["lateness_ms"]
    report_figure(f"p50 {late['p50']} ms, p99 {late['p99']} ms; {report.get('requests')}")
    assert report["completed"] == 12_000
    assert late["p99"] <= LATE_MS
