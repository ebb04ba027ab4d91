"""Keeps blobs as files in a folder, so that they survive a crash of the machine."""

import asyncio
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from itertools import islice
from pathlib import Path

from horae.core.errors import InternalError, Unavailable

_KEY = re.compile(r"(?!\.{1,2}(?:/|$))[a-z0-9_.-]+(?:/(?!\.{1,2}(?:/|$))[a-z0-9_.-]+)*", re.ASCII)
_MARK = "~"  # ends the file names, so that `a` and `a/b` may both be keys; no key contains it


class FileBlobs:
    """Keeps each blob in a file of its own below a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def put(self, items: Sequence[tuple[str, bytes]]) -> None:
        await asyncio.to_thread(self._put, items)

    async def get(self, key: str) -> bytes | None:
        return await asyncio.to_thread(self._get, key)

    async def under(self, prefix: str, *, after: str = "", limit: int = 100) -> list[tuple[str, bytes]]:
        return await asyncio.to_thread(self._under, prefix, after, limit)

    async def delete(self, prefix: str) -> None:
        await asyncio.to_thread(self._delete, prefix)

    async def prune(self, prefix: str, *, before: datetime, limit: int) -> int:
        return await asyncio.to_thread(self._prune, prefix, before.timestamp(), limit)

    def _put(self, items: Sequence[tuple[str, bytes]]) -> None:
        paths = [self._path(key) for key, _ in items]
        with _translated():
            changed = {folder for path in paths for folder in _make_folders(path.parent)}
            for path, (_, data) in zip(paths, items, strict=True):
                _write(path, data)
                changed.add(path.parent)
            for folder in changed:
                _sync(folder)  # a name is as durable as the folder that holds it

    def _get(self, key: str) -> bytes | None:
        path = self._path(key)
        with _translated():
            try:
                return path.read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                return None

    def _under(self, prefix: str, after: str, limit: int) -> list[tuple[str, bytes]]:
        with _translated():
            keys = sorted(key for key in self._keys(prefix) if key > after)
        found = ((key, self._get(key)) for key in keys)
        blobs = ((key, data) for key, data in found if data is not None)  # some may be deleted while we read
        return [blob for blob, _ in zip(blobs, range(limit), strict=False)]

    def _delete(self, prefix: str) -> None:
        with _translated():
            for key in list(self._keys(prefix)):
                self._remove(self._path(key))

    def _prune(self, prefix: str, before: float, limit: int) -> int:
        with _translated():
            paths = (self._path(key) for key in self._keys(prefix))
            old = list(islice((path for path in paths if path.stat().st_mtime < before), limit))
            for path in old:
                self._remove(path)
        return len(old)

    def _keys(self, prefix: str) -> Iterator[str]:
        """Yield the keys that begin with a prefix; only the folder that the prefix names is walked."""
        place, slash, _ = prefix.rpartition("/")
        if slash:
            self._path(place)  # refuses a prefix outside of the folder
        for folder, _, names in os.walk(self._folder / place):
            for name in names:
                key = (Path(folder) / name.removesuffix(_MARK)).relative_to(self._folder).as_posix()
                if name.endswith(_MARK) and key.startswith(prefix):
                    yield key

    def _path(self, key: str) -> Path:
        if _KEY.fullmatch(key) is None:
            raise InternalError(f"{key!r} cannot be the key of a blob")
        path = self._folder / f"{key}{_MARK}"
        if not path.parent.resolve().is_relative_to(self._folder.resolve()):
            raise InternalError(f"the blob {key!r} would be outside of {self._folder}, because of a symbolic link")
        return path

    def _remove(self, path: Path) -> None:
        """Delete a file and the folders that it leaves empty."""
        path.unlink(missing_ok=True)
        folder = path.parent
        with suppress(OSError):  # another process has put something in meanwhile
            while folder != self._folder:
                folder.rmdir()
                folder = folder.parent


def _make_folders(folder: Path) -> list[Path]:
    """Make a folder and its missing parents; return the folders that contain a new one."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)
    return [each.parent for each in missing]


def _write(path: Path, data: bytes) -> None:
    """Replace a file atomically: a crash leaves the old one or the new one."""
    draft = path.with_name(f"{_MARK}{secrets.token_hex(8)}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise Unavailable(f"the blobs cannot be read or written: {exc.strerror or exc}") from exc
