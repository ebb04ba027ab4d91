"""Opens the store, the queue and the blobs that the settings name, and sets the clock by the store.

The only module that knows the adapters.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import structlog

from horae.aws_api.address import parse_address
from horae.blobs.file import FileBlobs
from horae.blobs.folder import FolderFiles
from horae.blobs.object_store import is_object_store, open_bucket
from horae.blobs.objects import ObjectBlobs, ObjectFiles
from horae.core.errors import Misconfigured, Unavailable
from horae.ports.blobs import AgingBlobs, Blobs
from horae.ports.clock import StoreClock
from horae.ports.files import Files
from horae.ports.queue import Queue, Taken
from horae.ports.store import Store
from horae.stores.sqlite.executor import InlineExecutor, SqliteExecutor
from horae.stores.sqlite.store import SqliteStore

if TYPE_CHECKING:
    from horae.queues.sqs.events import EventMessage
    from horae.queues.sqs.queue import SqsQueue
    from horae.stores.dynamodb.store import DynamoStore
    from horae.stores.postgres.store import PostgresStore

log = structlog.get_logger(__name__)

QUEUES = ("store", "redis://", "rediss://", "redis+sentinel://", "rediss+sentinel://", "sqs://")
FIRST_ANSWER_SECONDS = 5.0  # that a node waits for an object store before it starts without it
FIRST_READINGS = 4  # of the store's clock before a new clock is used


def make_store(
    url: str, *, sqlite: SqliteExecutor | None = None, listens: bool = True
) -> "SqliteStore | PostgresStore | DynamoStore":
    """Return the store of an address, not yet opened.

    `sqlite` executes the statements of SQLite; None: in threads of its own. A store that nobody subscribes to need not
    listen for the signals of other processes.
    """
    scheme = urlsplit(url).scheme
    if scheme == "sqlite":
        return SqliteStore(sqlite_path(url), executor=sqlite)
    if scheme in ("postgresql", "postgres"):
        try:
            from horae.stores.postgres.store import PostgresStore
        except ImportError as exc:
            raise Misconfigured(
                "PostgreSQL needs its driver, asyncpg: install Horae with the extra `postgres`"
            ) from exc
        return PostgresStore(url, listens=listens)
    if scheme == "dynamodb":
        try:
            from horae.stores.dynamodb.store import DynamoStore
        except ImportError as exc:
            raise Misconfigured("DynamoDB needs a client: install Horae with the extra `aws`") from exc
        return DynamoStore(url)
    raise Misconfigured(f"HORAE_STORE = {url!r}: must begin with sqlite:///, postgresql:// or dynamodb://")


def sqlite_path(url: str) -> Path:
    """Return the file of a SQLite address: relative after three slashes, absolute after four."""
    prefix = "sqlite:///"
    if not url.startswith(prefix) or url == prefix:
        raise Misconfigured(f"HORAE_STORE = {url!r}: use sqlite:///relative.db or sqlite:////absolute.db")
    return Path(url.removeprefix(prefix))


def make_queue(url: str, *, lead: timedelta = timedelta(seconds=1)) -> Queue | None:
    """Return the queue of an address, not yet opened; None for `store`, which is its own queue.

    `lead` is how long before their time tickets are wanted.
    """
    if url == "store":
        return None
    scheme = urlsplit(url).scheme
    if scheme in ("redis", "rediss", "redis+sentinel", "rediss+sentinel"):
        try:
            from horae.queues.redis.queue import RedisQueue
        except ImportError as exc:
            raise Misconfigured("a queue on Redis needs its driver: install Horae with the extra `redis`") from exc
        return RedisQueue(url)
    if scheme == "sqs":
        return make_sqs_queue(url, lead=lead)
    raise Misconfigured(f"HORAE_QUEUE = {scheme}://…: must be `store`, or begin with {', '.join(QUEUES[1:])}")


def make_sqs_queue(url: str, *, lead: timedelta) -> "SqsQueue":
    """Return the queue of an address of SQS, not yet opened."""
    try:
        from horae.queues.sqs.queue import SqsQueue
    except ImportError as exc:
        raise Misconfigured("a queue on SQS needs its drivers: install Horae with the extra `aws`") from exc
    return SqsQueue(parse_address(url, scheme="sqs", variable="HORAE_QUEUE"), lead=lead)


def sqs_messages(event: object) -> "list[EventMessage]":
    """Return the messages of the event that Lambda gets from SQS; raises `Malformed` for any other."""
    from horae.queues.sqs.events import messages_of

    return messages_of(event)


async def taken_from_event(queue: Queue | None, messages: "Sequence[EventMessage]") -> dict[str, Taken]:
    """Return the tickets of messages that Lambda got from this queue, by the ids of the messages."""
    from horae.queues.sqs.queue import SqsQueue

    if not isinstance(queue, SqsQueue):
        raise Misconfigured("HORAE_QUEUE must be sqs://REGION/PREFIX for a function that gets its tickets from SQS")
    return await queue.taken_from_event(messages)


@contextlib.asynccontextmanager
async def opened_queue(url: str, *, lead: timedelta = timedelta(seconds=1)) -> AsyncIterator[Queue | None]:
    """Open the queue of an address, and close it at the end.

    Without an answer it is used all the same: until it answers, runs are claimed from the store.
    """
    queue = make_queue(url, lead=lead)
    if queue is None:
        yield None
        return
    try:
        try:
            await queue.open()
        except Unavailable as exc:
            log.warning("queue_unavailable", reason=str(exc))
        yield queue
    finally:
        with contextlib.suppress(Unavailable):  # there is nothing left to say to it
            await queue.close()


def make_blobs(address: str, store: Store) -> Blobs:
    """Return the blobs of an address, which hold logs and large payloads."""
    if address == "store":
        return store.blobs
    if address.startswith("file:///"):
        return FileBlobs(Path(address.removeprefix("file://")))
    if is_object_store(address):
        return ObjectBlobs(open_bucket(address, "HORAE_BLOBS"))
    raise Misconfigured(f"HORAE_BLOBS = {address!r}: must be `store`, file:///a/folder, s3://…, gs://… or az://…")


def blobs_to_prune(blobs: Blobs) -> AgingBlobs | None:
    """Return the blobs if retention has to delete what is old in them; those of a store go with their runs."""
    return blobs if isinstance(blobs, FileBlobs | ObjectBlobs) else None


def make_archive(address: str) -> Files | None:
    """Return where ended runs are archived; None for an empty address."""
    if not address:
        return None
    if address.startswith("file:///"):
        return FolderFiles(Path(address.removeprefix("file://")))
    if is_object_store(address):
        return ObjectFiles(open_bucket(address, "HORAE_ARCHIVE"))
    raise Misconfigured(f"HORAE_ARCHIVE = {address!r}: must be file:///a/folder, s3://…, gs://… or az://…, or empty")


async def try_object_stores(blobs: Blobs, archive: Files | None) -> None:
    """Ask object stores once: no run waits for the first answer then, and what is wrong is said at the start."""
    for each in (blobs, archive):
        if isinstance(each, ObjectBlobs | ObjectFiles):
            try:
                async with asyncio.timeout(FIRST_ANSWER_SECONDS):
                    await each.try_out()
            except (TimeoutError, Unavailable) as exc:
                reason = str(exc) or f"no answer within {FIRST_ANSWER_SECONDS:g} s"
                log.warning("object_store_unavailable", address=each.address, reason=reason)


@contextlib.asynccontextmanager
async def opened_store(url: str, *, own: bool = False) -> AsyncIterator["SqliteStore | PostgresStore | DynamoStore"]:
    """Open the store of an address, and close it at the end.

    A SQLite file that nobody else uses (`own`) is migrated; other stores are migrated by `horae db migrate` alone.
    """
    store = make_store(url)
    if own and isinstance(store, SqliteStore):
        await store.migrate()
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def open_heartbeat_store(url: str) -> Store:
    """Open a connection for the heartbeat alone, which works in the thread that calls it."""
    store: Store = make_store(url, sqlite=InlineExecutor(), listens=False)
    await store.open()
    return store


async def sync_clock(clock: StoreClock, store: Store, *, readings: int = FIRST_READINGS) -> None:
    """Set a clock by a few readings of the store's; the first is slow, because it prepares the statement."""
    for _ in range(readings):
        asked_at = clock.elapsed()
        store_time = await store.time()
        clock.sync(store_time, asked_at=asked_at, answered_at=clock.elapsed())
