"""Finds jobs and runs by the first digits of their ids: a bounded look at one range of the index of ids."""

from collections.abc import Sequence
from typing import Literal

from horae.core.errors import Invalid
from horae.core.model import Job, JobId, Run, RunId
from horae.ports.reader import Reader

MAX_LOOK = 1_000  # ids of the range that are looked at, of all owners
MOST_FOUND = 20  # that are returned, because each may have a large result
DIGITS = 32


async def jobs_beginning(reader: Reader, prefix: str, *, owner: str | None, limit: int) -> Sequence[Job]:
    """Return the newest jobs whose ids begin with these digits; raises Invalid if it cannot tell which do."""
    ids = [JobId(ident) for ident in await _ids(reader, "job", prefix, owner)][: min(limit, MOST_FOUND)]
    found = await reader.jobs(ids)
    return [found[job_id] for job_id in ids if job_id in found]


async def runs_beginning(reader: Reader, prefix: str, *, owner: str | None, limit: int) -> Sequence[Run]:
    """Return the newest runs whose ids begin with these digits; raises Invalid if it cannot tell which do."""
    ids = [RunId(ident) for ident in await _ids(reader, "run", prefix, owner)][: min(limit, MOST_FOUND)]
    found = await reader.runs(ids)
    return [found[run_id] for run_id in ids if run_id in found]


async def _ids(reader: Reader, kind: Literal["job", "run"], prefix: str, owner: str | None) -> list[str]:
    known = await reader.ids(prefix.ljust(DIGITS, "0"), prefix.ljust(DIGITS, "f"), limit=MAX_LOOK)
    found = [each.id for each in known if getattr(each, kind) and owner in (None, each.owner)]
    if len(found) < 2 and len(known) == MAX_LOOK:  # there may be others behind those that were looked at
        raise Invalid(f"too many ids begin with {prefix!r}; give more digits", pointer="/id_prefix")
    return found
