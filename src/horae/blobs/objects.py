"""Keeps blobs, and files of the archive, as objects in S3, Google Cloud Storage or Azure."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any

from horae.blobs.object_store import Bucket
from horae.core.ids import born_at, is_id
from horae.ports.files import File

AT_ONCE = 16  # requests of one call
MAX_LOOK = 20_000  # objects that one `prune` lists
_PAGE = 1000
_NOTHING = "nothing/"  # there is nothing under it


class ObjectBlobs:
    """Keeps each blob in an object of its own."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._pruned_to = ""
        self.address = bucket.address

    async def try_out(self) -> None:
        """Ask for something; raises Unavailable with what is wrong."""
        await self.under(_NOTHING, limit=1)

    async def put(self, items: Sequence[tuple[str, bytes]]) -> None:
        paths = [self._bucket.path(key) for key, _ in items]
        turn = asyncio.Semaphore(AT_ONCE)

        async def put(path: str, data: bytes) -> None:
            async with turn:
                await self._bucket.store.put_async(path, data, use_multipart=False)

        with self._bucket.translated():
            await _all(put(path, data) for path, (_, data) in zip(paths, items, strict=True))

    async def get(self, key: str) -> bytes | None:
        return await _get(self._bucket, key)

    async def under(self, prefix: str, *, after: str = "", limit: int = 100) -> list[tuple[str, bytes]]:
        keys = []
        async for found in _listed(self._bucket, prefix, after, chunk=min(limit, _PAGE)):
            keys += [meta["path"] for meta in found]
            if len(keys) >= limit:
                break
        turn = asyncio.Semaphore(AT_ONCE)

        async def get(key: str) -> tuple[str, bytes | None]:
            async with turn:
                return key, await self.get(key)

        blobs = await _all(get(key) for key in keys[:limit])
        return [(key, data) for key, data in blobs if data is not None]  # some may be deleted while we read

    async def delete(self, prefix: str) -> None:
        async for found in _listed(self._bucket, prefix, ""):
            await self._remove([meta["path"] for meta in found])

    async def prune(self, prefix: str, *, before: datetime, limit: int) -> int:
        """As the port says; the keys of logs begin with ids of runs, which sort by time, so the oldest come first.

        A look ends where the runs are younger than what is to be deleted, and the next begins where it stopped.
        """
        old: list[str] = []
        looked = 0
        async for found in _listed(self._bucket, prefix, self._pruned_to):
            for meta in found:
                key, looked = meta["path"], looked + 1
                if _is_younger(key.removeprefix(prefix), before):
                    self._pruned_to = ""
                    return await self._remove(old)
                if meta["last_modified"] < before:
                    old.append(key)
                if len(old) == limit or looked == MAX_LOOK:
                    self._pruned_to = key
                    return await self._remove(old) or 1  # there is more to look at
        self._pruned_to = ""
        return await self._remove(old)

    async def _remove(self, keys: Sequence[str]) -> int:
        with self._bucket.translated():
            if keys:
                await self._bucket.store.delete_async(keys)
        return len(keys)


class ObjectFiles:
    """Keeps each file of the archive in an object; conditional writes decide between several writers."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self.address = bucket.address

    async def try_out(self) -> None:
        """Ask for something; raises Unavailable with what is wrong."""
        await self.keys(_NOTHING, limit=1)

    async def create(self, key: str, data: bytes) -> bool:
        from obstore.exceptions import AlreadyExistsError

        with self._bucket.translated():
            try:
                await self._bucket.store.put_async(self._bucket.path(key), data, mode="create")
            except AlreadyExistsError:
                return False
        return True

    async def replace(self, key: str, data: bytes, *, version: str) -> bool:
        from obstore.exceptions import PreconditionError

        e_tag, _, number = version.partition("\n")
        mode = {name: value for name, value in (("e_tag", e_tag), ("version", number)) if value}
        with self._bucket.translated():
            try:
                await self._bucket.store.put_async(self._bucket.path(key), data, mode=mode)
            except PreconditionError:
                return False
        return True

    async def read(self, key: str) -> File | None:
        with self._bucket.translated():
            try:
                found = await self._bucket.store.get_async(self._bucket.path(key))
            except FileNotFoundError as exc:
                _refuse_absent_bucket(exc)
                return None
            meta, data = found.meta, await found.bytes_async()
        return File(bytes(data), f"{meta.get('e_tag') or ''}\n{meta.get('version') or ''}")

    async def keys(self, prefix: str, *, after: str = "", limit: int = 1000) -> list[str]:
        keys: list[str] = []
        async for found in _listed(self._bucket, prefix, after, chunk=min(limit, _PAGE)):
            keys += [meta["path"] for meta in found]
            if len(keys) >= limit:
                break
        return keys[:limit]


async def _get(bucket: Bucket, key: str) -> bytes | None:
    with bucket.translated():
        try:
            found = await bucket.store.get_async(bucket.path(key))
        except FileNotFoundError as exc:
            _refuse_absent_bucket(exc)
            return None
        return bytes(await found.bytes_async())


async def _listed(bucket: Bucket, prefix: str, after: str, *, chunk: int = _PAGE) -> AsyncIterator[Sequence[Any]]:
    """Yield pages of what is known of the objects whose keys begin with a prefix and sort after a key, in their order.

    Object stores list whole folders, so the last segment of the prefix is compared here.
    """
    folder, _, _ = prefix.rpartition("/")
    after = max(after, _just_before(prefix)) if prefix != f"{folder}/" else after
    with bucket.translated():
        async for found in bucket.store.list(folder or None, offset=after or None, chunk_size=chunk):
            page = [meta for meta in found if meta["path"].startswith(prefix) and meta["path"] > after]
            if page:
                yield page
            if found and found[-1]["path"] > prefix and not found[-1]["path"].startswith(prefix):
                return


def _just_before(prefix: str) -> str:
    """Return a text that sorts before every key with this prefix, and after those that sort before them."""
    return prefix[:-1] + chr(ord(prefix[-1]) - 1) if prefix else ""


def _is_younger(key: str, before: datetime) -> bool:
    """Whether the key begins with the id of a run that was created at that time or later, as all after it."""
    ident = key.partition("/")[0]
    return is_id(ident) and born_at(ident).astimezone(UTC) >= before


def _refuse_absent_bucket(exc: FileNotFoundError) -> None:
    """Raise the error again if it is the bucket that was not found."""
    if "NoSuchBucket" in str(exc) or "ContainerNotFound" in str(exc):
        raise exc


async def _all(calls: Any) -> list[Any]:
    """Await all; the first error is raised once every call has ended, so that none writes afterwards."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results
