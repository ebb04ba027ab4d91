"""Routes of runs."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from horae.api.auth import Principal, principal
from horae.api.body import decode, read_body
from horae.api.context import answer, page, resource, services_of
from horae.api.filters import RUN_FILTERS, owner_asked_for, run_filter
from horae.api.problems import NotSupported
from horae.api.query import Query
from horae.api.views import run_view
from horae.api.wire import EmptyBody, read_job_id, read_run_id
from horae.core.model import Run, RunId

_EMPTY = msgspec.json.Decoder(EmptyBody)


async def list_runs(request: Request) -> Response:
    """By due time, latest first."""
    services, who = services_of(request), principal(request)
    query = Query(request, *RUN_FILTERS, "limit", "cursor")
    job = query.text("job_id")
    now = services.clock.now()
    which = run_filter(
        query, owner=owner_asked_for(query, who), job_id=None if job is None else read_job_id(job), now=now
    )
    found = await services.inspection.runs(which, cursor=query.cursor, limit=query.limit)
    return page([run_view(run, now) for run in found.items], found.cursor)


async def show(request: Request) -> Response:
    """The run and its attempts."""
    services = services_of(request)
    run_id, who = _asked(request)
    run, attempts = await services.inspection.run(run_id, owner=who.reach)
    return answer(run_view(run, services.clock.now(), attempts))


async def cancel(request: Request) -> Response:
    """The run, `cancelled` or still `cancelling`."""
    services = services_of(request)
    run_id, who = _asked(request)
    await services.inspection.run(run_id, owner=who.reach)
    decode(await read_body(request), EmptyBody, _EMPTY)
    await services.jobs.cancel_run(run_id, owner=who.reach)
    run, attempts = await services.inspection.run(run_id, owner=who.reach)
    return answer(run_view(run, services.clock.now(), attempts))


async def logs(request: Request) -> Response:
    """What the attempts wrote, as text."""
    run_id, who = _asked(request)
    run, _ = await services_of(request).inspection.run(run_id, owner=who.reach)
    return log_response(request, run)


def log_response(request: Request, run: Run) -> Response:
    """The log of a run as a stream of text."""
    if Query(request, "follow").one_of("follow", ("0", "1")) == "1":
        raise NotSupported("follow=1", pointer="/follow")
    text = services_of(request).inspection.logs(run.id)
    return StreamingResponse(text, media_type="text/plain; charset=utf-8", headers={"X-Run-Id": f"run_{run.id}"})


ROUTES = [
    resource("/v1/runs", GET=list_runs),
    resource("/v1/runs/{id}", GET=show),
    resource("/v1/runs/{id}/cancel", POST=cancel),
    resource("/v1/runs/{id}/logs", GET=logs),
]


def _asked(request: Request) -> tuple[RunId, Principal]:
    who = principal(request)
    return read_run_id(request.path_params["id"]), who
