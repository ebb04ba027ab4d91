"""A client of the API in process, and a worker that moves by hand."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2

from horae.api.dispatch.context import Services
from horae.archive.reader import Archive
from horae.blobs.folder import FolderFiles
from horae.core.decisions.results import Failure, cancel, fail, start, succeed
from horae.core.ids import Ids
from horae.core.model import JobError, Node, NodeId, Reason, Run, RunId
from horae.metrics import Metrics
from horae.ports.store import ClaimRequest, Store
from horae.secrets.sealer import Sealer
from horae.tasks.builtin import builtin_tasks
from horae.tasks.registry import Registry
from tests import acts
from tests.clocks import ManualClock

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


def services_over(
    store: Store,
    clock: ManualClock,
    registry: Registry | None = None,
    *,
    sealer: Sealer | None = None,
    archive: Path = Path("/nonexistent/archive"),
) -> Services:
    """The services of a node that is ready; without a registry it has the built-in tasks."""
    tasks = builtin_tasks() if registry is None else registry
    return Services.over(
        store,
        store.blobs,
        clock,
        Metrics(),
        new_id=Ids(wall=lambda: clock.now().timestamp()),
        horizon=timedelta(seconds=30),
        task_defaults=tasks.get,
        check_params=tasks.check,
        ready=lambda: True,
        sealer=sealer,
        archive=Archive(FolderFiles(archive)),
    )


@dataclass
class Hand:
    """A worker that takes each step only when the test calls it."""

    store: Store
    clock: ManualClock
    id: NodeId

    async def join(self) -> None:
        now = self.clock.now()
        await acts.register(
            self.store,
            Node(
                id=self.id,
                name="hand",
                roles=("worker",),
                version="test",
                queues=("default",),
                concurrency=8,
                started_at=now,
                beat_at=now,
                tasks=builtin_tasks().schemas(),
            ),
        )

    async def claim(self, *, ahead: float = 0) -> list[Run]:
        """Claim the runs that are due, or wake within some seconds."""
        now = self.clock.now()
        claims = await self.store.claim(
            ClaimRequest(
                node=self.id,
                queues=(),
                tasks=builtin_tasks().names,
                now=now,
                until=now + timedelta(seconds=ahead),
            )
        )
        assert claims.alive
        return list(claims.runs)

    async def start(self, run: Run) -> Run:
        running = start(run, self.clock.now())
        assert await self.store.start([running]) == [True]
        return running

    async def succeed(self, run: Run, result: str = "null") -> None:
        assert await self.store.settle([succeed(run, result, self.clock.now())]) == [True]

    async def fail(self, run: Run, message: str = "no luck") -> None:
        failure = Failure(error=JobError(type="DemoError", message=message))
        assert await self.store.settle([fail(run, failure, self.clock.now(), random_factor=0.0)]) == [True]

    async def asked_to_stop(self) -> Mapping[RunId, Reason]:
        """Wait until this worker is asked to stop runs."""
        async with asyncio.timeout(5):
            while not (stops := await self.store.stops(self.id)):  # noqa: ASYNC110 - no event tells of a store
                await asyncio.sleep(0.005)
        return stops

    async def confirm_cancel(self, run: Run) -> None:
        assert await self.store.settle([cancel(run, self.clock.now())]) == [True]


@dataclass
class Api:
    """A client of the API."""

    client: httpx2.AsyncClient
    clock: ManualClock
    store: Store
    services: Services
    hand: Hand

    async def get(self, path: str, status: int = 200, **keywords: Any) -> Any:
        return await self.ask("GET", path, status, **keywords)

    async def post(self, path: str, body: Any = None, status: int = 200, **keywords: Any) -> Any:
        return await self.ask("POST", path, status, **({} if body is None else {"json": body}), **keywords)

    async def create(self, task: str = "demo.echo", **fields: Any) -> Any:
        return await self.post("/v1/jobs", {"task": task, **fields}, 201)

    async def ask(self, method: str, path: str, status: int, **keywords: Any) -> Any:
        """Send a request and require a status; an error must be a complete problem document."""
        answer = await self.client.request(method, path, **keywords)
        assert answer.status_code == status, f"{method} {path}: {answer.status_code} {answer.text}"
        if status >= 400:
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.json().keys() == {"type", "title", "status", "detail", "code", "errors"}
            assert answer.json()["status"] == status
        return answer.json()
