"""Keeps the files of the archive in a folder, as they are, for whatever reads such files."""

import asyncio
import fcntl
import hashlib
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from horae.core.errors import InternalError, Unavailable
from horae.ports.files import File

_KEY = re.compile(r"(?!\.)[A-Za-z0-9_.=-]+(?:/(?!\.)[A-Za-z0-9_.=-]+)*", re.ASCII)
_DRAFT = "."  # begins the names of files that are being written; no key does


class FolderFiles:
    """Keeps each file by its key below a folder; links decide between several writers."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def create(self, key: str, data: bytes) -> bool:
        return await asyncio.to_thread(self._create, key, data)

    async def replace(self, key: str, data: bytes, *, version: str) -> bool:
        return await asyncio.to_thread(self._replace, key, data, version)

    async def read(self, key: str) -> File | None:
        return await asyncio.to_thread(self._read, key)

    async def keys(self, prefix: str, *, after: str = "", limit: int = 1000) -> list[str]:
        return await asyncio.to_thread(self._keys, prefix, after, limit)

    def _create(self, key: str, data: bytes) -> bool:
        path = self._path(key)
        with self._translated(), self._draft(path, data) as draft:
            try:
                os.link(draft, path)
            except FileExistsError:
                return False
            self._sync(path.parent)
        return True

    def _replace(self, key: str, data: bytes, version: str) -> bool:
        path = self._path(key)
        with self._translated(), self._draft(path, data) as draft, open(path.parent / ".lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # there is no rename that compares
            found = self._read(key)
            if found is None or found.version != version:
                return False
            os.replace(draft, path)
            self._sync(path.parent)
        return True

    def _read(self, key: str) -> File | None:
        with self._translated():
            try:
                data = self._path(key).read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                return None
        return File(data, hashlib.sha256(data).hexdigest())

    def _keys(self, prefix: str, after: str, limit: int) -> list[str]:
        found = []
        with self._translated():
            for folder, _, names in os.walk(self._folder / prefix):
                place = Path(folder).relative_to(self._folder).as_posix()
                found += [f"{place}/{name}" for name in names if not name.startswith(_DRAFT)]
        return sorted(key for key in found if key > after)[:limit]

    def _path(self, key: str) -> Path:
        if _KEY.fullmatch(key) is None:
            raise InternalError(f"{key!r} cannot be the key of a file")
        return self._folder / key

    @contextmanager
    def _draft(self, path: Path, data: bytes) -> Iterator[Path]:
        """Write the data durably beside a path, and remove it at the end; folders that are missing are made."""
        self._make_folder(path.parent)
        draft = path.with_name(f"{_DRAFT}{secrets.token_hex(8)}")
        try:
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            yield draft
        finally:
            with suppress(FileNotFoundError):
                draft.unlink()

    def _make_folder(self, folder: Path) -> None:
        missing = [each for each in (folder, *folder.parents) if not each.exists()]
        for each in reversed(missing):
            each.mkdir(mode=0o700, exist_ok=True)
            self._sync(each.parent)  # a name is as durable as the folder that holds it

    def _sync(self, folder: Path) -> None:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            raise Unavailable(f"{self._folder} cannot be read or written: {exc.strerror or exc}") from exc
