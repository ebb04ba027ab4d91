"""Submits a load and waits until every run has ended, or until no more progress is made."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from horae.proof.bench.load import FAR, CronLoad, Load
from horae.proof.bench.processes import NodeProcesses
from horae.proof.bench.start_recorder import count_starts
from horae.proof.bench.tasks import once, slot
from horae.proof.bench.verify import all_slots_fired, no_live_runs
from horae.sdk.connection import Connection

# Without a start, or after the time of recurring jobs; runs that have not started by then count as lost. The runs of a
# dead worker are claimed again after about 20 seconds.
GIVE_UP_SECONDS = 45.0
POLL_SECONDS = 0.1
LAST_POLL_SECONDS = 0.01  # after the last due time, so that the end is measured exactly

OnProgress = Callable[[str, int, int | None], None]  # the stage, what is done, and the total if known


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTimes:
    """Durations in seconds."""

    submitting: float  # from the first create to the last
    whole: float  # from the first create to the end of the last run, or until progress stopped


class LoadMonitor:
    """Submits a load and waits for its end."""

    def __init__(
        self, load: Load, connection: Connection, nodes: NodeProcesses, folder: Path, on_progress: OnProgress
    ) -> None:
        self._load = load
        self._connection = connection
        self._nodes = nodes
        self._folder = folder
        self._on_progress = on_progress
        self._started = 0
        self._progressed_at = time.monotonic()

    async def run(self) -> LoadTimes:
        """Submit the load and wait; raises NodeFailed if a node ends."""
        began_at = time.monotonic()
        submitting = asyncio.create_task(self._load.submit())
        try:
            while not submitting.done():
                self._poll()
                await asyncio.wait({submitting}, timeout=POLL_SECONDS)
            submitting.result()
        finally:
            submitting.cancel()
        submitted_at = time.monotonic()
        while not await self._is_done() and not self._is_stalled():
            self._poll()
            await asyncio.sleep(POLL_SECONDS if self._has_future_runs() else LAST_POLL_SECONDS)
        return LoadTimes(submitting=submitted_at - began_at, whole=time.monotonic() - began_at)

    def _poll(self) -> None:
        self._nodes.check()
        before, started = self._started, count_starts(self._folder)
        if self._has_future_runs() or (started > before and not isinstance(self._load, CronLoad)):
            self._progressed_at = time.monotonic()
        self._started = started
        self._on_progress("running", min(started, self._load.submitted), self._load.expected)

    def _has_future_runs(self) -> bool:
        """Whether some runs are not due yet."""
        return self._connection.clock.now() < self._load.last_due_at

    async def _is_done(self) -> bool:
        store = self._connection.store
        if isinstance(self._load, CronLoad):  # recurring jobs go on after the measured time
            end_at = self._load.end_at
            return (
                not self._has_future_runs()
                and await no_live_runs(store, slot.name, before=end_at)
                and await all_slots_fired(store, self._load.job_ids, to=end_at)
            )
        if self._started < self._load.submitted:
            return False
        return await no_live_runs(store, once.name, before=self._connection.clock.now() + FAR / 2)

    def _is_stalled(self) -> bool:
        return time.monotonic() - self._progressed_at > GIVE_UP_SECONDS
