"""How many jobs per second one program stores durably with `submit_many`, 10,000 per call."""

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

from horae import Horae
from horae.adapters import make_store
from tests.postgres_server import scratch_schema

BATCH = 10_000


def measure(store: str, jobs: int) -> dict[str, Any]:
    """Measure jobs per second in a scratch store."""
    return asyncio.run(_measure(store, jobs))


async def _measure(store: str, jobs: int) -> dict[str, Any]:
    if store.startswith("sqlite:"):
        with tempfile.TemporaryDirectory(prefix="horae-bench-") as folder:
            return await _submit(f"sqlite:///{Path(folder) / 'horae.db'}", jobs)
    async with scratch_schema(store) as schema:
        return await _submit(schema, jobs)


async def _submit(store: str, jobs: int) -> dict[str, Any]:
    await make_store(store).migrate()
    app = Horae(store=store)

    @app.task("bench.once")
    async def once(n: int) -> None: ...

    await once.submit_many([{"n": n} for n in range(BATCH)])  # so that no first time is measured
    began = time.perf_counter()
    for start in range(0, jobs, BATCH):
        await once.submit_many([{"n": n} for n in range(start, start + BATCH)])
    seconds = time.perf_counter() - began
    await app.close()
    return {"submitted": jobs, "submitted_per_s": round(jobs / seconds)}
