"""Conditional requests: If-Match and If-None-Match against the revision of a job (RFC 9110)."""

from typing import Annotated

from msgspec import Meta
from starlette.requests import Request

from horae.api.http.operation import Param
from horae.core.errors import RevisionChanged
from horae.core.model import Job

Tag = Annotated[str, Meta(pattern=r'^(\*|"[0-9]{1,9}")$')]

IF_MATCH = Param(
    "If-Match", Tag, "the ETag of the job as it was read; 412 if the job has changed since", place="header", example="*"
)
IF_NONE_MATCH = Param("If-None-Match", str, "`*` to create only; 412 if the job already exists", place="header")


def expected_revision(request: Request, job: Job) -> int | None:
    """Return the revision that a change requires, None for any; raises RevisionChanged when the job has another one."""
    refuse_changed(request, job)
    tags = _tags(request, "if-match")
    return None if tags is None or "*" in tags else job.revision


def refuse_changed(request: Request, job: Job | None) -> None:
    """Raise RevisionChanged unless the conditions of a request hold for a job, or for none; weak tags never match."""
    required, excluded = _tags(request, "if-match"), _tags(request, "if-none-match")
    present = set() if job is None else {"*", f'"{job.revision}"'}
    if (required is not None and not present & required) or (excluded is not None and present & excluded):
        raise RevisionChanged("with this key" if job is None else f"job_{job.id}")


def _tags(request: Request, header: str) -> set[str] | None:
    values = request.headers.getlist(header)
    return {tag.strip() for value in values for tag in value.split(",")} if values else None
