"""Line 1: a clean clone runs jobs with one command; it is cheap when idle, stops at once, and goes on later."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.acceptance.conftest import ReportFigure
from tests.live import environment, free_port
from tests.system import single_process
from tests.system.cluster import REPOSITORY, Cluster, Server
from tests.system.fixtures import OpenCluster

pytestmark = pytest.mark.acceptance

ALL = frozenset({"api", "planner", "worker"})
BUILD_SECONDS = 300.0


def make_dev(cluster: Cluster, clone: Path, name: str) -> Server:
    """`make dev` as a user types it; only the port is not the usual one, which may be in use."""
    port = free_port()
    log = cluster.folder / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["make", "dev"],
            cwd=clone,
            env=_newcomers_environment() | {"HORAE_PORT": str(port)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    server = Server(name=name, process=process, log=log, roles=ALL, url=f"http://127.0.0.1:{port}")
    cluster.servers.append(server)
    cluster.ready(server, within=BUILD_SECONDS)
    return server


def _newcomers_environment() -> dict[str, str]:
    """The environment variables without those of a virtual environment."""
    known = environment()
    ours = str(REPOSITORY / ".venv" / "bin")
    path = os.pathsep.join(part for part in known["PATH"].split(os.pathsep) if part != ours)
    dropped = ("VIRTUAL_ENV", "PYTHONPATH", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    return {name: value for name, value in known.items() if name not in dropped} | {"PATH": path}


def test_a_clean_clone_and_make_dev(tmp_path: Path, report_figure: ReportFigure) -> None:
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(REPOSITORY), str(clone)], check=True)
    try:
        with Cluster(tmp_path, "sqlite:///.horae/horae.db") as cluster:
            began = time.monotonic()
            first = make_dev(cluster, clone, "first")
            report_figure(f"ready after {time.monotonic() - began:.1f} s, all packages installed")
            hello = single_process.check_demo_jobs_run(cluster.rest, within=15)
            report_figure(single_process.check_costs_little(first, cluster.rest, seconds=20))
            long_run = single_process.start_long_run(cluster.rest)
            report_figure(f"Ctrl-C took {single_process.check_ends_at_once(first, signal.SIGINT, code=None):.2f} s")
            make_dev(cluster, clone, "second")
            single_process.check_goes_on(cluster.rest, hello, long_run, slot_seconds=5)
    finally:
        shutil.rmtree(clone)  # with its virtual environment it is too large to be kept


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve_on_postgresql(new_cluster: OpenCluster, report_figure: ReportFigure, number: signal.Signals) -> None:
    cluster = new_cluster("postgres", HORAE_DRAIN_SECONDS="2")
    first = cluster.node()
    job_id = cluster.rest.create("demo.echo", schedule="every 5s")["id"]
    report_figure(single_process.check_costs_little(first, cluster.rest, seconds=20))
    long_run = single_process.start_long_run(cluster.rest)
    report_figure(f"{number.name} took {single_process.check_ends_at_once(first, number):.2f} s")
    cluster.node()
    single_process.check_goes_on(cluster.rest, job_id, long_run, slot_seconds=5)
