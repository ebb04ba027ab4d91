"""Routes of what is done with a job: run, fill, pause, resume."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from horae.api.auth.guard import refuse_shell
from horae.api.dispatch.context import answer, located, resource, services_of
from horae.api.dispatch.idempotency import once
from horae.api.http.body import decode, read_body
from horae.api.http.operation import Scope, operation
from horae.api.http.problems import Problem
from horae.api.routes.jobs import asked, job_answer
from horae.api.schemas.requests import BackfillBody, EmptyBody, ResumeBody, RunBody, read_moment, read_params
from horae.api.schemas.responses import BackfillView, JobView, RunView, backfill_view, run_view
from horae.core.model import Misfire, Run
from horae.core.records import Receipt
from horae.jobs.backfill import Filling
from horae.jobs.idempotency import Issue

_BACKFILL = msgspec.json.Decoder(BackfillBody)
_EMPTY = msgspec.json.Decoder(EmptyBody)
_RESUME = msgspec.json.Decoder(ResumeBody)
_RUN = msgspec.json.Decoder(RunBody)


@operation(
    scope=Scope.WRITE,
    tag="jobs",
    body=RunBody,
    answers={202: RunView, 409: Problem},
    headers=("Location",),
    idempotent=True,
)
async def run_now(request: Request) -> Response:
    """Run a job now, whatever its schedule, also while it is paused."""
    job_id, who = asked(request)
    services = services_of(request)
    job = await services.jobs.find(job_id, owner=who.reach)
    refuse_shell(who, job.spec.task)
    data = await read_body(request)

    async def act(issue: Issue[Run] | None) -> Run | Receipt:
        params = read_params(decode(data, RunBody, _RUN).params)
        if issue is None:
            return await services.jobs.run_now(job_id, params, owner=who.reach, by=who.subject)
        return await services.jobs.run_now_once(job_id, params, owner=who.reach, by=who.subject, issue=issue)

    async def told(run: Run) -> Response:
        view = run_view(run, services.clock.now(), [])
        return answer(view, 202, located(request, f"/v1/runs/{view.id}"))

    return await once(request, who, data, act, told)


@operation(scope=Scope.WRITE, tag="jobs", body=BackfillBody, answers={202: BackfillView, 409: Problem}, idempotent=True)
async def backfill(request: Request) -> Response:
    """Run a recurring job for its slots of the past from `start` to `end`, whatever became of them before."""
    job_id, who = asked(request)
    services = services_of(request)
    job = await services.jobs.find(job_id, owner=who.reach)
    refuse_shell(who, job.spec.task)
    data = await read_body(request)

    async def act(issue: Issue[Filling] | None) -> Filling | Receipt:
        body = decode(data, BackfillBody, _BACKFILL)
        start, end = read_moment(body.start, "/start"), read_moment(body.end, "/end")
        return await services.jobs.backfill(job_id, start, end, owner=who.reach, issue=issue)

    async def told(filling: Filling) -> Response:
        return answer(backfill_view(filling), 202)

    return await once(request, who, data, act, told)


@operation(scope=Scope.WRITE, tag="jobs", body=EmptyBody, answers={200: JobView, 409: Problem}, headers=("ETag",))
async def pause(request: Request) -> Response:
    """Pause a job: slots that come due are skipped until it is resumed."""
    job_id, who = asked(request)
    services = services_of(request)
    await services.jobs.find(job_id, owner=who.reach)
    decode(await read_body(request), EmptyBody, _EMPTY)
    job = await services.jobs.pause(job_id, owner=who.reach)
    return job_answer(await services.inspection.overview(job))


@operation(scope=Scope.WRITE, tag="jobs", body=ResumeBody, answers={200: JobView, 409: Problem}, headers=("ETag",))
async def resume(request: Request) -> Response:
    """Resume a paused job."""
    job_id, who = asked(request)
    services = services_of(request)
    await services.jobs.find(job_id, owner=who.reach)
    missed = decode(await read_body(request), ResumeBody, _RESUME).missed or Misfire.SKIP
    job = await services.jobs.resume(job_id, missed=missed, owner=who.reach)
    return job_answer(await services.inspection.overview(job))


ROUTES = [
    resource("/v1/jobs/{id}/run", POST=run_now),
    resource("/v1/jobs/{id}/backfill", POST=backfill),
    resource("/v1/jobs/{id}/pause", POST=pause),
    resource("/v1/jobs/{id}/resume", POST=resume),
]
