"""A forgotten open transaction, behind which PostgreSQL cannot clean up."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg


@contextmanager
def held_transaction(address: str) -> Iterator[None]:
    """Hold a transaction with an old snapshot open in its own connection."""
    opened, over = threading.Event(), threading.Event()

    async def hold() -> None:
        connection = await asyncpg.connect(address)
        transaction = connection.transaction(isolation="repeatable_read")
        await transaction.start()
        await connection.execute("SELECT pg_current_xact_id()")
        opened.set()
        await asyncio.to_thread(over.wait)
        await transaction.rollback()
        await connection.close()

    holder = threading.Thread(target=lambda: asyncio.run(hold()))
    holder.start()
    try:
        if not opened.wait(10):
            raise RuntimeError("the transaction could not be opened")
        yield
    finally:
        over.set()
        holder.join()
