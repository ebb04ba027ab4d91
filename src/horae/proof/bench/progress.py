"""Following a load to its end: until everything that was offered has run and the store is empty, or nothing comes."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from horae.proof.bench.load import FAR, AnyLoad, CronLoad
from horae.proof.bench.processes import Nodes
from horae.proof.bench.recorder import count_starts
from horae.proof.bench.tasks import once, slot
from horae.proof.bench.verify import all_planned, is_over
from horae.sdk.connection import Connection

# Without a start, or after the time of recurring jobs: what has not come by then is lost. A dead worker's runs come
# after about 20 seconds.
GIVE_UP_SECONDS = 45.0
SHOW_SECONDS = 0.1  # between two looks at how far it is
LAST_LOOK_SECONDS = 0.01  # between two looks at whether the store is empty

Tell = Callable[[str, int, int | None], None]  # what is being done, how far, and of how many if that is known


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """How long it took, in seconds."""

    offering: float  # from the first create to the last
    whole: float  # from the first create until nothing is alive, or was given up


class Following:
    """Offers a load, and waits for its end."""

    def __init__(self, load: AnyLoad, connection: Connection, nodes: Nodes, folder: Path, tell: Tell) -> None:
        self._load = load
        self._connection = connection
        self._nodes = nodes
        self._folder = folder
        self._tell = tell
        self._started = 0
        self._progressed_at = time.monotonic()

    async def follow(self) -> Course:
        """Raises NodeFailed when a process ends before its time."""
        began_at = time.monotonic()
        offering = asyncio.create_task(self._load.offer())
        try:
            while not offering.done():
                self._look()
                await asyncio.wait({offering}, timeout=SHOW_SECONDS)
            offering.result()
        finally:
            offering.cancel()
        offered_at = time.monotonic()
        while not await self._is_over() and not self._is_hopeless():
            self._look()
            await asyncio.sleep(SHOW_SECONDS if self._is_coming() else LAST_LOOK_SECONDS)
        return Course(offering=offered_at - began_at, whole=time.monotonic() - began_at)

    def _look(self) -> None:
        self._nodes.check()
        before, started = self._started, count_starts(self._folder)
        if self._is_coming() or (started > before and not isinstance(self._load, CronLoad)):
            self._progressed_at = time.monotonic()
        self._started = started
        self._tell("running", min(started, self._load.submitted), self._load.expected)

    def _is_coming(self) -> bool:
        """Whether there is something whose time has not come."""
        return self._connection.clock.now() < self._load.last_due_at

    async def _is_over(self) -> bool:
        store = self._connection.store
        if isinstance(self._load, CronLoad):  # recurring jobs go on after the time that is measured
            end_at = self._load.end_at
            return (
                not self._is_coming()
                and await is_over(store, slot.name, before=end_at)
                and await all_planned(store, self._load.job_ids, to=end_at)
            )
        if self._started < self._load.submitted:
            return False
        return await is_over(store, once.name, before=self._connection.clock.now() + FAR / 2)

    def _is_hopeless(self) -> bool:
        return time.monotonic() - self._progressed_at > GIVE_UP_SECONDS
