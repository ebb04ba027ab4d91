"""Routes of dead letters: failed runs that are not resolved yet."""

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from horae.api.auth.guard import Principal, principal
from horae.api.dispatch.acts import acts_of
from horae.api.dispatch.context import services_of
from horae.api.dispatch.idempotency import run_once_in_steps
from horae.api.dispatch.responses import json_response, page_response
from horae.api.dispatch.router import resource
from horae.api.http.body import decode, read_body
from horae.api.http.operation import Operation, Param, Scope
from horae.api.http.problems import Problem
from horae.api.http.query import PAGING, Query, read_timestamp
from horae.api.routes.runs import run_page
from horae.api.schemas.filters import LETTER_FILTERS, letter_filter, owner_allowed
from horae.api.schemas.ids import read_job_id, read_run_ids
from horae.api.schemas.run_views import ErrorView
from horae.core.errors import Invalid, NotFound
from horae.core.limits import Queue, Task
from horae.core.model import JobId
from horae.jobs.dead_letters import MAX_LETTERS, Selection, Tally
from horae.jobs.idempotency import Ask
from horae.ports.reader import ErrorGroup, RunFilter

Ids = Annotated[list[str], Meta(min_length=1, max_length=MAX_LETTERS)]
Word = Annotated[str, Meta(min_length=1, max_length=200)]

GROUP = Param("group", Literal["error"], "`error` groups dead letters by task and error, the most frequent first")


class LetterFilterBody(Struct, forbid_unknown_fields=True):
    """Selects dead letters; `{}` selects all of one's own."""

    job_id: str | None = None
    task: Task | None = None
    queue: Queue | None = None
    owner: Word | None = None
    error: Word | None = None
    start_time: str | None = None
    end_time: str | None = None


class DiscardBody(Struct, forbid_unknown_fields=True):
    """Dead letters to discard, by their ids or by a filter."""

    ids: Ids | None = None
    filter: LetterFilterBody | None = None


class RequeueBody(DiscardBody, forbid_unknown_fields=True):
    """Dead letters to requeue, by their ids or by a filter; `params` is a merge patch of each run's parameters."""

    params: dict[str, Any] | None = None


class DeadLetterGroupView(Struct):
    """Dead letters with the same task and error."""

    error: ErrorView
    task: str
    count: int
    oldest_at: datetime
    newest_at: datetime
    example_run_id: str


class DeadLetterPageView(Struct):
    """Dead letters as runs or, with `group=error`, as groups."""

    items: list[DeadLetterGroupView]  # or runs
    next_cursor: str | None
    searched_to: datetime | UnsetType = UNSET


class ResolvedView(Struct):
    """How many dead letters matched, were resolved, and still match (counted up to 10,000)."""

    matched: int
    done: int
    remaining: int


@Operation(
    scope=Scope.READ,
    tag="dead letters",
    params=(GROUP, *LETTER_FILTERS, *PAGING),
    answers={200: DeadLetterPageView, 404: Problem},
    listing=True,
)
async def list_letters(request: Request) -> Response:
    """List failed runs that are not resolved yet, by due time, latest first, or grouped by error."""
    services, query = services_of(request), Query(request)
    which = letter_filter(query, principal(request), services.clock.now())
    if query.one_of("group", ("error",)) is not None:
        return page_response([_group_view(group) for group in await services.store.dead_letter_groups(which)], None)
    return await run_page(services, which, query)


@Operation(scope=Scope.WRITE, tag="dead letters", body=RequeueBody, answers={200: ResolvedView}, idempotent=True)
async def requeue(request: Request) -> Response:
    """Run dead letters again, each as a new run; at most 10,000 per request."""
    who, acts = principal(request), acts_of(request)
    data = await read_body(request)

    async def act(ask: Ask | None) -> Response:
        body = decode(data, RequeueBody)
        return json_response(_resolved(await acts.requeue(_selection(body, who), body.params)))

    return await run_once_in_steps(request, who, data, act)


@Operation(scope=Scope.WRITE, tag="dead letters", body=DiscardBody, answers={200: ResolvedView})
async def discard(request: Request) -> Response:
    """Resolve dead letters without running them again; at most 10,000 per request."""
    selection = _selection(decode(await read_body(request), DiscardBody), principal(request))
    return json_response(_resolved(await acts_of(request).discard(selection)))


ROUTES = [
    resource("/v1/dead-letters", GET=list_letters),
    resource("/v1/dead-letters/requeue", POST=requeue),
    resource("/v1/dead-letters/discard", POST=discard),
]


def _selection(body: DiscardBody, who: Principal) -> Selection:
    if (body.ids is None) == (body.filter is None):
        raise Invalid("give either ids or filter; an empty filter selects all of your own")
    if body.ids is not None:
        return Selection(ids=read_run_ids(body.ids), which=RunFilter(owner=who.reach, dead_letters=True))
    assert body.filter is not None
    given = body.filter
    return Selection(
        which=RunFilter(
            owner=owner_allowed(given.owner, who),
            job_id=None if given.job_id is None else _job_id(given.job_id),
            task=given.task,
            queue=given.queue,
            start_at=None if given.start_time is None else read_timestamp(given.start_time, "/filter/start_time"),
            end_at=None if given.end_time is None else read_timestamp(given.end_time, "/filter/end_time"),
            dead_letters=True,
            error_type=given.error,
        )
    )


def _job_id(text: str) -> JobId:
    try:
        return read_job_id(text)
    except NotFound as exc:
        raise Invalid(f"{text[:100]!r} is not the id of a job", pointer="/filter/job_id") from exc


def _group_view(group: ErrorGroup) -> DeadLetterGroupView:
    return DeadLetterGroupView(
        error=ErrorView(group.error.type, group.error.message),
        task=group.task,
        count=group.count,
        oldest_at=group.oldest_at,
        newest_at=group.newest_at,
        example_run_id=f"run_{group.example}",
    )


def _resolved(tally: Tally) -> ResolvedView:
    return ResolvedView(matched=tally.matched, done=tally.done, remaining=tally.remaining)
