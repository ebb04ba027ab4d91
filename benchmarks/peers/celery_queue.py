"""Celery on Redis: a worker with two processes and its default settings, and no results kept."""

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from types import TracebackType

import redis
from celery import Celery

from benchmarks.peers.recording import note, payload

app = Celery("benchmarks.peers.celery_queue", broker=os.environ["BENCH_STORE"])
app.conf.update(task_ignore_result=True, worker_hijack_root_logger=False, broker_connection_retry_on_startup=True)

WORKER = [
    "celery",
    "-A",
    "benchmarks.peers.celery_queue",
    "worker",
    "-P",
    "prefork",
    "-c",
    "2",
    "-l",
    "WARNING",
    "--without-gossip",
]
WORKER += ["--without-mingle", "--without-heartbeat"]


@app.task  # type: ignore[untyped-decorator]
def job(arguments: dict[str, int]) -> None:
    note(arguments["n"])


class CeleryQueue:
    """Celery on a Redis database, which is emptied before and after; it cannot send many jobs at once."""

    workers = (WORKER,)

    async def __aenter__(self) -> "CeleryQueue":
        self._redis = redis.Redis.from_url(os.environ["BENCH_STORE"])
        self._redis.flushdb()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._redis.flushdb()
        self._redis.close()
        app.close()

    async def enqueue(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            job.delay(payload(number))

    async def schedule(self, due: Sequence[tuple[int, float]]) -> None:
        for number, at in due:
            job.apply_async((payload(number),), eta=datetime.fromtimestamp(at, UTC))

    async def waiting(self) -> int:
        return int(self._redis.llen("celery")) + int(self._redis.hlen("unacked"))

    async def server(self) -> int | None:
        return int(self._redis.info("server")["process_id"])
