"""Checks that `horae check` notices runs of a fleet's store that are deleted by hand."""

import asyncio
from uuid import UUID

import asyncpg

from horae.proof.checking import Checker, Code, Violation
from horae.stores.postgres.store import PostgresStore

LOST = 5


def unnoticed_loss(url: str, job: str) -> list[str]:
    """Delete runs of a job, tell if the check does not notice it, and put them back."""
    return asyncio.run(_unnoticed_loss(url, job))


async def _unnoticed_loss(url: str, job: str) -> list[str]:
    connection = await asyncpg.connect(url, server_settings={"search_path": "horae"})
    try:
        await connection.execute(
            f"CREATE TABLE lost AS SELECT * FROM history WHERE job_id = '{UUID(job.removeprefix('job_'))}'"
            f" AND slot IS NOT NULL ORDER BY slot LIMIT {LOST}"
        )
        done = await connection.execute("DELETE FROM history WHERE id IN (SELECT id FROM lost)")
        assert done == f"DELETE {LOST}", done
        missing = [found.subject for found in await _violations(url) if found.code is Code.SLOT_MISSING]
        await connection.execute("INSERT INTO history SELECT * FROM lost")
        await connection.execute("DROP TABLE lost")
    finally:
        await connection.close()
    return [] if job in missing else [f"{LOST} runs of {job} were deleted by hand, and the check did not notice it"]


async def _violations(url: str) -> list[Violation]:
    store = PostgresStore(url)
    await store.open()
    try:
        return [found async for found in Checker(store).violations()]
    finally:
        await store.close()
