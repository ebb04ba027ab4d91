"""Conditional requests: If-Match and If-None-Match against the revision of a job (RFC 9110)."""

from typing import Annotated

from msgspec import Meta
from starlette.requests import Request

from horae.api.http.operation import Param
from horae.core.errors import RevisionChanged
from horae.core.model import Job

Tag = Annotated[str, Meta(pattern=r'^(\*|"[0-9]{1,9}")$')]

IF_MATCH = Param(
    name="If-Match",
    place="header",
    schema=Tag,
    description="the ETag of the job as it was read; 412 if it has changed",
    example="*",
)
IF_NONE_MATCH = Param(
    name="If-None-Match", place="header", schema=str, description="`*`: create only; 412 if there is a job already"
)


def expected_revision(request: Request, job: Job) -> int | None:
    """The revision that a change must meet, None for any; raises RevisionChanged when the job has another by now."""
    refuse_changed(request, job)
    tags = _tags(request, "if-match")
    return None if tags is None or "*" in tags else job.revision


def refuse_changed(request: Request, job: Job | None) -> None:
    """Raise RevisionChanged when the conditions of a request do not hold for what is there; weak tags never do."""
    wanted, unwanted = _tags(request, "if-match"), _tags(request, "if-none-match")
    there = set() if job is None else {"*", f'"{job.revision}"'}
    if (wanted is not None and not there & wanted) or (unwanted is not None and there & unwanted):
        raise RevisionChanged("with this key" if job is None else f"job_{job.id}")


def _tags(request: Request, header: str) -> set[str] | None:
    values = request.headers.getlist(header)
    return {tag.strip() for value in values for tag in value.split(",")} if values else None
