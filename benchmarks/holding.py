"""A transaction that somebody forgot to end: as long as it is open, PostgreSQL can clean up nothing behind it."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg


@contextmanager
def held_transaction(address: str) -> Iterator[None]:
    """One that sees the database as it was, held open in a connection of its own."""
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
