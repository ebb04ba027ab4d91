"""A set-up for tests of execution: an executor, and attempts with their results and progress."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import psutil  # type: ignore[import-untyped]

from horae.app import Horae
from horae.core.errors import Unavailable
from horae.core.ids import Ids
from horae.core.model import JobId, Policy, Run, RunId, Spec
from horae.engine.execution.attempt import RunningAttempt
from horae.engine.execution.executor import Executor
from horae.engine.execution.outcome import AttemptResult
from horae.run_logs import read_log
from horae.tasks.builtin import builtin_tasks
from tests.clocks import ManualClock

NOW = datetime(2026, 11, 15, 20, tzinfo=UTC)
GRACE = 0.3
_new_id = Ids()


class MemoryBlobs:
    """Blobs in memory that can be made to fail."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.writes = 0
        self.failing = False

    async def put(self, items: Sequence[tuple[str, bytes]]) -> None:
        self.writes += 1
        if self.failing:
            raise Unavailable("the blobs do not answer")
        self.kept.update(items)

    async def get(self, key: str) -> bytes | None:
        if self.failing:
            raise Unavailable("the blobs do not answer")
        return self.kept.get(key)

    async def under(self, prefix: str, *, after: str = "", limit: int = 100) -> list[tuple[str, bytes]]:
        found = sorted(item for item in self.kept.items() if item[0].startswith(prefix) and item[0] > after)
        return found[:limit]

    async def delete(self, prefix: str) -> None:
        self.kept = {key: data for key, data in self.kept.items() if not key.startswith(prefix)}


@dataclass
class Try:
    """One attempt, with what it reported."""

    run: Run
    running: RunningAttempt
    results: list[AttemptResult] = field(default_factory=list)
    progress: list[float] = field(default_factory=list)

    async def result(self) -> AttemptResult:
        await until(lambda: self.results)
        return self.results[0]


class Stage:
    """An executor with the built-in tasks and those of an app."""

    def __init__(self, app: Horae, blobs: MemoryBlobs, executor: Executor) -> None:
        self.app = app
        self.blobs = blobs
        self.executor = executor

    def begin(
        self,
        task: str,
        *,
        attempt: int = 1,
        timeout: float | None = None,
        blob: str | None = None,
        secrets: str | None = None,
        owner: str = "ann",
        **params: Any,
    ) -> Try:
        run_id = _new_id()
        policy = Policy(timeout=None if timeout is None else timedelta(seconds=timeout))
        run = Run(
            id=RunId(run_id),
            job_id=JobId(run_id),
            owner=owner,
            created_by=owner,
            spec=Spec(
                task=task,
                params=msgspec.json.encode(params).decode(),
                params_blob=blob,
                secrets=secrets,
                policy=policy,
            ),
            due_at=NOW,
            wake_at=NOW,
            created_at=NOW,
            attempt=attempt,
            fence=7,
        )
        results: list[AttemptResult] = []
        progress: list[float] = []
        running = self.executor.begin(
            run, lambda _, result: results.append(result), lambda _, fraction: progress.append(fraction)
        )
        return Try(run, running, results, progress)

    async def result(self, task: str, **options: Any) -> AttemptResult:
        return await self.begin(task, **options).result()

    async def log(self, attempt: Try, wanted: str = "") -> str:
        """Return the stored log as soon as the wanted text is in it."""
        deadline = time.monotonic() + 5
        while wanted not in (text := "".join([part async for part in read_log(self.blobs, attempt.run.id)])):
            assert time.monotonic() < deadline, f"{wanted!r} is not in {text!r}"
            await asyncio.sleep(0.01)
        return text


@asynccontextmanager
async def stage(app: Horae | None = None, **options: Any) -> AsyncIterator[Stage]:
    app = app or Horae()
    blobs = MemoryBlobs()
    settings = {"threads": 4, "allow_shell": True, "grace": GRACE, **options}
    executor = Executor(app.registry.with_tasks(builtin_tasks()), blobs, ManualClock(NOW), **settings)
    try:
        yield Stage(app, blobs, executor)
    finally:
        await executor.close()


async def until(condition: Callable[[], object], seconds: float = 10) -> None:
    """Wait for a condition to hold."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to be in time"
        await asyncio.sleep(0.002)


async def pids_in(note: Path, count: int = 1) -> list[int]:
    """Return the process ids that a program writes to a file."""
    found: list[int] = []

    def read() -> bool:
        found[:] = [int(pid) for pid in note.read_text().split()] if note.exists() else []
        return len(found) == count

    await until(read)
    return found


def gone(pid: int) -> bool:
    """Return whether a process has ended."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
