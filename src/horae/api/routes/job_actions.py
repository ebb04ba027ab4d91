"""Routes that act on a job: run, backfill, pause, resume."""

from datetime import datetime
from functools import partial

from msgspec import UNSET, Raw, Struct, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from horae.api.auth.guard import principal
from horae.api.dispatch.acts import acts_of
from horae.api.dispatch.context import services_of
from horae.api.dispatch.idempotency import run_once
from horae.api.dispatch.responses import json_response
from horae.api.dispatch.router import resource
from horae.api.http.body import EmptyBody, decode, read_body, read_empty_body
from horae.api.http.operation import Operation, Scope
from horae.api.http.problems import Problem
from horae.api.http.query import read_timestamp
from horae.api.routes.jobs import found_job, job_response
from horae.api.routes.runs import new_run_response
from horae.api.schemas.ids import read_job_id
from horae.api.schemas.job_requests import read_params
from horae.api.schemas.job_views import JobView
from horae.api.schemas.run_views import RunView
from horae.core.model import Misfire, Run
from horae.core.records import IdempotencyRecord
from horae.jobs.backfill import Filling
from horae.jobs.idempotency import Issue


class RunBody(Struct, forbid_unknown_fields=True):
    """How to run a job now; `params` replace those of the job."""

    params: Raw | UnsetType = UNSET


class BackfillBody(Struct, forbid_unknown_fields=True):
    """Which past slots to run, from `start` to `end`, both included."""

    start: str
    end: str


class BackfillView(Struct):
    """Past slots that are being turned into runs."""

    id: str
    job_id: str
    start: datetime
    end: datetime
    runs: int  # still to be created


class ResumeBody(Struct, forbid_unknown_fields=True):
    """How to resume a job; `missed` decides about the slots that came due during the pause."""

    missed: Misfire | None = None


@Operation(
    scope=Scope.WRITE,
    tag="jobs",
    body=RunBody,
    answers={202: RunView, 409: Problem},
    headers=("Location",),
    idempotent=True,
)
async def run_now(request: Request) -> Response:
    """Run a job now, whatever its schedule, even while it is paused."""
    acts, job_id = acts_of(request), read_job_id(request.path_params["id"])
    await acts.job(job_id)
    data = await read_body(request)

    async def act(issue: Issue[Run] | None) -> Run | IdempotencyRecord:
        return await acts.run_now(job_id, read_params(decode(data, RunBody).params), issue)

    return await run_once(request, principal(request), data, act, partial(new_run_response, request))


@Operation(scope=Scope.WRITE, tag="jobs", body=BackfillBody, answers={202: BackfillView, 409: Problem}, idempotent=True)
async def backfill(request: Request) -> Response:
    """Run a recurring job for its past slots from `start` to `end`, whether they have already run or not."""
    acts, job_id = acts_of(request), read_job_id(request.path_params["id"])
    await acts.job(job_id)
    data = await read_body(request)

    async def act(issue: Issue[Filling] | None) -> Filling | IdempotencyRecord:
        body = decode(data, BackfillBody)
        start, end = read_timestamp(body.start, "/start"), read_timestamp(body.end, "/end")
        return await acts.backfill(job_id, start, end, issue)

    async def respond(filling: Filling) -> Response:
        return json_response(_backfill_view(filling), 202)

    return await run_once(request, principal(request), data, act, respond)


@Operation(scope=Scope.WRITE, tag="jobs", body=EmptyBody, answers={200: JobView, 409: Problem}, headers=("ETag",))
async def pause(request: Request) -> Response:
    """Pause a job; its slots are skipped until it is resumed."""
    services, before, who = await found_job(request)
    await read_empty_body(request)
    job = await services.jobs.pause(before.id, owner=who.reach)
    return job_response(await services.queries.overview_of(job))


@Operation(scope=Scope.WRITE, tag="jobs", body=ResumeBody, answers={200: JobView, 409: Problem}, headers=("ETag",))
async def resume(request: Request) -> Response:
    """Resume a paused job."""
    acts, job_id = acts_of(request), read_job_id(request.path_params["id"])
    await acts.job(job_id)
    missed = decode(await read_body(request), ResumeBody).missed or Misfire.SKIP
    job = await acts.resume(job_id, missed)
    return job_response(await services_of(request).queries.overview_of(job))


ROUTES = [
    resource("/v1/jobs/{id}/run", POST=run_now),
    resource("/v1/jobs/{id}/backfill", POST=backfill),
    resource("/v1/jobs/{id}/pause", POST=pause),
    resource("/v1/jobs/{id}/resume", POST=resume),
]


def _backfill_view(filling: Filling) -> BackfillView:
    return BackfillView(
        id=f"backfill_{filling.id}",
        job_id=f"job_{filling.job_id}",
        start=filling.start,
        end=filling.end,
        runs=filling.runs,
    )
