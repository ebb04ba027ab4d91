"""PostgreSQL with Redis in front: on time at 5,000 jobs a second, as quick as the store, and bounded by the store."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from horae.adapters import make_queue
from horae.core.ids import Ids
from horae.core.model import RunId
from horae.core.tickets import Ticket
from horae.ports.queue import Queue
from tests.acceptance.conftest import ReportFigure
from tests.engines.servers import fresh_valkey, own_name
from tests.live import environment
from tests.postgres_server import postgres_url

pytestmark = pytest.mark.acceptance

RATE, SECONDS = 5_000, 60
LATE_MS = 25
SHARE = 0.7  # of the throughput without a queue
TICKETS = 100_000
NOW = datetime.now(UTC)


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    with fresh_valkey() as server:
        yield f"{server.url}/0"


def bench(queue: str, folder: Path, *options: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "horae", "bench", "--store", postgres_url(), "--queue", queue, *options]
    done = subprocess.run(
        [*command, "-o", "json"], cwd=folder, env=environment() | dict(os.environ), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr + done.stdout
    report: dict[str, Any] = json.loads(done.stdout)
    assert (report["lost"], report["duplicated"], report["early"]) == (0, 0, 0)
    return report


def test_5000_jobs_a_second_start_on_time_by_tickets(
    redis_url: str, tmp_path: Path, report_figure: ReportFigure
) -> None:
    report = bench(redis_url, tmp_path, "--mode", "timed", "--rate", str(RATE), "--seconds", str(SECONDS))
    late = report["lateness_ms"]
    report_figure(f"p50 {late['p50']} ms, p99 {late['p99']} ms, {report['cpu_s_per_1000']} s of CPU per 1,000 jobs")
    assert report["completed"] == RATE * SECONDS
    assert late["p99"] <= LATE_MS


def test_as_many_jobs_are_done_as_without_a_queue_but_for_a_third(
    redis_url: str, tmp_path: Path, report_figure: ReportFigure
) -> None:
    """In turn, because other work on the machine comes and goes."""
    rates: dict[str, list[float]] = {"store": [], redis_url: []}
    for _ in range(3):
        for queue, found in rates.items():
            found.append(bench(queue, tmp_path, "--mode", "now", "--seconds", "8")["completed_per_s"])
    without, with_redis = (sorted(found)[1] for found in rates.values())
    report_figure(f"{with_redis:,.0f} a second, {without:,.0f} without a queue")
    assert with_redis >= SHARE * without


@pytest.mark.parametrize("owners", [1, 1_000])
async def test_redis_hands_out_100_000_tickets_faster_than_a_store_claims_them(
    redis_url: str, owners: int, report_figure: ReportFigure
) -> None:
    queue = make_queue(f"{redis_url}?prefix={own_name()}")
    assert queue is not None
    await queue.open()
    new_id = Ids()
    tickets = [
        Ticket(run_id=RunId(new_id()), task="t", queue="q", priority=0, owner=f"o{n % owners}", wake_at=NOW)
        for n in range(TICKETS)
    ]
    began = time.monotonic()
    await queue.offer(tickets, now=NOW)
    offered = time.monotonic()
    assert sum(await asyncio.gather(*(_drain(queue) for _ in range(2)))) == TICKETS
    drained = time.monotonic()
    await queue.close()
    report_figure(
        f"{TICKETS / (offered - began):,.0f} offered, {TICKETS / (drained - offered):,.0f} taken and finished a second"
    )
    assert TICKETS / (drained - offered) >= 20_000


async def _drain(queue: Queue) -> int:
    count = 0
    while taken := await queue.take(
        queues=(), without=(), tasks=("t",), now=NOW, until=NOW, limit=1000, wait=timedelta()
    ):
        count += len(taken)
        await queue.done(taken)
    return count
