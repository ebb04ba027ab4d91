"""Runs one benchmark, from the scratch store to the report."""

import asyncio
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from horae.config import Settings, without_password
from horae.ports.store import Store
from horae.proof.bench.costs import Meter
from horae.proof.bench.figures import StartTally, tally
from horae.proof.bench.load import CronLoad, HerdLoad, JobWriter, Load, make_load
from horae.proof.bench.options import BenchOptions, Mode
from horae.proof.bench.processes import CONCURRENCY, NodeProcesses, started_nodes
from horae.proof.bench.progress import LoadMonitor, OnProgress
from horae.proof.bench.report import BenchResult, Report, report_of
from horae.proof.bench.requests import SETTLED, is_counted
from horae.proof.bench.scratch import local_postmaster, scratch_queue, scratch_store, vacuum_backlog
from horae.proof.bench.start_recorder import count_starts, read_starts
from horae.proof.bench.tasks import app, warm_up
from horae.proof.bench.verify import SlotCounts, Verification, no_live_runs
from horae.proof.checking import Tolerance
from horae.sdk.connection import Connection
from horae.sdk.open_store import opened_connection

WARM_UP_JOBS = 1_000  # per worker
MINUTES_FROM = 120  # seconds of a timed load above which each minute gets figures
CLOCK_READINGS = 20
ONE_WORKER = 10_000  # jobs per second that one process runs on time


async def run_bench(settings: Settings, options: BenchOptions, on_progress: OnProgress) -> Report:
    """Run a benchmark in a scratch store beside the one of the settings, and remove it afterwards."""
    workers = options.processes or _workers_for(options)
    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(scratch_store(settings.store))
        queue = await stack.enter_async_context(scratch_queue(settings.queue))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="horae-bench-")))
        scratch = replace(settings, store=address, queue=queue)
        connection = await stack.enter_async_context(opened_connection(scratch, app.registry))
        stack.enter_context(app.bind(connection))
        writer = JobWriter(connection)
        backlog_seconds = await _store_backlog(writer, options.backlog, address, on_progress)
        on_progress("starting", 0, None)
        environment = {"HORAE_STORE": address, "HORAE_QUEUE": queue}
        nodes = stack.enter_context(started_nodes(environment, folder, workers=workers))
        await nodes.until_ready(connection.store)
        await _warm_up(writer, connection, nodes, workers)
        postmaster = await local_postmaster(address)
        ahead_us = 0 if postmaster else await _clock_ahead_us(connection.store, address)
        meter = Meter(nodes, folder, postmaster=postmaster)
        usage_known_after = SETTLED if is_counted(address, queue) else 0.0

        load = make_load(options, writer, lambda: count_starts(folder))
        await asyncio.sleep(usage_known_after)
        before = meter.read()
        times = await LoadMonitor(load, connection, nodes, folder, on_progress).run()
        await asyncio.sleep(usage_known_after)
        after, rss_mb = meter.read(), meter.peak_rss_mb()
        nodes.stop()

        recorded = _tally(load, options, folder, ahead_us)
        slots, problems = await _verify(load, recorded, connection, scratch, on_progress)
        return report_of(
            BenchResult(
                options=options,
                store=without_password(settings.store),
                queue=without_password(settings.queue),
                processes=workers,
                concurrency=CONCURRENCY,
                load=load,
                tally=recorded,
                times=times,
                before=before,
                after=after,
                rss_mb=rss_mb,
                backlog_seconds=backlog_seconds,
                slots=slots,
                problems=problems,
            )
        )


def _workers_for(options: BenchOptions) -> int:
    """Two workers complete more on two cores; at a lower rate one is more punctual and costs less."""
    return 2 if options.mode in (Mode.NOW, Mode.HERD) or (options.rate or 0) > ONE_WORKER else 1


async def _store_backlog(writer: JobWriter, count: int, address: str, on_progress: OnProgress) -> float | None:
    """Store the backlog, and return how many seconds that took."""
    if not count:
        return None
    began_at = time.monotonic()
    await writer.store_backlog(count, lambda stored: on_progress("storing the backlog", stored, count))
    seconds = time.monotonic() - began_at
    await vacuum_backlog(address)
    return seconds


async def _warm_up(writer: JobWriter, connection: Connection, nodes: NodeProcesses, workers: int) -> None:
    """Run some jobs that are not measured, so that caches and connections are warm."""
    await warm_up.submit_many([{}] * (WARM_UP_JOBS * workers))
    while not await no_live_runs(connection.store, warm_up.name, before=writer.now() + timedelta(seconds=1)):
        nodes.check()
        await asyncio.sleep(0.02)


async def _clock_ahead_us(store: Store, address: str) -> int:
    """How far the clock of a remote store is ahead of this machine, by the fastest of some answers."""
    if not address.startswith(("postgres:", "postgresql:")):
        return 0  # it has no other clock than this machine's
    readings: list[tuple[timedelta, timedelta]] = []
    for _ in range(CLOCK_READINGS):
        asked_at = datetime.now(UTC)
        store_time = await store.time()
        answered_at = datetime.now(UTC)
        readings.append((answered_at - asked_at, store_time - (asked_at + (answered_at - asked_at) / 2)))
    return min(readings)[1] // timedelta(microseconds=1)


def _tally(load: Load, options: BenchOptions, folder: Path, ahead_us: int) -> StartTally:
    seconds = options.seconds or 0
    return tally(
        read_starts(folder),
        load,
        ahead_us=ahead_us,
        bystanders_from=load.jobs if isinstance(load, HerdLoad) else None,
        minutes=seconds // 60 if seconds > MINUTES_FROM and options.mode is Mode.TIMED else 0,
    )


async def _verify(
    load: Load, recorded: StartTally, connection: Connection, settings: Settings, on_progress: OnProgress
) -> tuple[SlotCounts | None, list[str]]:
    """Compare the recorded starts with the store; return the slots and the problems found."""
    tolerance = Tolerance(lead=settings.lead_seconds)
    verification = Verification(connection.store, now=connection.clock.now(), tolerance=tolerance)
    slots: SlotCounts | None = None
    if isinstance(load, CronLoad):
        slots = await verification.slots(load, lambda read: on_progress("verifying", read, load.rate))
        ran = slots.run
    else:
        ran = await verification.once_each(load.submitted, lambda read: on_progress("verifying", read, load.submitted))
    problem = f"handlers recorded the starts of {recorded.completed} jobs, and the store has {ran} that succeeded"
    verification.expect(recorded.completed == ran, problem)
    return slots, verification.problems
