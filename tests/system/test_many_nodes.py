"""Several processes on one store: they share the work, keep the order, and outlive each other."""

import time

import pytest

from tests.system import chaos, control
from tests.system.cluster import Cluster
from tests.system.fixtures import QUICK, OpenCluster
from tests.system.rest import run_of
from tests.system.waiting import eventually

pytestmark = pytest.mark.timeout if False else []


def test_a_planner_and_a_worker_in_two_processes_work_together(kind: str, new_cluster: OpenCluster) -> None:
    cluster = new_cluster(kind)
    front = cluster.node("api,planner", wait=False)
    back = cluster.node("worker", wait=False)
    cluster.ready(front, back)
    job_id = cluster.rest.create("effects.work")["id"]
    answered_at = cluster.rest.answered_at
    cluster.rest.wait(run_of(job_id), "succeeded", within=5)
    [start] = cluster.effects.starts(job_id)
    assert start.at - answered_at <= 0.1, f"{(start.at - answered_at) * 1000:.1f} ms after the answer"
    assert start.pid == back.pid
    control.check_cancel_while_running(cluster)
