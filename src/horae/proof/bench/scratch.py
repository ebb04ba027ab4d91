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
    if url.startswith("sqlite:"):
        scratch = _scratch_file(sqlite_path(url))
    elif url.startswith("dynamodb:"):
        scratch = _scratch_tables(url)
    else:
        scratch = _scratch_schema(url)
    async with scratch as address:
        yield address


@asynccontextmanager
async def scratch_queue(url: str) -> AsyncIterator[str]:
    """Yield the address of an empty queue beside the given one, and delete it in the end."""
    if url.startswith("redis"):
        address = _with_own_keys(url)
        try:
            yield address
        finally:
            await _delete_keys(address)
        return
    if not url.startswith("sqs:"):
        yield url
        return
    address = _with_prefix(url)
    try:
        yield address
    finally:
        await _delete_queues(address)


def _with_prefix(url: str) -> str:
    """Return the address of DynamoDB or SQS with a prefix of its own."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}-bench-{secrets.token_hex(6)}"))


def _with_own_keys(url: str) -> str:
    """Return the address of Redis with a prefix of its own."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True)) | {"prefix": f"horae-bench-{secrets.token_hex(6)}"}
    return urlunsplit(parts._replace(query=urlencode(options)))


async def _delete_keys(url: str) -> None:
    from horae.queues.redis.queue import RedisQueue  # late: it imports the driver

    queue = RedisQueue(url)
    try:
        await queue.clear()
    finally:
        await queue.close()


@asynccontextmanager
async def _scratch_tables(url: str) -> AsyncIterator[str]:
    address = _with_prefix(url)
    try:
        await make_store(address).migrate()
        yield address
    finally:
        await _delete_tables(address)


async def _delete_tables(url: str) -> None:
    from horae.aws_api.client import ServiceClient  # late: it imports the driver
    from horae.aws_api.errors import ResourceMissing
    from horae.stores.dynamodb.database import Names
    from horae.stores.dynamodb.tables.address import parse_dynamodb

    address, _ = parse_dynamodb(url)
    client = ServiceClient("dynamodb", region=address.region, endpoint=address.endpoint)
    await client.open()
    try:
        for kind in Names.__struct_fields__:
            with contextlib.suppress(ResourceMissing):
                await client.call("DeleteTable", {"TableName": f"{address.prefix}-{kind}"})
    finally:
        await client.close()


async def _delete_queues(url: str) -> None:
    from horae.aws_api.address import parse_address
    from horae.aws_api.client import ServiceClient  # late: it imports the driver
    from horae.aws_api.errors import ResourceMissing

    address = parse_address(url, scheme="sqs", variable="HORAE_QUEUE")
    client = ServiceClient("sqs", region=address.region, endpoint=address.endpoint)
    await client.open()
    try:
        found = await client.call("ListQueues", {"QueueNamePrefix": address.prefix, "MaxResults": 1000})
        for queue in found.get("QueueUrls", ()):
            with contextlib.suppress(ResourceMissing):
                await client.call("DeleteQueue", {"QueueUrl": queue})
    finally:
        await client.close()


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
    if not url.startswith(("postgres:", "postgresql:")):
        return
    import asyncpg

    await _execute(url, "VACUUM (ANALYZE) runs")
    with contextlib.suppress(asyncpg.InsufficientPrivilegeError):  # not every user may; then it happens later
        await _execute(url, "CHECKPOINT")


async def local_postmaster(url: str) -> int | None:
    """Return the main process of PostgreSQL; None for SQLite, or if the server runs on another machine."""
    if not url.startswith(("postgres:", "postgresql:")):
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
