"""Responses with the log of a run: as text, or as an event stream while it is written."""

from collections.abc import AsyncIterator
from time import monotonic
from typing import Literal

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from horae.api.auth.guard import principal
from horae.api.dispatch import sse
from horae.api.dispatch.context import services_of
from horae.api.http.operation import Operation, Param, Scope
from horae.api.http.problems import Problem
from horae.api.http.query import Query
from horae.api.schemas.run_views import ErrorView, error_view
from horae.core.errors import Unavailable
from horae.core.job_rules import run_status
from horae.core.model import JobId, Run, RunId
from horae.queries.log_tail import LogTail

TEXT = "text/plain"
FOLLOW = Param("follow", Literal["0", "1"], "`1` streams server-sent events until the run has ended")


class LogEnd(Struct):
    """How the followed run ended; all null when the job will have no run."""

    run_id: str | None
    status: str | None
    error: ErrorView | None


def log_operation(tag: str) -> Operation:
    """Return the description of an operation that shows or follows a log."""
    return Operation(
        scope=Scope.READ,
        tag=tag,
        params=(FOLLOW, *sse.RESUME),
        media=(TEXT, sse.MEDIA),
        headers=("X-Run-Id",),
        answers={200: None, 410: Problem},
    )


async def run_log(request: Request, run_id: RunId) -> Response:
    """Return the log of a run."""
    services = services_of(request)
    run, _ = await services.queries.run(run_id, owner=principal(request).reach)
    query = Query(request)
    if not _follows(query):
        return _text(request, run)
    tail = services.log_tails.run(run_id, after=sse.last_event_id(request, query))
    return sse.stream(_messages(tail, sse.StreamLifetime(request)), _run_header(run_id))


async def job_log(request: Request, job_id: JobId) -> Response:
    """Return the log of a job's latest due run."""
    services, owner = services_of(request), principal(request).reach
    await services.jobs.find(job_id, owner=owner)
    query = Query(request)
    if not _follows(query):
        return _text(request, await services.queries.last_run(job_id, owner=owner))
    tail = await services.log_tails.job(job_id, after=sse.last_event_id(request, query))
    return sse.stream(_messages(tail, sse.StreamLifetime(request)))


async def _messages(tail: LogTail, lifetime: sse.StreamLifetime) -> AsyncIterator[bytes]:
    yield sse.OPENING
    sent_at = monotonic()
    while not lifetime.ended:
        try:
            chunks = await tail.poll()
        except Unavailable as error:  # the client reconnects, and resumes when the store is available
            yield sse.comment(str(error))
            return
        for chunk in chunks:
            yield sse.message(chunk.text, event="log", ident=chunk.place)
        if tail.ended:
            yield sse.message(msgspec.json.encode(_end(tail.run)), event="end")
            return
        if chunks:
            sent_at = monotonic()
        elif monotonic() - sent_at >= sse.KEEP_ALIVE_SECONDS:
            sent_at = monotonic()
            yield sse.KEEP_ALIVE
        await lifetime.wait(tail.seconds)


def _end(run: Run | None) -> LogEnd:
    if run is None:
        return LogEnd(run_id=None, status=None, error=None)
    status = run_status(run, run.finished_at or run.due_at)
    return LogEnd(run_id=f"run_{run.id}", status=status, error=error_view(run.error))


def _follows(query: Query) -> bool:
    return query.one_of("follow", ("0", "1")) == "1"


def _text(request: Request, run: Run) -> Response:
    text = services_of(request).queries.logs(run.id)
    headers = _run_header(run.id) | {"X-Content-Type-Options": "nosniff"}  # a browser must not render it as HTML
    return StreamingResponse(text, media_type=f"{TEXT}; charset=utf-8", headers=headers)


def _run_header(run_id: RunId) -> dict[str, str]:
    return {"X-Run-Id": f"run_{run_id}"}
