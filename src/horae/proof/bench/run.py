"""One benchmark, from its scratch data to its report."""

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
from horae.proof.bench.figures import Tally, tally
from horae.proof.bench.load import AnyLoad, CronLoad, HerdLoad, Rows, make_load
from horae.proof.bench.options import Mode, Offer
from horae.proof.bench.processes import CONCURRENCY, Nodes, started_nodes
from horae.proof.bench.progress import Following, Tell
from horae.proof.bench.recorder import count_starts, read_starts
from horae.proof.bench.report import Report, Result, report_of
from horae.proof.bench.scratch import local_postmaster, scratch_store, settle_down
from horae.proof.bench.tasks import app, warm_up
from horae.proof.bench.verify import Slots, Verification, is_over
from horae.proof.checking import Tolerance
from horae.sdk.connection import Connection
from horae.sdk.open_store import opened_connection

WARM_UP_JOBS = 1_000  # for each worker
MINUTES_FROM = 120  # seconds: what is timed longer gets figures for each minute
CLOCK_READINGS = 20
ONE_WORKER = 10_000  # jobs a second that one process runs in time


async def run_bench(settings: Settings, offer: Offer, tell: Tell) -> Report:
    """Run a benchmark beside the store of the settings; whatever happens, nothing of it stays."""
    workers = offer.processes or _workers_for(offer)
    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(scratch_store(settings.store))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="horae-bench-")))
        scratch = replace(settings, store=address)
        connection = await stack.enter_async_context(opened_connection(scratch, app.registry))
        rows = Rows(connection)
        backlog_seconds = await _store_backlog(rows, offer.backlog, address, tell)
        tell("starting", 0, None)
        told = {"HORAE_STORE": address, "HORAE_QUEUE": settings.queue}
        nodes = stack.enter_context(started_nodes(told, folder, workers=workers))
        await nodes.until_ready(connection.store)
        await _warm_up(rows, connection, nodes, workers)
        postmaster = await local_postmaster(address)
        ahead_us = 0 if address.startswith("sqlite:") or postmaster else await _clock_ahead_us(connection.store)
        meter = Meter(nodes, postmaster=postmaster)

        load = make_load(offer, rows, lambda: count_starts(folder))
        before = meter.read()
        course = await Following(load, connection, nodes, folder, tell).follow()
        after, rss_mb = meter.read(), meter.peak_rss_mb()
        nodes.stop()

        recorded = _tally(load, offer, folder, ahead_us)
        slots, problems = await _verify(load, recorded, connection, scratch, tell)
        return report_of(
            Result(
                offer=offer,
                store=without_password(settings.store),
                queue=settings.queue,
                processes=workers,
                concurrency=CONCURRENCY,
                load=load,
                tally=recorded,
                course=course,
                before=before,
                after=after,
                rss_mb=rss_mb,
                backlog_seconds=backlog_seconds,
                slots=slots,
                problems=problems,
            )
        )


def _workers_for(offer: Offer) -> int:
    """Two get more done on two cores; while there is time to spare one is more punctual, and costs less."""
    return 2 if offer.mode in (Mode.NOW, Mode.HERD) or (offer.rate or 0) > ONE_WORKER else 1


async def _store_backlog(rows: Rows, count: int, address: str, tell: Tell) -> float | None:
    """Store what waits, and answer how many seconds that took."""
    if not count:
        return None
    began_at = time.monotonic()
    await rows.store_backlog(count, lambda stored: tell("storing the backlog", stored, count))
    seconds = time.monotonic() - began_at
    await settle_down(address)
    return seconds


async def _warm_up(rows: Rows, connection: Connection, nodes: Nodes, workers: int) -> None:
    """Run some jobs that nobody counts, so that no first time is measured."""
    await rows.warm_up(WARM_UP_JOBS * workers)
    while not await is_over(connection.store, warm_up.name, before=rows.now() + timedelta(seconds=1)):
        nodes.check()
        await asyncio.sleep(0.02)


async def _clock_ahead_us(store: Store) -> int:
    """How far the clock of a store elsewhere is ahead of this machine's, by the quickest of a few answers."""
    readings: list[tuple[timedelta, timedelta]] = []
    for _ in range(CLOCK_READINGS):
        asked_at = datetime.now(UTC)
        store_time = await store.time()
        answered_at = datetime.now(UTC)
        readings.append((answered_at - asked_at, store_time - (asked_at + (answered_at - asked_at) / 2)))
    return min(readings)[1] // timedelta(microseconds=1)


def _tally(load: AnyLoad, offer: Offer, folder: Path, ahead_us: int) -> Tally:
    seconds = offer.seconds or 0
    return tally(
        read_starts(folder),
        load,
        ahead_us=ahead_us,
        bystanders_from=load.jobs if isinstance(load, HerdLoad) else None,
        minutes=seconds // 60 if seconds > MINUTES_FROM and offer.mode is Mode.TIMED else 0,
    )


async def _verify(
    load: AnyLoad, recorded: Tally, connection: Connection, settings: Settings, tell: Tell
) -> tuple[Slots | None, list[str]]:
    """What the store says to what was recorded."""
    tolerance = Tolerance(lead=settings.lead_seconds)
    verification = Verification(connection.store, now=connection.clock.now(), tolerance=tolerance)
    slots: Slots | None = None
    if isinstance(load, CronLoad):
        slots = await verification.slots(load, lambda read: tell("verifying", read, load.rate))
        ran = slots.run
    else:
        ran = await verification.once_each(load.submitted, lambda read: tell("verifying", read, load.submitted))
    told = f"handlers recorded the starts of {recorded.completed} jobs, and the store tells of {ran} that ended well"
    verification.expect(recorded.completed == ran, told)
    return slots, verification.problems
