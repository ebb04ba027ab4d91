"""Writes a day of history to the archive, part after part.

The parts of a day form a chain: each begins where the one before it ended, and is created only if nobody else has. So a
process that comes later, or works at the same time, takes over what is there and goes on behind it: no run is written
twice, and no crash leaves anything that has to be cleaned up. What the manifest names is archived; it comes last.
"""

import asyncio
from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from datetime import date

import structlog

from horae.archive.manifest import (
    Manifest,
    decode_manifest,
    encode_manifest,
    end_of,
    manifest_key,
    manifest_of,
    part_key,
)
from horae.archive.part import FilledPart, PartWriter, describe, lines_of
from horae.archive.record import decode, encode, id_of
from horae.core.errors import Unavailable
from horae.core.model import Attempt, Job, JobId, Run, RunId
from horae.ports.blobs import Blobs
from horae.ports.files import Files
from horae.ports.store import Store

log = structlog.get_logger(__name__)

PAGE = 500  # runs that are read at a time


class DayWriter:
    """Writes one day; each step is a part."""

    def __init__(self, store: Store, blobs: Blobs, files: Files, day: date) -> None:
        self.day = day
        self.manifest: Manifest | None = None  # once it is durable
        self._store = store
        self._blobs = blobs
        self._files = files
        self._parts: list[FilledPart] = []
        self._last: Run | None = None  # of the last part

    async def open(self) -> None:
        """Take over what the archive has of the day."""
        found = await self._files.read(manifest_key(self.day))
        if found is not None:
            self.manifest = decode_manifest(found.data)
            return
        while await self._take_over():
            pass
        if self._parts:
            log.info("archive_day_continued", day=str(self.day), parts=len(self._parts))

    async def step(self) -> FilledPart | None:
        """Write the next part, or take over somebody else's; None when the manifest is durable."""
        if self.manifest is not None:
            return None
        data = await self._fill()
        if data is None:
            self.manifest = await self._finish()
            return None
        key = part_key(self.day, len(self._parts) + 1)
        if not await self._files.create(key, data):
            await self._take_over()
            return self._parts[-1]
        self._add(await asyncio.to_thread(describe, key, data))
        return self._parts[-1]

    async def amend(self) -> int:
        """Add the runs that the store has of the day and the archive has not; how many.

        There are none unless a clock was set back: a day is archived long after the last of its results was due.
        """
        file = await self._files.read(manifest_key(self.day))
        if file is None:
            raise Unavailable(f"the manifest of {self.day} is gone from the archive")
        manifest = decode_manifest(file.data)
        parts = [await self._described(part.file) for part in manifest.parts]
        known = await self._ids(manifest)
        writer, last, added = PartWriter(), None, 0
        while (page := await self._page(last)) and not writer.full:
            late = [run for run in page if not _among(known, run.id)]
            await self._write(writer, late)
            last, added = page[-1], added + len(late)
        if not writer.empty:
            key = part_key(self.day, len(parts) + 1)
            if await self._files.create(key, writer.finish()):
                log.warning("archive_day_amended", day=str(self.day), runs=added)
            parts.append(await self._described(key))
            await self._write_filters(amended := manifest_of(self.day, tuple(each.part for each in parts)), parts)
            await self._files.replace(manifest_key(self.day), encode_manifest(amended), version=file.version)
        found = await self._files.read(manifest_key(self.day))
        self.manifest = None if found is None else decode_manifest(found.data)
        return added

    async def _fill(self) -> bytes | None:
        """Return the next part; None when there is nothing behind the last one."""
        writer, last = PartWriter(), self._last
        while not writer.full:
            page = await self._page(last)
            await self._write(writer, page)
            if len(page) < PAGE:
                break
            last = page[-1]
        return None if writer.empty else await asyncio.to_thread(writer.finish)

    async def _page(self, last: Run | None) -> Sequence[Run]:
        """Return runs of the day behind the last one; none when another process has deleted them meanwhile."""
        page = await self._store.ended(before=end_of(self.day), after=last, limit=PAGE)
        return page.runs if page is not None and page.day == self.day else ()

    async def _write(self, writer: PartWriter, runs: Sequence[Run]) -> None:
        if not runs:
            return
        attempts = await self._store.attempts([run.id for run in runs])
        jobs = await self._store.jobs(list({run.job_id for run in runs if not run.one_shot}))
        params = {run.id: await self._params(run) for run in runs if run.spec.params_blob is not None}
        await asyncio.to_thread(_add_lines, writer, runs, attempts, jobs, params)

    async def _params(self, run: Run) -> str:
        assert run.spec.params_blob is not None
        data = await self._blobs.get(run.spec.params_blob)
        if data is None:
            log.warning("archived_without_params", run=run.id, blob=run.spec.params_blob)
            return "null"
        return data.decode()

    async def _take_over(self) -> bool:
        """Add the part behind the last one, if somebody has written it."""
        key = part_key(self.day, len(self._parts) + 1)
        found = await self._files.read(key)
        if found is None:
            return False
        self._add(await asyncio.to_thread(describe, key, found.data))
        return True

    def _add(self, filled: FilledPart) -> None:
        self._parts.append(filled)
        self._last = decode(filled.last_line).run

    async def _finish(self) -> Manifest:
        """Write the manifest, unless another process was first: then theirs counts."""
        manifest = manifest_of(self.day, tuple(each.part for each in self._parts))
        await self._write_filters(manifest, self._parts)
        await self._files.create(manifest_key(self.day), encode_manifest(manifest))
        found = await self._files.read(manifest_key(self.day))
        if found is None:
            raise Unavailable(f"the manifest of {self.day} was written to the archive and cannot be read")
        return decode_manifest(found.data)

    async def _write_filters(self, manifest: Manifest, parts: Sequence[FilledPart]) -> None:
        await self._files.create(manifest.filters, b"".join(each.filter for each in parts))

    async def _described(self, key: str) -> FilledPart:
        found = await self._files.read(key)
        if found is None:
            raise Unavailable(f"{key} is gone from the archive")
        return await asyncio.to_thread(describe, key, found.data)

    async def _ids(self, manifest: Manifest) -> "array[int]":
        """Return the ids of a day, eight bytes of each, in order."""
        found = array("Q")
        for part in manifest.parts:
            file = await self._files.read(part.file)
            assert file is not None, "it was just described"
            found.extend(_short(id_of(line)) for line in lines_of(file.data))
        return array("Q", sorted(found))


def _add_lines(
    writer: PartWriter,
    runs: Sequence[Run],
    attempts: Mapping[RunId, Sequence[Attempt]],
    jobs: Mapping[JobId, Job],
    params: Mapping[RunId, str],
) -> None:
    for run in runs:
        job = jobs.get(run.job_id)
        schedule = run.schedule if job is None else job.schedule
        text = params.get(run.id, run.spec.params)
        writer.add(encode(run, attempts.get(run.id, ()), params=text, schedule=schedule))


def _short(run_id: str) -> int:
    """Return the half of an id that is random."""
    return int(run_id[16:], 16)


def _among(known: "array[int]", run_id: str) -> bool:
    place = bisect_left(known, _short(run_id))
    return place < len(known) and known[place] == _short(run_id)
