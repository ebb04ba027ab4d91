"""The route that creates many jobs in one request."""

import asyncio
from collections.abc import Sequence

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from horae.api.auth.guard import Principal, principal
from horae.api.dispatch.acts import acts_of
from horae.api.dispatch.idempotency import run_once_in_steps
from horae.api.dispatch.responses import json_response
from horae.api.dispatch.router import resource
from horae.api.http.body import MAX_BATCH_BODY, read_body
from horae.api.http.operation import Operation, Scope
from horae.api.http.problems import Problem, problem_of
from horae.api.schemas.job_requests import BatchBody, read_batch, read_batch_job
from horae.core.drafts import Draft
from horae.core.errors import HoraeError, Unavailable
from horae.core.model import JobId
from horae.jobs.idempotency import Ask, asked

SLICE = 100  # jobs decoded before other requests get their turn
SLICE_BYTES = 256 * 1024  # the same for large jobs
LINES = ("application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines")


class BatchItem(Struct, omit_defaults=True):
    """The outcome of one job of a batch: its id, or the problem with it."""

    id: str | None = None
    error: Problem | None = None


class BatchView(Struct):
    """The outcome of a batch; `items` are in the order of the request."""

    items: list[BatchItem]
    accepted: int
    rejected: int


@Operation(
    scope=Scope.WRITE,
    tag="jobs",
    body=BatchBody,
    takes=("application/json", LINES[0]),
    answers={200: BatchView},
    idempotent=True,
)
async def create_batch(request: Request) -> Response:
    """Create many jobs, and return the outcome of each in their order."""
    who, acts = principal(request), acts_of(request)
    lines = request.headers.get("content-type", "").partition(";")[0].strip().lower() in LINES
    data = await read_body(request, MAX_BATCH_BODY)

    async def act(ask: Ask | None) -> Response:
        drafts, asks = await _read_drafts(read_batch(data, lines=lines), who, ask)
        outcomes = await acts.create_many(drafts, asks)
        if ask is not None and (unavailable := [one for one in outcomes if isinstance(one, Unavailable)]):
            raise unavailable[0]  # and store no response, so that a repeated request completes the batch
        items = [_item(outcome) for outcome in outcomes]
        accepted = sum(1 for item in items if item.error is None)
        return json_response(BatchView(items=items, accepted=accepted, rejected=len(items) - accepted))

    return await run_once_in_steps(request, who, data, act)


async def _read_drafts(
    bodies: Sequence[bytes], who: Principal, ask: Ask | None
) -> tuple[list[Draft | HoraeError], list[Ask | None]]:
    """Decode the jobs of a batch; return a draft or an error for each, and its idempotency key if it has one."""
    drafts: list[Draft | HoraeError] = []
    asks: list[Ask | None] = []
    size = 0  # bytes decoded since other requests had a turn
    for index, body in enumerate(bodies):
        draft, own = _draft_or_error(body, who)
        size += len(body)
        if index % SLICE == SLICE - 1 or size > SLICE_BYTES or isinstance(draft, HoraeError):
            size = 0  # explaining an invalid job takes as long as decoding many
            await asyncio.sleep(0)
        drafts.append(draft)
        asks.append(own if ask is None or own is not None else ask.item(index))
    return drafts, asks


def _draft_or_error(body: bytes, who: Principal) -> tuple[Draft | HoraeError, Ask | None]:
    try:
        draft, key = read_batch_job(body)
        return draft, None if key is None else asked(who.owner, key, b"batch", body)
    except HoraeError as exc:
        return exc, None


def _item(outcome: JobId | HoraeError) -> BatchItem:
    if isinstance(outcome, HoraeError):
        return BatchItem(error=problem_of(outcome))
    return BatchItem(id=f"job_{outcome}")


ROUTES = [resource("/v1/jobs/batch", POST=create_batch)]
