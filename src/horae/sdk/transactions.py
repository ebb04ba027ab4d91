"""Submits inside the caller's own PostgreSQL transaction, with any of the common drivers.

Drivers are recognised by their attributes, so that none of them has to be installed. Their errors are passed on as they
are, because the caller has to roll back.
"""

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from horae.core.errors import Invalid
from horae.core.model import Run

if TYPE_CHECKING:
    from horae.sdk.connection import Connection

_SUPPORTED = "an asyncpg or psycopg 3 connection, a session or connection of SQLAlchemy, or a connection of Django"


class Statement(Protocol):
    """The statement that writes runs within a transaction."""

    @property
    def argument(self) -> str:
        """Its only parameter, as text."""

    def sql(self, placeholder: str) -> str:
        """Return the SQL with the driver's placeholder for the parameter: `$1`, `%s` or `:name`."""


@runtime_checkable
class TransactionalStore(Protocol):
    """A store that can write runs within the caller's transaction."""

    async def enlistment(self, runs: Sequence[Run]) -> Statement:
        """Return the statement that writes the runs once the transaction commits."""


async def enlistment(connection: "Connection", runs: Sequence[Run]) -> Statement:
    """Return the statement that writes the runs; raises Invalid if the store does not support this."""
    store = connection.store
    if not isinstance(store, TransactionalStore):
        raise Invalid(
            "tx= needs a PostgreSQL store in the database of the transaction, and this store is SQLite;"
            " submit after your commit instead"
        )
    return await store.enlistment(runs)


async def execute(tx: Any, statement: Statement) -> None:
    """Execute the statement on an async connection."""
    if _is_asyncpg(tx):
        if not tx.is_in_transaction():
            raise Invalid("tx= is not in a transaction; submit inside `async with connection.transaction():`")
        await tx.execute(statement.sql("$1"), statement.argument)
    elif _is_psycopg(tx):
        _refuse_autocommit(tx)
        await _await(tx.execute(statement.sql("%s"), (statement.argument,)))
    elif _is_sqlalchemy(tx):
        await _await(tx.execute(_as_text(statement), {"runs": statement.argument}))
    elif _is_django(tx):
        raise TypeError("a Django connection is blocking; use submit_sync(), in a function called by sync_to_async()")
    else:
        raise _unsupported(tx)


def execute_sync(tx: Any, statement: Statement) -> None:
    """Execute the statement on a blocking connection."""
    if _is_psycopg(tx):
        _refuse_autocommit(tx)
        _refuse_awaitable(tx.execute(statement.sql("%s"), (statement.argument,)))
    elif _is_sqlalchemy(tx):
        _refuse_awaitable(tx.execute(_as_text(statement), {"runs": statement.argument}))
    elif _is_django(tx):
        if not tx.in_atomic_block:
            raise Invalid("tx= is not in a transaction; submit inside `with transaction.atomic():`")
        with tx.cursor() as cursor:
            cursor.execute(statement.sql("%s"), [statement.argument])
    elif _is_asyncpg(tx):
        raise TypeError("an asyncpg connection needs `await … .submit(...)`, not submit_sync()")
    else:
        raise _unsupported(tx)


def _is_asyncpg(tx: Any) -> bool:
    return hasattr(tx, "is_in_transaction") and hasattr(tx, "fetchval")


def _is_psycopg(tx: Any) -> bool:
    return hasattr(tx, "pgconn") and hasattr(tx, "cursor")


def _is_sqlalchemy(tx: Any) -> bool:
    return type(tx).__module__.split(".")[0] in ("sqlalchemy", "sqlmodel") or hasattr(tx, "get_bind")


def _is_django(tx: Any) -> bool:
    return hasattr(tx, "in_atomic_block") and hasattr(tx, "ensure_connection")


def _refuse_autocommit(tx: Any) -> None:
    idle = tx.info.transaction_status == 0
    if tx.autocommit and idle:
        raise Invalid("tx= is in autocommit mode; submit inside `with connection.transaction():`")


def _as_text(statement: Statement) -> Any:
    from sqlalchemy import text  # installed, because the caller uses it

    return text(statement.sql(":runs"))


async def _await(answer: Any) -> None:
    if not inspect.isawaitable(answer):
        raise TypeError("this connection is blocking; use submit_sync()")
    await answer


def _refuse_awaitable(answer: Any) -> None:
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise TypeError("this connection is async; use `await … .submit(...)` instead of submit_sync()")


def _unsupported(tx: Any) -> TypeError:
    return TypeError(f"tx= must be {_SUPPORTED}, not {type(tx).__module__}.{type(tx).__qualname__}")
