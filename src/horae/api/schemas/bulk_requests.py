"""Requests that act on many jobs or runs: their bodies, and what these select.

A filter has the fields of the list's query parameters; it is made from them, so that the two cannot differ.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, cast

import msgspec
from msgspec import Meta, Struct

from horae.api.auth.guard import Principal
from horae.api.http.operation import Param
from horae.api.http.query import Cursor, FilterFields
from horae.api.schemas.filters import (
    JOB_FILTERS,
    JOB_ID_PATTERN,
    RUN_FILTERS,
    job_filter,
    queried_owner,
    run_filter,
)
from horae.api.schemas.ids import read_job_ids, read_run_ids
from horae.core.errors import Invalid, NotFound
from horae.core.lifecycle import FINAL
from horae.core.model import Job, JobStatus, Misfire, Run, State
from horae.core.values import replace
from horae.jobs.bulk.acts import MAX_ITEMS
from horae.jobs.bulk.pages import Find, ReadPage, pages_of_ids, pages_of_lists
from horae.ports.reader import JobFilter, Listing, Reader, RunFilter

JobAction = Literal["pause", "resume", "cancel", "run"]
RunAction = Literal["cancel", "retry"]

Ids = Annotated[list[str], Meta(min_length=1, max_length=MAX_ITEMS)]
Timestamp = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
_READ_LATER = {"job_id": Annotated[str, Meta(extra_json_schema={"pattern": JOB_ID_PATTERN})]}

# What an act can change, where the filter names no status.
JOB_STATUSES: Mapping[JobAction, Sequence[JobStatus]] = {
    "pause": [JobStatus.SCHEDULED],
    "resume": [JobStatus.PAUSED],
    "cancel": [JobStatus.SCHEDULED, JobStatus.PAUSED],
    "run": [JobStatus.SCHEDULED, JobStatus.PAUSED],
}
_LIVE = frozenset(State) - FINAL
_FAILED = frozenset({State.FAILED})


class BulkBody(Struct, forbid_unknown_fields=True, kw_only=True):
    """What the bodies of all bulk acts have."""

    ids: Ids | None = None
    filter: Struct | None = None
    dry_run: bool = False
    cursor: Cursor | None = None


class JobBulk(BulkBody, forbid_unknown_fields=True, kw_only=True):
    """An act on many jobs, selected by their ids or by a filter; `missed` is that of resume."""

    action: JobAction
    missed: Misfire | None = None


class RunBulk(BulkBody, forbid_unknown_fields=True, kw_only=True):
    """An act on many runs, selected by their ids or by a filter."""

    action: RunAction


def _with_filter(kind: type[Struct], name: str, params: Sequence[Param], subject: str) -> type[Struct]:
    """Return a body whose filter has the fields of query parameters."""
    doc = f"Selects {subject} as their list does; `{{}}` selects all of one's own that the act can change."
    fields = [(param.name, _field_type(param) | None, None) for param in params]
    fitting = msgspec.defstruct(f"{name}FilterBody", fields, namespace={"__doc__": doc}, forbid_unknown_fields=True)
    return msgspec.defstruct(
        f"{name}BulkBody",
        [("filter", fitting | None, None)],
        bases=(kind,),
        namespace={"__doc__": kind.__doc__},
        forbid_unknown_fields=True,
        kw_only=True,
    )


def _field_type(param: Param) -> Any:
    """Return the type of a query parameter in a body; ids and timestamps are checked where they are read."""
    kind = _READ_LATER.get(param.name, Timestamp if param.schema is datetime else param.schema)
    return Annotated[kind, Meta(description=param.description)]


JobBulkBody = cast(type[JobBulk], _with_filter(JobBulk, "Job", JOB_FILTERS, "jobs"))
RunBulkBody = cast(type[RunBulk], _with_filter(RunBulk, "Run", RUN_FILTERS, "runs"))


def selected_jobs(body: JobBulk, who: Principal, reader: Reader, find: Find[Job], *, now: datetime) -> ReadPage[Job]:
    """Return the pages of the jobs that a body selects; `find` looks up ids."""
    given = _filter_of(body)
    if given is None:
        return pages_of_ids(read_job_ids(body.ids or ()), find)
    which = job_filter(given, who, now)
    statuses = JOB_STATUSES[body.action] if which.status is None else [which.status]
    return pages_of_lists([_list_of_jobs(reader, replace(which, status=status)) for status in statuses])


def _list_of_jobs(reader: Reader, which: JobFilter) -> ReadPage[Job]:
    async def read(cursor: str | None, limit: int) -> Listing[Job]:
        return await reader.list_jobs(which, cursor=cursor, limit=limit)

    return read


def selected_runs(body: RunBulk, who: Principal, reader: Reader, find: Find[Run], *, now: datetime) -> ReadPage[Run]:
    """Return the pages of the runs that a body selects; `find` looks up ids."""
    given = _filter_of(body)
    if given is None:
        return pages_of_ids(read_run_ids(body.ids or ()), find)
    try:
        which = run_filter(given, now, owner=queried_owner(given, who))
    except NotFound as exc:
        raise Invalid("filter.job_id is not the id of a job (job_…)", pointer="/filter/job_id") from exc
    which = _changeable(which, body.action)

    async def read(cursor: str | None, limit: int) -> Listing[Run]:
        return await reader.list_runs(which, cursor=cursor, limit=limit)

    return read


def _changeable(which: RunFilter, action: RunAction) -> RunFilter:
    """Return the filter without runs that the act cannot change, unless it asks for them by their status."""
    if action == "retry":
        return replace(which, dead_letters=True) if which.states in (None, _FAILED) else which
    return replace(which, states=_LIVE, stopping=False) if which.states is None else which


def _filter_of(body: BulkBody) -> FilterFields | None:
    """Return the filter of a body, or None if it has ids; raises Invalid when it has both, or neither."""
    if (body.ids is None) == (body.filter is None):
        raise Invalid("give either ids or filter; an empty filter selects all of your own")
    if body.filter is None:
        return None
    given = msgspec.to_builtins(body.filter)
    return FilterFields({name: _text(value) for name, value in given.items() if value is not None})


def _text(value: object) -> str:
    """Return a value as a query parameter has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
