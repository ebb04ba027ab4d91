"""PgQueuer on PostgreSQL: two processes on uvloop, tuned for speed (it claims 10 at a time by default, here 200)."""

import json
import os
import time
from collections.abc import Sequence
from datetime import timedelta
from types import TracebackType
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries

from benchmarks.machine import parent_of
from benchmarks.peers.recording import note, payload

STORE = os.environ["BENCH_STORE"]
DATABASE = "bench_pgqueuer"
URL = urlunsplit(urlsplit(STORE)._replace(path=f"/{DATABASE}"))
WORKER = ["python", "-m", "benchmarks.peers.pgqueuer_queue"]
BATCH_SIZE = 200
DEQUEUE_TIMEOUT = timedelta(seconds=0.1)


class PgQueuerQueue:
    """PgQueuer in a database of its own."""

    workers = (WORKER, WORKER)

    async def __aenter__(self) -> "PgQueuerQueue":
        self._server = await asyncpg.connect(STORE)
        await self._drop()
        await self._server.execute(f"CREATE DATABASE {DATABASE}")
        self._connection = await asyncpg.connect(URL)
        self._queries = Queries(AsyncpgDriver(self._connection))
        await self._queries.install()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._connection.close()
        await self._drop()
        await self._server.close()

    async def enqueue(self, numbers: Sequence[int]) -> None:
        await self._queries.enqueue(["job"] * len(numbers), [_payload(n) for n in numbers], [0] * len(numbers))

    async def schedule(self, due: Sequence[tuple[int, float]]) -> None:
        payloads = [_payload(number) for number, _ in due]
        now = time.time()
        after = [timedelta(seconds=at - now) for _, at in due]
        await self._queries.enqueue(["job"] * len(due), payloads, [0] * len(due), after)

    async def waiting(self) -> int:
        return int(await self._connection.fetchval("SELECT count(*) FROM pgqueuer"))

    async def server(self) -> int | None:
        local = await self._connection.fetchval("SELECT inet_client_addr() IS NOT DISTINCT FROM inet_server_addr()")
        return parent_of(self._connection.get_server_pid()) if local else None

    async def _drop(self) -> None:
        await self._server.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")


def _payload(number: int) -> bytes:
    return json.dumps(payload(number)).encode()


async def work() -> None:
    queue = PgQueuer.from_asyncpg_connection(await asyncpg.connect(URL))

    @queue.entrypoint("job")  # type: ignore[untyped-decorator]
    async def job(job) -> None:  # type: ignore[no-untyped-def]
        note(json.loads(job.payload)["n"])

    await queue.run(batch_size=BATCH_SIZE, dequeue_timeout=DEQUEUE_TIMEOUT)


if __name__ == "__main__":
    uvloop.run(work())
