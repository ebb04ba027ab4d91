"""Routes of jobs."""

import asyncio

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from horae.api.auth import Principal, principal
from horae.api.body import MAX_BATCH_BODY, decode, read_body
from horae.api.context import answer, page, resource, services_of
from horae.api.filters import JOB_FILTERS, RUN_FILTERS, job_filter, run_filter
from horae.api.problems import problem_of
from horae.api.query import Query
from horae.api.runs import log_response
from horae.api.views import BatchItem, BatchView, job_view, run_view, slot_view, status_view, upcoming_view
from horae.api.wire import (
    EmptyBody,
    ResumeBody,
    RunBody,
    read_batch,
    read_job,
    read_job_id,
    read_params,
    read_patch,
)
from horae.core.errors import HoraeError, RevisionChanged
from horae.core.model import Job, JobId, Misfire, Run
from horae.services.drafts import Draft
from horae.services.inspection import Overview

SLICE = 100  # jobs of a batch that are decoded before other requests get their turn
LINES = ("application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines")

_EMPTY = msgspec.json.Decoder(EmptyBody)
_RESUME = msgspec.json.Decoder(ResumeBody)
_RUN = msgspec.json.Decoder(RunBody)


# --- all jobs


async def create(request: Request) -> Response:
    """201, the job."""
    who, services = principal(request), services_of(request)
    draft = read_job(await read_body(request))
    job = await services.jobs.create(draft, owner=who.owner, by=who.subject)
    overview = await services.inspection.created(job)
    return _job_answer(overview, 201, {"Location": f"/v1/jobs/job_{_id_of(job)}"})


async def create_batch(request: Request) -> Response:
    """What became of each job, in order."""
    who, services = principal(request), services_of(request)
    lines = request.headers.get("content-type", "").partition(";")[0].strip().lower() in LINES
    bodies = read_batch(await read_body(request, MAX_BATCH_BODY), lines=lines)
    drafts: list[Draft | HoraeError] = []
    for place, body in enumerate(bodies):
        if place % SLICE == SLICE - 1:
            await asyncio.sleep(0)
        drafts.append(_draft_or_error(body))
    outcomes = await services.jobs.create_many(drafts, owner=who.owner, by=who.subject)
    items = [_batch_item(outcome) for outcome in outcomes]
    accepted = sum(1 for item in items if item.error is None)
    return answer(BatchView(items=items, accepted=accepted, rejected=len(items) - accepted))


async def list_jobs(request: Request) -> Response:
    """Newest first."""
    services = services_of(request)
    query = Query(request, *JOB_FILTERS, "limit", "cursor")
    which = job_filter(query, principal(request), services.clock.now())
    found = await services.inspection.jobs(which, cursor=query.cursor, limit=query.limit)
    return page([job_view(overview) for overview in found.items], found.cursor)


# --- one job


async def show(request: Request) -> Response:
    """The job."""
    job_id, who = _asked(request)
    return _job_answer(await services_of(request).inspection.job(job_id, owner=who.reach))


async def patch(request: Request) -> Response:
    """The job, changed by a merge patch."""
    job_id, who = _asked(request)
    services = services_of(request)
    before = await services.inspection.job(job_id, owner=who.reach)
    if not _matches(request, before.job.revision):
        raise RevisionChanged(f"job_{job_id}")
    body = await read_body(request)
    expected = before.job.revision if "if-match" in request.headers else None

    async def revise(job: Job | Run) -> Draft:
        overview = before if job == before.job else await services.inspection.overview(job)
        assert overview.params is not None
        return read_patch(body, job, overview.params)

    job = await services.jobs.patch(job_id, revise, owner=who.reach, expected=expected)
    return _job_answer(await services.inspection.overview(job))


async def cancel(request: Request) -> Response:
    """The job, cancelled."""
    job_id, who = _asked(request)
    services = services_of(request)
    await services.jobs.find(job_id, owner=who.reach)
    running = Query(request, "running").one_of("running", ("cancel", "keep"))
    job = await services.jobs.cancel(job_id, keep_running=running == "keep", owner=who.reach)
    return _job_answer(await services.inspection.overview(job))


async def run_now(request: Request) -> Response:
    """202, the run."""
    job_id, who = _asked(request)
    services = services_of(request)
    await services.jobs.find(job_id, owner=who.reach)
    params = read_params(decode(await read_body(request), RunBody, _RUN).params)
    run = await services.jobs.run_now(job_id, params, owner=who.reach, by=who.subject)
    view = run_view(run, services.clock.now(), [])
    return answer(view, 202, {"Location": f"/v1/runs/{view.id}"})


async def pause(request: Request) -> Response:
    """The job, paused."""
    job_id, who = _asked(request)
    services = services_of(request)
    await services.jobs.find(job_id, owner=who.reach)
    decode(await read_body(request), EmptyBody, _EMPTY)
    job = await services.jobs.pause(job_id, owner=who.reach)
    return _job_answer(await services.inspection.overview(job))


async def resume(request: Request) -> Response:
    """The job, going on."""
    job_id, who = _asked(request)
    services = services_of(request)
    await services.jobs.find(job_id, owner=who.reach)
    missed = decode(await read_body(request), ResumeBody, _RESUME).missed or Misfire.SKIP
    job = await services.jobs.resume(job_id, missed=missed, owner=who.reach)
    return _job_answer(await services.inspection.overview(job))


async def status(request: Request) -> Response:
    """How the latest run that is due stands."""
    job_id, who = _asked(request)
    return answer(status_view(await services_of(request).inspection.job(job_id, owner=who.reach)))


async def list_runs(request: Request) -> Response:
    """The runs of the job."""
    job_id, who = _asked(request)
    services = services_of(request)
    job = await services.jobs.find(job_id, owner=who.reach)
    query = Query(request, *(name for name in RUN_FILTERS if name not in ("job_id", "owner")), "limit", "cursor")
    now = services.clock.now()
    which = run_filter(query, owner=job.owner, job_id=job_id, now=now)
    found = await services.inspection.runs(which, cursor=query.cursor, limit=query.limit)
    return page([run_view(run, now) for run in found.items], found.cursor)


async def upcoming(request: Request) -> Response:
    """When it will run next."""
    job_id, who = _asked(request)
    services = services_of(request)
    await services.jobs.find(job_id, owner=who.reach)
    count = Query(request, "count").number("count", 10, 1000)
    found = await services.inspection.upcoming(job_id, count, owner=who.reach)
    return page([upcoming_view(one) for one in found], None)


async def slots(request: Request) -> Response:
    """The ledger."""
    job_id, who = _asked(request)
    services = services_of(request)
    await services.jobs.find(job_id, owner=who.reach)
    query = Query(request, "start", "end", "limit", "cursor")
    found = await services.inspection.slots(
        job_id,
        owner=who.reach,
        start=query.time("start"),
        end=query.time("end"),
        cursor=query.cursor,
        limit=query.limit,
    )
    return page([slot_view(entry) for entry in found.items], found.cursor)


async def logs(request: Request) -> Response:
    """What the latest run that is due wrote."""
    job_id, who = _asked(request)
    services = services_of(request)
    run = await services.inspection.last_run(job_id, owner=who.reach)
    return log_response(request, run)


ROUTES = [
    resource("/v1/jobs", POST=create, GET=list_jobs),
    resource("/v1/jobs/batch", POST=create_batch),
    resource("/v1/jobs/{id}", GET=show, PATCH=patch, DELETE=cancel),
    resource("/v1/jobs/{id}/run", POST=run_now),
    resource("/v1/jobs/{id}/pause", POST=pause),
    resource("/v1/jobs/{id}/resume", POST=resume),
    resource("/v1/jobs/{id}/status", GET=status),
    resource("/v1/jobs/{id}/runs", GET=list_runs),
    resource("/v1/jobs/{id}/next", GET=upcoming),
    resource("/v1/jobs/{id}/slots", GET=slots),
    resource("/v1/jobs/{id}/logs", GET=logs),
]


# --- helpers


def _asked(request: Request) -> tuple[JobId, Principal]:
    who = principal(request)
    return read_job_id(request.path_params["id"]), who


def _id_of(job: Job | Run) -> JobId:
    return job.id if isinstance(job, Job) else job.job_id


def _job_answer(overview: Overview, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    etag = {"ETag": f'"{overview.job.revision}"'}
    return answer(job_view(overview), status, etag if headers is None else etag | headers)


def _matches(request: Request, revision: int) -> bool:
    """Whether If-Match, if there is one, names this revision; weak tags never do (RFC 9110)."""
    wanted = request.headers.get("if-match")
    if wanted is None:
        return True
    return f'"{revision}"' in (tags := [tag.strip() for tag in wanted.split(",")]) or "*" in tags


def _draft_or_error(body: bytes) -> Draft | HoraeError:
    try:
        return read_job(body)
    except HoraeError as exc:
        return exc


def _batch_item(outcome: Job | Run | HoraeError) -> BatchItem:
    if isinstance(outcome, HoraeError):
        return BatchItem(error=problem_of(outcome))
    return BatchItem(id=f"job_{_id_of(outcome)}")
