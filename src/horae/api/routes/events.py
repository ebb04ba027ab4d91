"""The route that streams events."""

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from horae.api.auth.guard import Principal, principal
from horae.api.dispatch import sse
from horae.api.dispatch.byte_cache import ByteCache
from horae.api.dispatch.context import Services, services_of
from horae.api.dispatch.router import resource
from horae.api.http.operation import Operation, Param, Scope
from horae.api.http.problems import Problem
from horae.api.http.query import Query, Text
from horae.api.schemas.filters import OWNER, JobIdText, queried_owner
from horae.api.schemas.ids import read_job_id
from horae.api.schemas.job_views import JobView, job_view
from horae.api.schemas.run_views import RunView, run_view
from horae.core.errors import Invalid, NotFound, Unavailable
from horae.core.events import EventKind
from horae.core.model import JobId
from horae.events.event import EventFilter, EventId, FeedEvent
from horae.lookup import find_job

MAX_ENCODED = 16 * 1024 * 1024  # bytes of messages that are cached for other listeners

PARAMS = (
    Param("types", Text, "only these types, such as `run.failed,job.*`"),
    Param("job_id", JobIdText, "only events of this job and its runs"),
    OWNER,
    Param("since", datetime, "begin with what happened at this time, at most a day ago, instead of now"),
    Param(
        "follow", Literal["0", "1"], "`0` ends the stream with the message `end` when all that has happened was sent"
    ),
    *sse.RESUME,
)
LOOK_SECONDS = 0.5  # of a stream that does not follow, for what has happened


class EventView(Struct):
    """An event, with the current state of its job or run; null when that is no longer stored."""

    type: EventKind
    at: datetime
    job_id: str | None
    run_id: str | UnsetType = UNSET
    job: JobView | UnsetType | None = UNSET
    run: RunView | UnsetType | None = UNSET


@Operation(
    scope=Scope.READ,
    tag="events",
    params=PARAMS,
    media=(sse.MEDIA,),
    answers={200: EventView, 404: Problem, 410: Problem},
)
async def listen(request: Request) -> Response:
    """Stream events as they occur (server-sent events).

    Events of jobs and the ends of runs are kept for a day: a client that resumes with `Last-Event-ID` misses none of
    them. Starts and progress of runs are best effort.
    """
    services = services_of(request)
    query = Query(request)
    which = await _filter(services, query, principal(request))
    last_id = sse.last_event_id(request, query)
    if last_id is None and which.since is not None:
        after = await services.feed.position_at(which.since)
    else:
        after = await services.feed.position(last_id)
    follows = query.one_of("follow", ("0", "1")) != "0"
    return sse.stream(_messages(services, sse.StreamLifetime(request), which, after, follows=follows))


async def _messages(
    services: Services, lifetime: sse.StreamLifetime, which: EventFilter, after: EventId, *, follows: bool
) -> AsyncIterator[bytes]:
    patience = sse.KEEP_ALIVE_SECONDS if follows else LOOK_SECONDS
    with services.feed.listen(which, after) as listener, MESSAGES.used():
        yield sse.OPENING + sse.message(ident=str(after))
        while not lifetime.ended:
            try:
                found = await listener.next(lifetime.at_most(patience))
            except Unavailable as error:  # the client reconnects, and resumes when the store is available
                yield sse.comment(str(error))
                return
            if found:
                yield b"".join(map(MESSAGES, found))
            elif not follows and listener.caught_up:
                yield sse.message(b"{}", event="end")
                return
            else:  # the id lets the client resume here instead of after the last event that it received
                yield sse.KEEP_ALIVE + sse.message(ident=str(listener.resume_id(services.clock.now())))


def _message(event: FeedEvent) -> bytes:
    ident = None if event.id is None else str(event.id)
    return sse.message(msgspec.json.encode(event_view(event)), event=event.kind, ident=ident)


MESSAGES: ByteCache[FeedEvent] = ByteCache(_message, most=MAX_ENCODED)  # encoded once for all listeners


def event_view(event: FeedEvent) -> EventView:
    """Return an event as responses show it."""
    view = EventView(
        type=event.kind,
        at=event.at,
        job_id=None if event.job_id is None else f"job_{event.job_id}",
    )
    if event.run_id is None:
        view.job = None if event.job is None else job_view(event.job)
    else:
        view.run_id = f"run_{event.run_id}"
        view.run = None if event.run is None else run_view(event.run, event.at, omitted=event.omitted)
    return view


async def _filter(services: Services, query: Query, who: Principal) -> EventFilter:
    owner = queried_owner(query, who)
    types, job = query.text("types"), query.text("job_id")
    kinds = frozenset(EventKind) if types is None else _kinds(types)
    job_id = None if job is None else await _job(services, job, owner)
    return EventFilter(owner=owner, kinds=kinds, job_id=job_id, since=query.time("since"))


async def _job(services: Services, text: str, owner: str | None) -> JobId:
    """Return the id of a job; raises NotFound when the listener may not see it, because no event would ever come."""
    job_id = read_job_id(text)
    if await find_job(services.store, job_id, owner=owner) is None:
        raise NotFound("job", text)
    return job_id


def _kinds(types: str) -> frozenset[EventKind]:
    """Return the event kinds of a list such as `run.failed,job.*`."""
    kinds: set[EventKind] = set()
    for name in map(str.strip, types.split(",")):
        group = name.removesuffix("*")
        found = {kind for kind in EventKind if kind == name or (group != name and kind.startswith(group))}
        if not found or (group != name and group not in ("", "job.", "run.")):
            known = ", ".join((*EventKind, "job.*", "run.*"))
            raise Invalid(f"unknown event type {name[:100]!r}; known types are {known}", pointer="/types")
        kinds |= found
    return frozenset(kinds)


ROUTES = [resource("/v1/events", GET=listen)]
