"""From addresses to adapters: the store and the blobs that settings name, and the clock that follows the store."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from horae.blobs.file import FileBlobs
from horae.core.errors import Misconfigured
from horae.ports.blobs import AgingBlobs, Blobs
from horae.ports.clock import StoreClock
from horae.ports.store import Store
from horae.stores.sqlite.executor import InlineExecutor, SqliteExecutor
from horae.stores.sqlite.store import SqliteStore

if TYPE_CHECKING:
    from horae.stores.postgres.store import PostgresStore

FIRST_READINGS = 4  # of the store's clock, before anything is done by it


def make_store(
    url: str, *, sqlite: SqliteExecutor | None = None, listens: bool = True
) -> "SqliteStore | PostgresStore":
    """The store of an address; nothing is opened yet. `sqlite` says where SQLite's work is done.

    One that nobody subscribes to need not listen to what other processes tell.
    """
    scheme = urlsplit(url).scheme
    if scheme == "sqlite":
        return SqliteStore(sqlite_path(url), executor=sqlite)
    if scheme in ("postgresql", "postgres"):
        try:
            from horae.stores.postgres.store import PostgresStore
        except ImportError as exc:
            raise Misconfigured("PostgreSQL needs its driver: pip install 'horae[postgres]'") from exc
        return PostgresStore(url, listens=listens)
    raise Misconfigured(f"HORAE_STORE = {url!r}: must begin with sqlite:/// or postgresql://")


def sqlite_path(url: str) -> Path:
    """The file of a SQLite address: three slashes relative, four absolute."""
    prefix = "sqlite:///"
    if not url.startswith(prefix) or url == prefix:
        raise Misconfigured(f"HORAE_STORE = {url!r}: use sqlite:///relative.db or sqlite:////absolute.db")
    return Path(url.removeprefix(prefix))


def make_blobs(address: str, store: Store) -> Blobs:
    """Where logs and large payloads are kept."""
    if address == "store":
        return store.blobs
    if address.startswith("file:///"):
        return FileBlobs(Path(address.removeprefix("file://")))
    raise Misconfigured(f"HORAE_BLOBS = {address!r}: must be `store` or file:///a/folder")


def aging(blobs: Blobs) -> AgingBlobs | None:
    """The blobs, if they have to be told to forget what is old."""
    return blobs if isinstance(blobs, FileBlobs) else None


@contextlib.asynccontextmanager
async def opened_store(url: str) -> AsyncIterator["SqliteStore | PostgresStore"]:
    """The store of an address while it is open."""
    store = make_store(url)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def heart_store(url: str) -> Store:
    """A connection of its own for the heartbeat, whose thread does the work itself."""
    store: Store = make_store(url, sqlite=InlineExecutor(), listens=False)
    await store.open()
    return store


async def follow_store(clock: StoreClock, store: Store) -> None:
    """Set a new clock by a few answers of the store: the first is slow, for it prepares the statement."""
    for _ in range(FIRST_READINGS):
        asked_at = clock.elapsed()
        store_time = await store.time()
        clock.sync(store_time, asked_at=asked_at, answered_at=clock.elapsed())
