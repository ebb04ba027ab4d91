"""Routes of jobs."""

from datetime import datetime
from typing import Literal

from starlette.requests import Request
from starlette.responses import Response

from horae.api.auth.guard import Principal, principal
from horae.api.dispatch.acts import acts_of
from horae.api.dispatch.context import Services, services_of
from horae.api.dispatch.idempotency import run_once
from horae.api.dispatch.pages import bounded_page
from horae.api.dispatch.responses import PageView, json_response, location_header, page_response
from horae.api.dispatch.router import resource
from horae.api.http.body import read_body
from horae.api.http.conditional import IF_MATCH, IF_NONE_MATCH, expected_revision, refuse_changed
from horae.api.http.operation import Operation, Param, Scope
from horae.api.http.problems import Problem
from horae.api.http.query import PAGING, Count, Query
from horae.api.routes.logs import job_log, log_operation
from horae.api.routes.runs import run_page
from horae.api.schemas.filters import JOB_FILTERS, RUNS_OF_A_JOB, job_filter, reached_owner, run_filter
from horae.api.schemas.ids import ID_PREFIX, read_id_prefix, read_job_id, read_key
from horae.api.schemas.job_requests import (
    JobBody,
    PatchBody,
    ReplacementBody,
    read_job,
    read_patch,
    read_replacement,
)
from horae.api.schemas.job_views import (
    JobView,
    SlotView,
    StatusView,
    UpcomingView,
    job_view,
    slot_view,
    status_view,
    upcoming_view,
)
from horae.api.schemas.run_views import RunView
from horae.core.drafts import Draft
from horae.core.model import Job, JobId
from horae.core.records import IdempotencyRecord
from horae.jobs.idempotency import Issue
from horae.lookup import find_job_by_key
from horae.ports.reader import Listing
from horae.queries.id_prefix import jobs_beginning
from horae.queries.jobs import Overview
from horae.queries.ledger import SlotEntry

Creation = Issue[Job]  # here, because annotations of an inner function are evaluated at every call


@Operation(
    scope=Scope.WRITE,
    tag="jobs",
    body=JobBody,
    answers={201: JobView, 409: Problem},
    headers=("ETag", "Location"),
    idempotent=True,
)
async def create(request: Request) -> Response:
    """Create a job."""
    acts, services = acts_of(request), services_of(request)
    data = await read_body(request)

    async def act(issue: Creation | None) -> Job | IdempotencyRecord:
        return await acts.create(read_job(data), issue)

    async def respond(job: Job) -> Response:
        return job_response(await services.queries.overview_of_new(job), 201, _location(request, job))

    return await run_once(request, principal(request), data, act, respond)


@Operation(
    scope=Scope.READ,
    tag="jobs",
    params=(*JOB_FILTERS, ID_PREFIX, *PAGING),
    answers={200: PageView[JobView]},
    listing=True,
)
async def list_jobs(request: Request) -> Response:
    """List jobs, newest first."""
    services, query, who = services_of(request), Query(request), principal(request)
    prefix = read_id_prefix(query, "job")
    if prefix is not None:
        found = await jobs_beginning(services.store, prefix, owner=reached_owner(query, who), limit=query.limit)
        return page_response([job_view(each) for each in await services.queries.overviews_of(found)], None)
    which = job_filter(query, who, services.clock.now())

    async def read(cursor: str | None, limit: int, reads: int) -> Listing[Overview]:
        return await services.queries.jobs(which, cursor=cursor, limit=limit, reads=reads)

    return await bounded_page(query, read, job_view)


@Operation(scope=Scope.READ, tag="jobs", answers={200: JobView}, headers=("ETag",))
async def show(request: Request) -> Response:
    """Show a job."""
    services, job_id, who = _target_job(request)
    return job_response(await services.queries.job(job_id, owner=who.reach))


@Operation(
    scope=Scope.WRITE,
    tag="jobs",
    body=PatchBody,
    takes=("application/json", "application/merge-patch+json"),
    params=(IF_MATCH,),
    answers={200: JobView, 409: Problem, 412: Problem},
    headers=("ETag",),
)
async def patch(request: Request) -> Response:
    """Change some fields of a job by a merge patch."""
    services, job_id, who = _target_job(request)
    before = await services.queries.job(job_id, owner=who.reach)
    expected = expected_revision(request, before.job)
    data = await read_body(request)

    async def revise(job: Job) -> Draft:
        overview = before if job == before.job else await services.queries.overview_of(job)
        return read_patch(data, overview)

    job = await acts_of(request).patch(job_id, revise, expected=expected)
    return job_response(await services.queries.overview_of(job))


@Operation(
    scope=Scope.WRITE,
    tag="jobs",
    body=ReplacementBody,
    params=(IF_MATCH,),
    answers={200: JobView, 409: Problem, 412: Problem},
    headers=("ETag",),
)
async def put(request: Request) -> Response:
    """Replace a job.

    Fields that are left out get their defaults, but secrets that are left out are kept. Read-only fields are ignored,
    so that the response to a GET can be changed and sent back.
    """
    services, before, _ = await found_job(request)
    expected = expected_revision(request, before)
    draft = read_replacement(await read_body(request), before.spec.key)

    async def revise(job: Job) -> Draft:
        return draft

    job = await acts_of(request).patch(before.id, revise, expected=expected)
    return job_response(await services.queries.overview_of(job))


@Operation(
    scope=Scope.WRITE,
    tag="jobs",
    body=ReplacementBody,
    params=(IF_MATCH, IF_NONE_MATCH),
    answers={200: JobView, 201: JobView, 409: Problem, 412: Problem},
    headers=("ETag", "Location"),
)
async def put_by_key(request: Request) -> Response:
    """Create the job with this key, or replace it.

    A job that already matches the body is left unchanged. To turn a one-shot job into a recurring one, or the reverse,
    the old job is cancelled and a new one gets the key.
    """
    who, services = principal(request), services_of(request)
    key = read_key(request.path_params["key"])
    before = await find_job_by_key(services.store, who.owner, key)
    refuse_changed(request, before)
    draft = read_replacement(await read_body(request), key)
    done = await acts_of(request).put(draft, before, check=lambda there: refuse_changed(request, there))
    overview = services.queries.overview_of_new if done.created else services.queries.overview_of
    return job_response(await overview(done.job), 201 if done.created else 200, _location(request, done.job))


@Operation(
    scope=Scope.WRITE,
    tag="jobs",
    params=(
        Param("running", Literal["cancel", "keep"], "whether runs in progress are cancelled or kept; default `cancel`"),
    ),
    answers={200: JobView, 409: Problem},
    headers=("ETag",),
)
async def cancel(request: Request) -> Response:
    """Cancel a job and its waiting runs, and the running ones unless `running=keep`."""
    services, before, who = await found_job(request)
    running = Query(request).one_of("running", ("cancel", "keep"))
    job = await services.jobs.cancel(before.id, keep_running=running == "keep", owner=who.reach)
    return job_response(await services.queries.overview_of(job))


@Operation(scope=Scope.READ, tag="jobs", answers={200: StatusView})
async def status(request: Request) -> Response:
    """Show the status of a job's latest due run."""
    services, job_id, who = _target_job(request)
    return json_response(status_view(await services.queries.status(job_id, owner=who.reach)))


@Operation(
    scope=Scope.READ, tag="jobs", params=(*RUNS_OF_A_JOB, *PAGING), answers={200: PageView[RunView]}, listing=True
)
async def list_runs(request: Request) -> Response:
    """List the runs of a job, by due time, latest first."""
    services, job, _ = await found_job(request)
    query = Query(request)
    which = run_filter(query, services.clock.now(), owner=job.owner, job_id=job.id)
    return await run_page(services, which, query)


@Operation(
    scope=Scope.READ,
    tag="jobs",
    params=(Param("count", Count, "how many times; default 10"),),
    answers={200: PageView[UpcomingView]},
)
async def upcoming(request: Request) -> Response:
    """List the times at which a job will run next."""
    services, job, who = await found_job(request)
    count = Query(request).number("count", 10, 1000)
    found = await services.queries.upcoming(job.id, count, owner=who.reach)
    return page_response([upcoming_view(one) for one in found], None)


@Operation(
    scope=Scope.READ,
    tag="jobs",
    params=(
        Param("start", datetime, "slots from this time on; default the job's creation"),
        Param("end", datetime, "slots up to this time, at most ten years ahead; default now"),
        *PAGING,
    ),
    answers={200: PageView[SlotView]},
    listing=True,
)
async def slots(request: Request) -> Response:
    """List the outcome of every slot of a job: the ledger."""
    services, job, who = await found_job(request)
    query = Query(request)
    start, end = query.time("start"), query.time("end")

    async def read(cursor: str | None, limit: int, _reads: int) -> Listing[SlotEntry]:
        return await services.queries.slots(job.id, owner=who.reach, start=start, end=end, cursor=cursor, limit=limit)

    return await bounded_page(query, read, slot_view)


@log_operation("jobs")
async def logs(request: Request) -> Response:
    """Show the log of a job's latest due run as text, or follow it until the run has ended."""
    _, job_id, _ = _target_job(request)
    return await job_log(request, job_id)


ROUTES = [
    resource("/v1/jobs", POST=create, GET=list_jobs),
    resource("/v1/jobs/by-key/{key:path}", PUT=put_by_key),
    resource("/v1/jobs/{id}", GET=show, PUT=put, PATCH=patch, DELETE=cancel),
    resource("/v1/jobs/{id}/status", GET=status),
    resource("/v1/jobs/{id}/runs", GET=list_runs),
    resource("/v1/jobs/{id}/next", GET=upcoming),
    resource("/v1/jobs/{id}/slots", GET=slots),
    resource("/v1/jobs/{id}/logs", GET=logs),
]


async def found_job(request: Request) -> tuple[Services, Job, Principal]:
    """Return the services, the job in the path, and the principal; raises NotFound before anything else is read."""
    services, job_id, who = _target_job(request)
    return services, await services.jobs.find(job_id, owner=who.reach), who


def _target_job(request: Request) -> tuple[Services, JobId, Principal]:
    """Return the services, the id of the job in the path, and the principal."""
    who = principal(request)
    return services_of(request), read_job_id(request.path_params["id"]), who


def job_response(overview: Overview, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a job as a response, with its revision as the ETag."""
    etag = {"ETag": f'"{overview.job.revision}"'}
    return json_response(job_view(overview), status, etag if headers is None else etag | headers)


def _location(request: Request, job: Job) -> dict[str, str]:
    return location_header(request, f"/v1/jobs/job_{job.id}")
