"""Blobs as files in a folder."""

import asyncio
import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from horae.core.errors import InternalError, Unavailable

_KEY = re.compile(r"[a-z0-9_-][a-z0-9_.-]*(/[a-z0-9_-][a-z0-9_.-]*)*", re.ASCII)


class FileBlobs:
    """Each blob is a file that appears whole or not at all, and is on the disk before it counts as kept."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def put(self, items: Sequence[tuple[str, bytes]]) -> None:
        await asyncio.to_thread(self._put, items)

    async def get(self, key: str) -> bytes | None:
        return await asyncio.to_thread(self._get, self._path(key))

    async def under(self, prefix: str, *, after: str = "", limit: int = 100) -> list[tuple[str, bytes]]:
        return await asyncio.to_thread(self._under, prefix, after, limit)

    async def delete(self, prefix: str) -> None:
        await asyncio.to_thread(self._delete, prefix)

    def _put(self, items: Sequence[tuple[str, bytes]]) -> None:
        folders = set()
        try:
            for key, data in items:
                path = self._path(key)
                path.parent.mkdir(parents=True, exist_ok=True)
                _write(path, data)
                folders.add(path.parent)
            for folder in folders:
                _sync_folder(folder)
        except OSError as exc:
            raise Unavailable(f"the folder of the blobs cannot be written: {exc}") from exc

    def _get(self, path: Path) -> bytes | None:
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise Unavailable(f"the folder of the blobs cannot be read: {exc}") from exc

    def _under(self, prefix: str, after: str, limit: int) -> list[tuple[str, bytes]]:
        keys = sorted(key for key in self._keys(prefix) if key > after)[:limit]
        found = ((key, self._get(self._path(key))) for key in keys)
        return [(key, data) for key, data in found if data is not None]

    def _keys(self, prefix: str) -> list[str]:
        folder = self._folder / prefix.rpartition("/")[0]
        paths = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
        keys = (path.relative_to(self._folder).as_posix() for path in paths)
        return [key for key in keys if key.startswith(prefix)]

    def _delete(self, prefix: str) -> None:
        if prefix.endswith("/"):
            shutil.rmtree(self._path(prefix.rstrip("/")), ignore_errors=True)
            return
        for key in self._keys(prefix):
            self._path(key).unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        if not _KEY.fullmatch(key):
            raise InternalError(f"{key!r} is no key of a blob")
        return self._folder / key


def _write(path: Path, data: bytes) -> None:
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", delete=False) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(file.name, path)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
