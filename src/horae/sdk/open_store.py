"""Opens the store of the settings for an application that only submits."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from functools import partial

import structlog

from horae.adapters import make_blobs, opened_queue, opened_store, sync_clock
from horae.config import Settings
from horae.log_setup import configure_logs
from horae.loop import Loop
from horae.metrics import Metrics
from horae.offering import offering_store
from horae.ports.clock import StoreClock
from horae.ports.store import Store
from horae.sdk.connection import Connection
from horae.secrets.sealer import Sealer
from horae.tasks.registry import Registry

SYNC_EVERY = timedelta(seconds=60)
PATIENCE = timedelta(milliseconds=50)  # for the queue, after a commit: the process may end when the submit returns


@contextlib.asynccontextmanager
async def opened_connection(settings: Settings, registry: Registry) -> AsyncIterator[Connection]:
    """Open a connection whose clock follows the store, and close it at the end."""
    if not structlog.is_configured():  # unconfigured, logs would mix with the output of a script
        configure_logs(settings.log, settings.log_level)
    async with contextlib.AsyncExitStack() as stack:
        store: Store = await stack.enter_async_context(opened_store(settings.store))
        clock = StoreClock()
        await sync_clock(clock, store)
        sync = Loop("clock", partial(sync_clock, clock, store, readings=1), clock, idle=SYNC_EVERY)
        queue = await stack.enter_async_context(opened_queue(settings.queue))
        if queue is not None:
            metrics, horizon = Metrics().tickets, settings.horizon_seconds
            offering = offering_store(store, queue, clock, metrics, horizon=horizon, patience=PATIENCE)
            store = await stack.enter_async_context(offering)
        syncing = asyncio.create_task(sync.run(), name="horae-clock")
        try:
            yield Connection.over(
                store,
                clock,
                registry,
                blobs=make_blobs(settings.blobs, store),
                horizon=settings.horizon_seconds,
                sealer=Sealer(settings.encryption_key),
            )
        finally:
            syncing.cancel()
            await asyncio.gather(syncing, return_exceptions=True)
