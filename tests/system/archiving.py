"""Archives the history of a store in a process that can be killed: `python -m tests.system.archiving STORE ARCHIVE`."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

from horae.adapters import make_archive, opened_store
from horae.core.model import SHARDS
from horae.engine.duties.archiving import Archiver
from horae.engine.duties.retention import Retention
from horae.metrics import Metrics
from tests.clocks import ManualClock

KEEP = timedelta(days=30)

Reached = Callable[[], Coroutine[Any, Any, bool]]


class ArchivingProcess:
    """A node's retention in a process of its own."""

    def __init__(self, store: str, archive: str) -> None:
        self._command = (sys.executable, "-m", "tests.system.archiving", store, archive)

    async def kill_when(self, reached: Reached) -> None:
        """Run it until a state is reached, and kill it there without a warning."""
        process = await self._start()
        while not await reached():
            assert process.returncode is None, "it ended before it could be killed"
            await asyncio.sleep(0.002)
        os.kill(process.pid, signal.SIGKILL)
        assert await process.wait() == -signal.SIGKILL

    async def finish(self) -> None:
        """Run it until there is nothing left to do."""
        process = await self._start()
        assert await process.wait() == 0

    async def _start(self) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(*self._command, stdout=asyncio.subprocess.DEVNULL)


async def main(store_url: str, archive_url: str) -> None:
    """Tick until there is nothing to do."""
    files = make_archive(archive_url)
    assert files is not None
    clock = ManualClock(datetime.now(UTC))
    async with opened_store(store_url) as store:
        archiver = Archiver(store, store.blobs, files, clock, Metrics(), keep=KEEP, shards=lambda: range(SHARDS))
        retention = Retention(store, clock, keep=KEEP, archiver=archiver)
        while await retention.tick() == clock.now():
            pass


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
