"""The route that tells what happens, as it happens."""

from collections.abc import AsyncIterator
from datetime import datetime
from functools import lru_cache

import msgspec
from msgspec import UNSET, Struct, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from horae.api.auth.guard import Principal, principal
from horae.api.dispatch.context import Services, resource, services_of
from horae.api.dispatch.sse import (
    BEGINNING,
    KEEP_ALIVE_SECONDS,
    MEDIA,
    RESUME,
    Span,
    comment,
    last_event_id,
    message,
    stream,
)
from horae.api.http.operation import Param, Scope, operation
from horae.api.http.problems import Forbidden, Problem
from horae.api.http.query import Query, Text
from horae.api.schemas.filters import JobIdText
from horae.api.schemas.ids import read_job_id
from horae.api.schemas.job_views import JobView, job_view
from horae.api.schemas.run_views import RunView, run_view
from horae.core.errors import Invalid, NotFound, Unavailable
from horae.core.events import EventKind
from horae.core.model import JobId
from horae.events.event import EventFilter, EventId, FeedEvent

EVERYBODY = "*"
ENCODED = 500  # messages that are kept for the next who is told of the same event

PARAMS = (
    Param(name="types", schema=Text, description="only these, such as `run.failed,job.*`"),
    Param(name="job_id", schema=JobIdText, description="only of this job and its runs"),
    Param(
        name="owner",
        schema=Text,
        description="whose; another owner than oneself, or `*` for everybody, needs the scope admin",
    ),
    *RESUME,
)


class EventView(Struct):
    """Something that happened, with the job or run as it is now; null when it is not kept any more."""

    type: EventKind
    at: datetime
    job_id: str | None
    run_id: str | UnsetType = UNSET
    job: JobView | UnsetType | None = UNSET
    run: RunView | UnsetType | None = UNSET


@operation(
    scope=Scope.READ, tag="events", params=PARAMS, media=MEDIA, answers={200: EventView, 404: Problem, 410: Problem}
)
async def listen(request: Request) -> Response:
    """Listen to what happens, as server-sent events.

    Events of jobs and the ends of runs are kept for a day: whoever comes back with `Last-Event-ID` misses none of them.
    Starts and progress of runs are told as far as they are seen.
    """
    services = services_of(request)
    query = Query(request)
    which = await _filter(services, query, principal(request))
    after = await services.feed.position(last_event_id(request, query))
    return stream(_messages(services, Span(request), which, after))


async def _messages(services: Services, span: Span, which: EventFilter, after: EventId) -> AsyncIterator[bytes]:
    with services.feed.listen(which, after) as listener:
        yield BEGINNING + message(ident=str(after))
        while not span.over:
            try:
                found = await listener.next(span.at_most(KEEP_ALIVE_SECONDS))
            except Unavailable as error:  # the listener comes back, and is answered when the store is
                yield comment(str(error))
                return
            if found:
                yield b"".join(map(_message, found))
            else:  # tells also where the listener stands, so that it need not go back to the last event it was told
                yield comment("keep-alive") + message(ident=str(listener.resume_id(services.clock.now())))


@lru_cache(ENCODED)
def _message(event: FeedEvent) -> bytes:
    """Written once, however many are told."""
    ident = None if event.id is None else str(event.id)
    return message(msgspec.json.encode(event_view(event)), event=event.kind, ident=ident)


def event_view(event: FeedEvent) -> EventView:
    """An event as users see it."""
    view = EventView(
        type=event.kind,
        at=event.at,
        job_id=None if event.job_id is None else f"job_{event.job_id}",
    )
    if event.run_id is None:
        view.job = None if event.job is None else job_view(event.job)
    else:
        view.run_id = f"run_{event.run_id}"
        view.run = None if event.run is None else run_view(event.run, event.at)
    return view


async def _filter(services: Services, query: Query, who: Principal) -> EventFilter:
    owner = _owner(query, who)
    types, job = query.text("types"), query.text("job_id")
    kinds = frozenset(EventKind) if types is None else _kinds(types)
    return EventFilter(owner=owner, kinds=kinds, job_id=None if job is None else await _job(services, job, owner))


def _owner(query: Query, who: Principal) -> str | None:
    owner = query.text("owner") or who.owner
    if owner != who.owner and not who.admin:
        raise Forbidden("only an administrator may listen to what happens to others", scope=Scope.ADMIN)
    return None if owner == EVERYBODY else owner


async def _job(services: Services, text: str, owner: str | None) -> JobId:
    """A job that the listener can see; one that it cannot would never be heard of."""
    job_id = read_job_id(text)
    if await services.store.job(job_id, owner=owner) is None:
        raise NotFound("job", text)
    return job_id


def _kinds(types: str) -> frozenset[EventKind]:
    """`run.failed,job.*` as kinds."""
    kinds: set[EventKind] = set()
    for name in map(str.strip, types.split(",")):
        group = name.removesuffix("*")
        found = {kind for kind in EventKind if kind == name or (group != name and kind.startswith(group))}
        if not found or (group != name and group not in ("", "job.", "run.")):
            known = ", ".join((*EventKind, "job.*", "run.*"))
            raise Invalid(f"there is no type of events {name[:100]!r}; there are {known}", pointer="/types")
        kinds |= found
    return frozenset(kinds)


ROUTES = [resource("/v1/events", GET=listen)]
