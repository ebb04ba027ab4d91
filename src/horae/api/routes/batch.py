"""The route that creates many jobs at once."""

import asyncio
from collections.abc import Sequence

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from horae.api.auth.guard import Principal, principal, refuse_shell
from horae.api.dispatch.context import answer, resource, services_of
from horae.api.dispatch.idempotency import once_in_steps
from horae.api.http.body import MAX_BATCH_BODY, read_body
from horae.api.http.operation import Scope, operation
from horae.api.http.problems import Problem, problem_of
from horae.api.schemas.job_requests import BatchBody, read_batch, read_batch_job
from horae.core.drafts import Draft
from horae.core.errors import HoraeError, Unavailable
from horae.core.model import JobId
from horae.jobs.idempotency import Ask, fingerprint

SLICE = 100  # jobs that are decoded before other requests get their turn
SLICE_BYTES = 256 * 1024  # of them, if they are large
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


@operation(
    scope=Scope.WRITE,
    tag="jobs",
    body=BatchBody,
    takes=("application/json", LINES[0]),
    answers={200: BatchView},
    idempotent=True,
)
async def create_batch(request: Request) -> Response:
    """Create many jobs, and tell of each, in order, what became of it."""
    who, services = principal(request), services_of(request)
    lines = request.headers.get("content-type", "").partition(";")[0].strip().lower() in LINES
    data = await read_body(request, MAX_BATCH_BODY)

    async def act(ask: Ask | None) -> Response:
        drafts, asks = await _read(read_batch(data, lines=lines), who, ask)
        outcomes = await services.jobs.create_many(drafts, owner=who.owner, by=who.subject, asks=asks)
        if ask is not None:
            _raise_if_down(outcomes)
        items = [_item(outcome) for outcome in outcomes]
        accepted = sum(1 for item in items if item.error is None)
        return answer(BatchView(items=items, accepted=accepted, rejected=len(items) - accepted))

    return await once_in_steps(request, who, data, act)


async def _read(
    bodies: Sequence[bytes], who: Principal, ask: Ask | None
) -> tuple[list[Draft | HoraeError], list[Ask | None]]:
    """The jobs of a batch, or what is wrong with them, and what each is known by if the batch comes again."""
    drafts: list[Draft | HoraeError] = []
    asks: list[Ask | None] = []
    size = 0  # of what was decoded in this turn
    for place, body in enumerate(bodies):
        draft, key = _draft_or_error(body, who)
        size += len(body)
        if place % SLICE == SLICE - 1 or size > SLICE_BYTES or isinstance(draft, HoraeError):
            size = 0  # to say what is wrong with a job takes as long as to read many
            await asyncio.sleep(0)
        own = None if key is None else Ask(owner=who.owner, key=key, fingerprint=fingerprint(b"batch", body))
        drafts.append(draft)
        asks.append(own if ask is None or own is not None else ask.item(place))
    return drafts, asks


def _draft_or_error(body: bytes, who: Principal) -> tuple[Draft | HoraeError, str | None]:
    try:
        draft, key = read_batch_job(body)
        refuse_shell(who, draft.task)
    except HoraeError as exc:
        return exc, None
    return draft, key


def _raise_if_down(outcomes: Sequence[JobId | HoraeError]) -> None:
    """An answer that is kept must not tell of a moment without a store: repeated, the batch is completed."""
    for outcome in outcomes:
        if isinstance(outcome, Unavailable):
            raise outcome


def _item(outcome: JobId | HoraeError) -> BatchItem:
    if isinstance(outcome, HoraeError):
        return BatchItem(error=problem_of(outcome))
    return BatchItem(id=f"job_{outcome}")


ROUTES = [resource("/v1/jobs/batch", POST=create_batch)]
