"""What the routes work with, and how a request reaches it."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType
from typing import Generic, TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from horae.api.auth.guard import authorize, principal
from horae.api.http.admission import Admission
from horae.api.http.operation import Operation, begin
from horae.core.drafts import TaskDefaults
from horae.core.ids import Ids
from horae.events.feed import Feed
from horae.jobs.dead_letters import DeadLetters
from horae.jobs.params import Parameters
from horae.jobs.queues import Queues
from horae.jobs.service import Jobs
from horae.jobs.task_catalog import CheckParams, TaskBook
from horae.metrics import Metrics
from horae.ports.blobs import Blobs
from horae.ports.clock import Clock
from horae.ports.store import Store
from horae.queries.jobs import JobQueries
from horae.queries.log_tail import LogTails
from horae.queries.why import StartExplainer
from horae.secrets.sealer import Sealer

Item = TypeVar("Item")

NO_HEADERS: Mapping[str, str] = MappingProxyType({})
_ENCODER = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The use cases behind the routes."""

    jobs: Jobs
    queries: JobQueries
    dead_letters: DeadLetters
    queues: Queues
    why: StartExplainer
    tasks: TaskBook
    feed: Feed
    log_tails: LogTails
    store: Store
    clock: Clock
    metrics: Metrics
    ready: Callable[[], bool]  # whether this node beats
    closing: asyncio.Event = field(default_factory=asyncio.Event)  # streams end, so that the server can stop

    @classmethod
    def over(
        cls,
        store: Store,
        blobs: Blobs,
        clock: Clock,
        metrics: Metrics,
        *,
        new_id: Ids,
        horizon: timedelta,
        task_defaults: Callable[[str], TaskDefaults | None],
        check_params: CheckParams,
        ready: Callable[[], bool],
        dead_after: timedelta = timedelta(seconds=15),
        sealer: Sealer | None = None,
    ) -> "Services":
        """The use cases over a store; `task_defaults` answers None for a task that this process does not know."""
        parameters = Parameters(blobs)
        tasks = TaskBook(store, clock, defaults=task_defaults, check_params=check_params)
        queries = JobQueries(store=store, blobs=blobs, parameters=parameters, clock=clock)
        return cls(
            jobs=Jobs(
                store=store,
                clock=clock,
                tasks=tasks,
                parameters=parameters,
                metrics=metrics,
                new_id=new_id,
                horizon=horizon,
                sealer=sealer,
            ),
            queries=queries,
            dead_letters=DeadLetters(
                store=store, clock=clock, tasks=tasks, parameters=parameters, new_id=new_id, sealer=sealer
            ),
            queues=Queues(store, clock),
            why=StartExplainer(store, clock, dead_after=dead_after),
            tasks=tasks,
            feed=Feed(store, queries, clock),
            log_tails=LogTails(store, queries, blobs, clock),
            store=store,
            clock=clock,
            metrics=metrics,
            ready=ready,
        )

    def close_streams(self) -> None:
        """End every stream, for a server that stops waits for its answers."""
        self.closing.set()
        self.feed.wake()


def services_of(request: Request) -> Services:
    """The use cases of the application that a request came to."""
    services: Services = request.app.services
    return services


class Resource(Route):
    """One route with an operation per method; it answers for every method, so that a 405 can name those allowed."""

    def __init__(self, path: str, operations: Mapping[str, Operation]) -> None:
        super().__init__(path, self.dispatch)
        self.operations = operations

    async def dispatch(self, request: Request) -> Response:
        """What the operation of the request's method answers, if its sender may ask for it."""
        method = request.method
        operation = self.operations.get("GET" if method == "HEAD" else method)
        if operation is None:
            raise HTTPException(405, headers={"Allow": self._allowed()})
        begin(request, operation)
        await authorize(request, operation.scope)
        if operation.scope is None:  # whoever looks after the server is answered however much there is to do
            response = await operation.handler(request)
        else:
            response = await self._answer(request, operation)
        return _without_stream(response) if method == "HEAD" else response

    async def _answer(self, request: Request, operation: Operation) -> Response:
        admission: Admission = request.app.admission
        stay = admission.enter(request, principal(request).owner)
        try:
            return await operation.handler(request)
        finally:
            stay.leave()

    def _allowed(self) -> str:
        return ", ".join([*self.operations, *(["HEAD"] if "GET" in self.operations else [])])


def resource(path: str, **operations: Operation) -> Resource:
    """A route with an operation per method."""
    return Resource(path, operations)


def _without_stream(response: Response) -> Response:
    """The head of an answer; a stream that nobody reads is not begun."""
    if not isinstance(response, StreamingResponse):
        return response
    head = Response(status_code=response.status_code)
    head.raw_headers = response.raw_headers
    return head


class Page(msgspec.Struct, Generic[Item]):
    """One page of a list; `next_cursor` asks for what follows, null at the end."""

    items: list[Item]
    next_cursor: str | None


class Answer(Response):
    """A JSON answer; what Starlette does for any kind of response takes three times as long."""

    def __init__(self, body: bytes, status: int, headers: Mapping[str, str]) -> None:
        self.status_code = status
        self.background = None
        self.body = body
        self.raw_headers = [
            (b"content-length", b"%d" % len(body)),
            (b"content-type", b"application/json"),
            *[(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()],
        ]


def answer(value: object, status: int = 200, headers: Mapping[str, str] = NO_HEADERS) -> Response:
    """A value as a JSON answer."""
    return Answer(_ENCODER.encode(value), status, headers)


def located(request: Request, path: str) -> dict[str, str]:
    """The header that says where a thing is, also below the place where this API is mounted."""
    return {"Location": f"{request.scope.get('root_path', '')}{path}"}


def page(items: Sequence[object], cursor: str | None) -> Response:
    """One page of a list."""
    return answer({"items": items, "next_cursor": cursor})
