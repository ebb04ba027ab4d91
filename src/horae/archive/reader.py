"""Finds archived runs: by the days from that of their id on, by what the manifests of these days say."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Hashable, Sequence
from datetime import date, timedelta
from typing import Generic, NamedTuple, TypeVar

from horae.archive.id_filter import may_have
from horae.archive.manifest import (
    MANIFESTS,
    Manifest,
    Part,
    day_of_manifest,
    decode_manifest,
    manifest_key,
)
from horae.archive.part import digest_of, lines_of
from horae.archive.record import Archived, beginning_of, decode
from horae.core.errors import InternalError, Unavailable
from horae.core.ids import born_at
from horae.core.model import RunId
from horae.ports.files import Files

MAX_DAYS = 400  # that a look-up goes through, beginning with that of the id
DAYS_SECONDS = 60.0  # how long the list of days is remembered, and that a run is absent
MANIFEST_SECONDS = 600.0  # an amended one is read after that
MAX_CACHED = 64_000_000  # bytes of manifests and filters
MAX_ABSENT = 10_000  # ids that are remembered as absent
LOOKUPS_AT_ONCE = 4  # the others wait
_PAGE = 1000
_DAY = timedelta(days=1)

T = TypeVar("T")


class Archive:
    """Reads the archive; what it remembers is bounded."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._days: tuple[float, Sequence[date]] | None = None
        self._manifests: _Cache[Manifest] = _Cache(MAX_CACHED // 2)
        self._filters: _Cache[bytes] = _Cache(MAX_CACHED // 2)
        self._absent: OrderedDict[RunId, float] = OrderedDict()
        self._turn = asyncio.Semaphore(LOOKUPS_AT_ONCE)

    async def find(self, run_id: RunId) -> Archived | None:
        """Return a run of any owner; None if the archive has none by this id."""
        known = self._absent.get(run_id)
        if known is not None and time.monotonic() - known < DAYS_SECONDS:
            return None
        async with self._turn:
            found = await self._find(run_id)
        if found is None:
            self._absent[run_id] = time.monotonic()
            if len(self._absent) > MAX_ABSENT:
                self._absent.popitem(last=False)
        return found

    async def days(self) -> Sequence[date]:
        """Return the days that are archived, in order; the list may be a minute old."""
        if self._days is None or time.monotonic() - self._days[0] > DAYS_SECONDS:
            keys: list[str] = []
            while page := await self._files.keys(MANIFESTS, after=keys[-1] if keys else "", limit=_PAGE):
                keys += page
            days = sorted(day for key in keys if (day := day_of_manifest(key)) is not None)
            self._days = (time.monotonic(), days)
        return self._days[1]

    async def manifest(self, day: date) -> Manifest | None:
        """Return the manifest of a day; it may be some minutes old."""
        found = self._manifests.get(day, MANIFEST_SECONDS)
        if found is None:
            file = await self._files.read(manifest_key(day))
            if file is None:
                return None
            found = decode_manifest(file.data)
            self._manifests.put(day, found, 4 * len(file.data))
        return found

    async def runs_of(self, part: Part, *, skip: int = 0) -> AsyncIterator[Archived]:
        """Yield the runs of a part, in their order, but for the first `skip`."""
        for number, line in enumerate(lines_of(await self._part(part))):
            if number >= skip:
                yield decode(line)

    async def _find(self, run_id: RunId) -> Archived | None:
        first = born_at(run_id).date() - _DAY  # a clock that was behind may have ended a run before it was born
        for day in [day for day in await self.days() if day >= first][:MAX_DAYS]:
            manifest = await self.manifest(day)
            if manifest is None:
                continue
            for part in await self._parts_that_may_have(manifest, run_id):
                line = await asyncio.to_thread(_line_of, await self._part(part), run_id)
                if line is not None:
                    return decode(line)
        return None

    async def _parts_that_may_have(self, manifest: Manifest, run_id: RunId) -> list[Part]:
        within = [part for part in manifest.parts if part.first_id <= run_id <= part.last_id]
        if not within:
            return []
        filters = self._filters.get(manifest.filters)
        if filters is None:
            filters = await self._read(manifest.filters)
            self._filters.put(manifest.filters, filters, len(filters))
        found, begin = [], 0
        for part in manifest.parts:
            bits = filters[begin : begin + part.filter_bytes]
            begin += part.filter_bytes
            if part.first_id <= run_id <= part.last_id and may_have(bits, run_id):
                found.append(part)
        return found

    async def _part(self, part: Part) -> bytes:
        """Return the file of a part, if it is what the manifest says."""
        data = await self._read(part.file)
        if await asyncio.to_thread(digest_of, data) != part.sha256:
            raise InternalError(f"{part.file} is not what the manifest of its day says: its checksum differs")
        return data

    async def _read(self, key: str) -> bytes:
        file = await self._files.read(key)
        if file is None:
            raise Unavailable(f"{key} is gone from the archive")
        return file.data


def _line_of(data: bytes, run_id: RunId) -> bytes | None:
    begins = beginning_of(run_id)
    return next((line for line in lines_of(data) if line.startswith(begins)), None)


class _Entry(NamedTuple, Generic[T]):
    value: T
    size: int
    read_at: float


class _Cache(Generic[T]):
    """The values that were used last, up to a number of bytes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._size = 0
        self._entries: OrderedDict[Hashable, _Entry[T]] = OrderedDict()

    def get(self, key: Hashable, seconds: float = float("inf")) -> T | None:
        """Return a value that was put within so many seconds."""
        entry = self._entries.get(key)
        if entry is None or time.monotonic() - entry.read_at > seconds:
            return None
        self._entries.move_to_end(key)
        return entry.value

    def put(self, key: Hashable, value: T, size: int) -> None:
        """Keep a value, and drop those that are not used most."""
        if (old := self._entries.pop(key, None)) is not None:
            self._size -= old.size
        self._entries[key] = _Entry(value, size, time.monotonic())
        self._size += size
        while self._size > self._most and len(self._entries) > 1:
            _, dropped = self._entries.popitem(last=False)
            self._size -= dropped.size
