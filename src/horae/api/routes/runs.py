"""Routes of runs."""

from datetime import datetime
from functools import partial
from typing import Any

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from horae.api.auth.guard import Principal, principal
from horae.api.dispatch.acts import acts_of
from horae.api.dispatch.context import Services, services_of
from horae.api.dispatch.idempotency import run_once
from horae.api.dispatch.pages import bounded_page
from horae.api.dispatch.responses import PageView, json_response, location_header, page_response
from horae.api.dispatch.router import resource
from horae.api.http.body import EmptyBody, decode, read_body, read_empty_body
from horae.api.http.operation import Operation, Scope
from horae.api.http.problems import Problem
from horae.api.http.query import PAGING, Query
from horae.api.routes.logs import log_operation, run_log
from horae.api.schemas.filters import DUE, RUN_FILTERS, queried_owner, reached_owner, run_filter
from horae.api.schemas.ids import ID_PREFIX, read_id_prefix, read_run_id
from horae.api.schemas.run_views import RunView, listed_run_view, run_view
from horae.core.errors import NotFound
from horae.core.model import Run, RunId
from horae.core.records import IdempotencyRecord
from horae.core.schedule.timestamps import TICK
from horae.core.values import replace
from horae.jobs.idempotency import Issue
from horae.ports.reader import Listing, RunFilter
from horae.queries.id_prefix import runs_beginning


class AgainBody(Struct, forbid_unknown_fields=True):
    """How to run a failed run again; `params` is a merge patch of its parameters."""

    params: dict[str, Any] | None = None


class WhyView(Struct):
    """Why a run has not started."""

    reason: str
    detail: str
    expected_at: datetime | None


@Operation(
    scope=Scope.READ,
    tag="runs",
    params=(*RUN_FILTERS, DUE, ID_PREFIX, *PAGING),
    answers={200: PageView[RunView], 404: Problem},
    listing=True,
)
async def list_runs(request: Request) -> Response:
    """List runs, by due time, latest first."""
    services, query, who = services_of(request), Query(request), principal(request)
    now = services.clock.now()
    prefix = read_id_prefix(query, "run")
    if prefix is not None:
        found = await runs_beginning(services.store, prefix, owner=reached_owner(query, who), limit=query.limit)
        return page_response([listed_run_view(run, now) for run in found], None)
    which = run_filter(query, now, owner=queried_owner(query, who))
    if query.flag(DUE.name):
        which = replace(which, end_at=min(now + TICK, which.end_at or now + TICK))
    return await run_page(services, which, query)


@Operation(scope=Scope.READ, tag="runs", answers={200: RunView})
async def show(request: Request) -> Response:
    """Show a run and its attempts; one that the store no longer has is looked for in the archive."""
    services, run_id, who = _target_run(request)
    try:
        return await _run_response(services, run_id, who)
    except NotFound:
        archived = await services.queries.archived(run_id, owner=who.reach)
        if archived is None:
            raise
    return json_response(run_view(archived[0], services.clock.now(), archived[1], archived=True))


@Operation(scope=Scope.WRITE, tag="runs", body=EmptyBody, answers={200: RunView, 409: Problem})
async def cancel(request: Request) -> Response:
    """Cancel a run; it is `cancelling` until its worker confirms."""
    services, run_id, who = _target_run(request)
    await services.queries.run(run_id, owner=who.reach)
    await read_empty_body(request)
    await services.jobs.cancel_run(run_id, owner=who.reach)
    return await _run_response(services, run_id, who)


@Operation(scope=Scope.READ, tag="runs", answers={200: WhyView})
async def why(request: Request) -> Response:
    """Explain why a run has not started."""
    services, run_id, who = _target_run(request)
    found = await services.why.explain(run_id, owner=who.reach)
    return json_response(WhyView(reason=found.cause, detail=found.detail, expected_at=found.expected_at))


@Operation(
    scope=Scope.WRITE,
    tag="runs",
    body=AgainBody,
    answers={202: RunView, 409: Problem},
    headers=("Location",),
    idempotent=True,
)
async def retry(request: Request) -> Response:
    """Run a failed run again, as a new run that replaces it."""
    _, run_id, who = _target_run(request)
    acts = acts_of(request)
    await acts.run(run_id)
    data = await read_body(request)

    async def act(issue: Issue[Run] | None) -> Run | IdempotencyRecord:
        return await acts.retry(run_id, decode(data, AgainBody).params, issue)

    return await run_once(request, who, data, act, partial(new_run_response, request))


@log_operation("runs")
async def logs(request: Request) -> Response:
    """Show the log of a run as text, or follow it until the run has ended."""
    _, run_id, _ = _target_run(request)
    return await run_log(request, run_id)


ROUTES = [
    resource("/v1/runs", GET=list_runs),
    resource("/v1/runs/{id}", GET=show),
    resource("/v1/runs/{id}/cancel", POST=cancel),
    resource("/v1/runs/{id}/retry", POST=retry),
    resource("/v1/runs/{id}/why", GET=why),
    resource("/v1/runs/{id}/logs", GET=logs),
]


async def new_run_response(request: Request, run: Run) -> Response:
    """Return a run that was just created as a response, with its path in the header Location."""
    view = listed_run_view(run, services_of(request).clock.now(), [])
    return json_response(view, 202, location_header(request, f"/v1/runs/{view.id}"))


async def run_page(services: Services, which: RunFilter, query: Query) -> Response:
    """Return one page of the runs that a filter and the query select."""
    now = which.now or services.clock.now()

    async def read(cursor: str | None, limit: int, reads: int) -> Listing[Run]:
        return await services.queries.runs(which, cursor=cursor, limit=limit, reads=reads)

    return await bounded_page(query, read, lambda run: listed_run_view(run, now))


async def _run_response(services: Services, run_id: RunId, who: Principal) -> Response:
    run, attempts = await services.queries.run(run_id, owner=who.reach)
    params = await services.queries.params_of(run)
    return json_response(run_view(run, services.clock.now(), attempts, params=params))


def _target_run(request: Request) -> tuple[Services, RunId, Principal]:
    """Return the services, the id of the run in the path, and the principal."""
    who = principal(request)
    return services_of(request), read_run_id(request.path_params["id"]), who
