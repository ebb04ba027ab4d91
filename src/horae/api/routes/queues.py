"""Routes of queues."""

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from horae.api.auth.guard import principal
from horae.api.dispatch.context import services_of
from horae.api.dispatch.responses import PageView, json_response, page_response
from horae.api.dispatch.router import resource
from horae.api.http.body import decode, read_body
from horae.api.http.operation import Operation, Param, Scope
from horae.api.http.query import MAX_LIMIT, Count, Cursor, Query
from horae.api.schemas.filters import OWNER, reached_owner
from horae.api.schemas.wire import milliseconds_of, seconds_of
from horae.core.errors import NotFound
from horae.core.limits import Queue
from horae.core.records import SETTINGS, QueueSettings
from horae.core.values import replace
from horae.jobs.queues import QueueFigures

QUEUE_PAGING = (
    Param("limit", Count, f"the maximum number of items on a page; default {MAX_LIMIT}"),
    Param("cursor", Cursor, "`next_cursor` of the previous page"),
)
Concurrency = Annotated[int, Meta(ge=1, le=1_000_000)]


class QueueBody(Struct, forbid_unknown_fields=True):
    """Settings of a queue to change; a concurrency of null removes the limit."""

    paused: bool | UnsetType = UNSET
    concurrency: Concurrency | UnsetType | None = UNSET


class QueueView(Struct):
    """A queue with its settings and figures; administrators see the runs of all owners, others their own."""

    name: str
    depth: int  # due and not started, counted up to 10,000
    oldest_age_seconds: float | None
    running: int
    lateness_p99_ms: float | None  # of runs that ended in the last minutes
    paused: bool
    concurrency: int | None


@Operation(
    scope=Scope.READ, tag="queues", params=(OWNER, *QUEUE_PAGING), answers={200: PageView[QueueView]}, listing=True
)
async def list_queues(request: Request) -> Response:
    """List queues by name with their depth and lateness, as autoscalers need them; to administrators of every owner."""
    query = Query(request)
    owner = reached_owner(query, principal(request))
    limit = query.number("limit", MAX_LIMIT, MAX_LIMIT)
    found = await services_of(request).queues.list(owner=owner, after=query.cursor or "", limit=limit)
    return page_response([_view(one) for one in found.items], found.cursor)


@Operation(
    scope=Scope.ADMIN,
    tag="queues",
    body=QueueBody,
    takes=("application/json", "application/merge-patch+json"),
    answers={200: QueueView},
)
async def change(request: Request) -> Response:
    """Pause or resume a queue, or limit how many of its runs all workers together hold."""
    settings = QueueSettings(queue=_name(request))
    body = decode(await read_body(request), QueueBody)
    given = {field: value for field in SETTINGS if (value := getattr(body, field)) is not UNSET}
    return json_response(_view(await services_of(request).queues.set(replace(settings, **given), fields=given)))


ROUTES = [resource("/v1/queues", GET=list_queues), resource("/v1/queues/{name}", PATCH=change)]


def _name(request: Request) -> str:
    """Return the name of the queue in the path; raises NotFound for a name that no queue can have."""
    name = request.path_params["name"]
    try:
        return msgspec.convert(name, Queue)
    except msgspec.ValidationError as exc:
        raise NotFound("queue", name[:100]) from exc


def _view(figures: QueueFigures) -> QueueView:
    return QueueView(
        name=figures.queue,
        depth=figures.depth,
        oldest_age_seconds=seconds_of(figures.oldest_age),
        running=figures.running,
        lateness_p99_ms=milliseconds_of(figures.lateness_p99),
        paused=figures.paused,
        concurrency=figures.concurrency,
    )
