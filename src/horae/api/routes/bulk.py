"""Routes that act on many jobs or runs, by their ids or by a filter."""

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from horae.api.auth.guard import principal
from horae.api.dispatch.acts import acts_of
from horae.api.dispatch.idempotency import run_once_in_steps
from horae.api.dispatch.responses import json_response
from horae.api.dispatch.router import resource
from horae.api.http.body import decode, read_body
from horae.api.http.operation import Operation, Scope
from horae.api.schemas.bulk_requests import JobBulkBody, RunBulkBody
from horae.jobs.bulk.acts import BulkTally
from horae.jobs.idempotency import Ask


class BulkView(Struct):
    """How many were selected, for how many the act succeeded, and how many are left."""

    matched: int
    done: int
    remaining: int
    cursor: str | None


@Operation(scope=Scope.WRITE, tag="jobs", body=JobBulkBody, answers={200: BulkView}, idempotent=True)
async def jobs(request: Request) -> Response:
    """Pause, resume, cancel or run many jobs; at most 10,000 per request.

    A filter without a status selects what the act can change: scheduled jobs to pause, paused ones to resume, both to
    cancel or run. Pass `cursor` with the same body until it is null. Runs in progress are told to stop; the response
    does not wait for them.
    """
    who, acts = principal(request), acts_of(request)
    data = await read_body(request)

    async def act(ask: Ask | None) -> Response:
        return _response(await acts.on_jobs(decode(data, JobBulkBody), ask))

    return await run_once_in_steps(request, who, data, act)


@Operation(scope=Scope.WRITE, tag="runs", body=RunBulkBody, answers={200: BulkView}, idempotent=True)
async def runs(request: Request) -> Response:
    """Cancel many runs, or retry many failed ones; at most 10,000 per request.

    A filter without a status selects what the act can change: runs that have not ended to cancel, dead letters to
    retry. Pass `cursor` with the same body until it is null. Runs in progress are told to stop; the response does not
    wait for them.
    """
    who, acts = principal(request), acts_of(request)
    data = await read_body(request)

    async def act(ask: Ask | None) -> Response:
        return _response(await acts.on_runs(decode(data, RunBulkBody)))

    return await run_once_in_steps(request, who, data, act)


ROUTES = [
    resource("/v1/jobs/bulk", POST=jobs),
    resource("/v1/runs/bulk", POST=runs),
]


def _response(tally: BulkTally) -> Response:
    return json_response(
        BulkView(matched=tally.matched, done=tally.done, remaining=tally.remaining, cursor=tally.cursor)
    )
