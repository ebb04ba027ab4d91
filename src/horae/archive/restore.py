"""Brings archived runs back into the history of the store, where they stay as long as history does."""

from collections.abc import Sequence
from datetime import date

from horae.archive.reader import Archive
from horae.archive.record import Archived
from horae.core.changes import Change, RunRestored
from horae.core.errors import Invalid, NotFound
from horae.core.model import Run, RunId
from horae.core.values import Value, replace
from horae.ports.blobs import Blobs
from horae.ports.clock import Clock
from horae.ports.store import Store

MOST = 1000  # runs that one call restores
_BATCH = 100  # runs in one write


class Restored(Value, frozen=True, kw_only=True):
    """What a call has restored; what was in the store already counts."""

    runs: int
    missing: Sequence[RunId] = ()
    cursor: str | None = None  # continues behind what was looked at; None at the end


class Restorer:
    """Restores runs by id or by day; to do so again changes nothing.

    `owner` None reaches the runs of all owners. What was restored is not archived again.
    """

    def __init__(self, archive: Archive, store: Store, blobs: Blobs, clock: Clock) -> None:
        self._archive = archive
        self._store = store
        self._blobs = blobs
        self._clock = clock

    async def runs(self, run_ids: Sequence[RunId], *, owner: str | None) -> Restored:
        """Restore runs by id, at most MOST; those of other owners are missing."""
        found, missing = [], []
        for run_id in dict.fromkeys(run_ids):
            archived = await self._archive.find(run_id)
            if archived is None or owner not in (None, archived.run.owner):
                missing.append(run_id)
            else:
                found.append(archived)
        await self._write(found)
        return Restored(runs=len(found), missing=missing)

    async def day(self, day: date, *, owner: str | None, cursor: str | None) -> Restored:
        """Restore the runs that ended on a day, at most MOST of one part a call."""
        manifest = await self._archive.manifest(day)
        if manifest is None:
            raise NotFound("archived day", day.isoformat())
        number, skip = _place(cursor)
        if number >= len(manifest.parts):
            return Restored(runs=0)
        found, looked = [], 0
        async for archived in self._archive.runs_of(manifest.parts[number], skip=skip):
            looked += 1
            if owner in (None, archived.run.owner):
                found.append(archived)
            if len(found) == MOST:
                break
        await self._write(found)
        if skip + looked < manifest.parts[number].runs:
            return Restored(runs=len(found), cursor=f"{number}.{skip + looked}")
        return Restored(runs=len(found), cursor=f"{number + 1}.0" if number + 1 < len(manifest.parts) else None)

    async def _write(self, found: Sequence[Archived]) -> None:
        for begin in range(0, len(found), _BATCH):
            batch = found[begin : begin + _BATCH]
            blobs = [
                (each.params_blob, each.run.spec.params.encode()) for each in batch if each.params_blob is not None
            ]
            await self._blobs.put([(key, data) for key, data in blobs if key is not None])
            now = self._clock.now()
            restored = [RunRestored(_as_stored(each), tuple(each.attempts), now) for each in batch]
            await self._store.apply([Change(puts=(each,)) for each in restored])


def _as_stored(archived: Archived) -> Run:
    """Return the run as it was in the store, with large parameters in a blob."""
    if archived.params_blob is None:
        return archived.run
    return replace(archived.run, spec=replace(archived.run.spec, params="{}", params_blob=archived.params_blob))


def _place(cursor: str | None) -> tuple[int, int]:
    number, _, skip = (cursor or "0.0").partition(".")
    if not (number.isdecimal() and skip.isdecimal() and len(number) < 9 and len(skip) < 9):
        raise Invalid("the cursor is not one that this server gave out; begin again without it", pointer="/cursor")
    return int(number), int(skip)
