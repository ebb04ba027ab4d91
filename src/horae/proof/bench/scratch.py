"""Creates the scratch schema or file of a benchmark, and removes it afterwards."""

import contextlib
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from horae.adapters import make_store, sqlite_path
from horae.core.errors import Misconfigured
from horae.proof.bench.machine import parent_of

if TYPE_CHECKING:
    from horae.stores.postgres.connection.database import Address

STATEMENT_TIMEOUT = 300.0  # seconds


@asynccontextmanager
async def scratch_store(url: str) -> AsyncIterator[str]:
    """Create an empty store beside the given one, and yield its address."""
    make_store(url)  # rejects an invalid address
    async with _scratch_file(sqlite_path(url)) if url.startswith("sqlite:") else _scratch_schema(url) as address:
        yield address


@asynccontextmanager
async def _scratch_file(path: Path) -> AsyncIterator[str]:
    """Create a file on the same disk; the folder of `path` need not exist."""
    folder = _new_folder(next_to=path)
    try:
        address = f"sqlite:///{folder}/bench.db"
        await make_store(address).migrate()
        yield address
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _new_folder(*, next_to: Path) -> str:
    near = next(folder for folder in next_to.absolute().parents if folder.is_dir())
    try:
        return tempfile.mkdtemp(prefix="horae-bench-", dir=near)
    except OSError as exc:
        raise Misconfigured(f"cannot create a scratch file in {near}: {exc.strerror}; use another --store") from exc


@asynccontextmanager
async def _scratch_schema(url: str) -> AsyncIterator[str]:
    schema = f"horae_bench_{secrets.token_hex(6)}"
    try:
        address = _with_schema(url, schema)
        await make_store(address).migrate()
        yield address
    finally:
        await _execute(url, f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')


async def vacuum_backlog(url: str) -> None:
    """Let PostgreSQL vacuum and write out a large backlog, so that this is not measured."""
    if url.startswith("sqlite:"):
        return
    import asyncpg

    await _execute(url, "VACUUM (ANALYZE) runs")
    with contextlib.suppress(asyncpg.InsufficientPrivilegeError):  # not every user may; then it happens later
        await _execute(url, "CHECKPOINT")


async def local_postmaster(url: str) -> int | None:
    """Return the main process of PostgreSQL; None for SQLite, or if the server runs on another machine."""
    if url.startswith("sqlite:"):
        return None
    connection = await _address(url).connect()
    try:
        return parent_of(connection.get_server_pid(), named="postgres")
    finally:
        await connection.close()


def _with_schema(url: str, schema: str) -> str:
    parts = urlsplit(url)
    options = {**dict(parse_qsl(parts.query, keep_blank_values=True)), "search_path": schema}
    return urlunsplit(parts._replace(query=urlencode(options, safe="/:,")))


async def _execute(url: str, statement: str) -> None:
    from horae.stores.postgres.connection.database import door

    with door():
        connection = await _address(url).connect()
        try:
            await connection.execute("SET lock_timeout = 0")  # killed nodes hold their locks for a moment
            await connection.execute(statement, timeout=STATEMENT_TIMEOUT)
        finally:
            await connection.close()


def _address(url: str) -> "Address":
    from horae.stores.postgres.connection.database import Address  # late: it imports the driver

    return Address(url)
