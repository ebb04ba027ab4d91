"""Submitting inside the caller's own PostgreSQL transaction, whatever they reach their database with.

Drivers are told apart by their shape, so that none of them has to be installed. Their errors come out as they are, for
the transaction is the caller's to roll back.
"""

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from horae.core.errors import Invalid
from horae.core.model import Run

if TYPE_CHECKING:
    from horae.sdk.connection import Connection

_KNOWN = "an asyncpg or psycopg 3 connection, or a session or connection of SQLAlchemy"


class Statement(Protocol):
    """What makes runs part of a transaction."""

    @property
    def argument(self) -> str:
        """Its one parameter, a text."""

    def sql(self, placeholder: str) -> str:
        """As the driver wants it, which marks parameters so: `$1`, `%s`, `:name`."""


@runtime_checkable
class Enlisting(Protocol):
    """A store whose runs can be part of somebody else's transaction."""

    async def enlistment(self, runs: Sequence[Run]) -> Statement:
        """The statement that writes the runs when the transaction commits."""


async def enlistment(connection: "Connection", runs: Sequence[Run]) -> Statement:
    """The statement that writes the runs; raises Invalid where the store knows no such thing."""
    store = connection.store
    if not isinstance(store, Enlisting):
        raise Invalid(
            "tx= needs a store on PostgreSQL, in the database of the transaction; this one is on SQLite."
            " Submit after your commit instead"
        )
    return await store.enlistment(runs)


async def execute(tx: Any, statement: Statement) -> None:
    """Write through a connection that is used with `await`."""
    if _is_asyncpg(tx):
        if not tx.is_in_transaction():
            raise Invalid("tx= is in no transaction; submit inside `async with connection.transaction():`")
        await tx.execute(statement.sql("$1"), statement.argument)
    elif _is_psycopg(tx):
        _refuse_autocommit(tx)
        await _awaited(tx.execute(statement.sql("%s"), (statement.argument,)), "submit")
    elif _is_sqlalchemy(tx):
        await _awaited(tx.execute(_as_text(statement), {"runs": statement.argument}), "submit")
    else:
        raise _strange(tx)


def execute_sync(tx: Any, statement: Statement) -> None:
    """Write through a connection that blocks."""
    if _is_psycopg(tx):
        _refuse_autocommit(tx)
        _done(tx.execute(statement.sql("%s"), (statement.argument,)))
    elif _is_sqlalchemy(tx):
        _done(tx.execute(_as_text(statement), {"runs": statement.argument}))
    elif _is_asyncpg(tx):
        raise TypeError("an asyncpg connection is used with `await … .submit(...)`, not with submit_sync()")
    else:
        raise _strange(tx)


def _is_asyncpg(tx: Any) -> bool:
    return hasattr(tx, "is_in_transaction") and hasattr(tx, "fetchval")


def _is_psycopg(tx: Any) -> bool:
    return hasattr(tx, "pgconn") and hasattr(tx, "cursor")


def _is_sqlalchemy(tx: Any) -> bool:
    return type(tx).__module__.split(".")[0] in ("sqlalchemy", "sqlmodel") or hasattr(tx, "get_bind")


def _refuse_autocommit(tx: Any) -> None:
    idle = tx.info.transaction_status == 0
    if tx.autocommit and idle:
        raise Invalid("tx= commits each statement by itself; submit inside `with connection.transaction():`")


def _as_text(statement: Statement) -> Any:
    from sqlalchemy import text  # the caller has it

    return text(statement.sql(":runs"))


async def _awaited(answer: Any, verb: str) -> None:
    if not inspect.isawaitable(answer):
        raise TypeError(f"this connection blocks, so use it with {verb}_sync()")
    await answer


def _done(answer: Any) -> None:
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise TypeError("this connection is used with `await … .submit(...)`, not with submit_sync()")


def _strange(tx: Any) -> TypeError:
    return TypeError(f"tx= is {_KNOWN}, not {type(tx).__module__}.{type(tx).__qualname__}")
