"""What the routes work with, and how a request reaches it."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from horae.blob import Blobs
from horae.clock import Clock
from horae.core.plan import NewId
from horae.metrics import Metrics
from horae.services.drafts import TaskDefaults
from horae.services.inspection import Inspection
from horae.services.jobs import Jobs
from horae.services.parameters import Parameters
from horae.services.taskbook import CheckParams, TaskBook
from horae.store import Store

Handler = Callable[[Request], Awaitable[Response]]

_ENCODER = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The use cases behind the routes."""

    jobs: Jobs
    inspection: Inspection
    tasks: TaskBook
    store: Store
    clock: Clock
    metrics: Metrics
    ready: Callable[[], bool]  # whether this node beats

    @classmethod
    def over(
        cls,
        store: Store,
        blobs: Blobs,
        clock: Clock,
        metrics: Metrics,
        *,
        new_id: NewId,
        horizon: timedelta,
        task_defaults: Callable[[str], TaskDefaults | None],
        check_params: CheckParams,
        ready: Callable[[], bool],
    ) -> "Services":
        """The use cases over a store; `task_defaults` answers None for a task that this process does not know."""
        parameters = Parameters(blobs)
        tasks = TaskBook(store, clock, defaults=task_defaults, check_params=check_params)
        return cls(
            jobs=Jobs(
                store=store,
                clock=clock,
                tasks=tasks,
                parameters=parameters,
                metrics=metrics,
                new_id=new_id,
                horizon=horizon,
            ),
            inspection=Inspection(store=store, blobs=blobs, parameters=parameters, clock=clock),
            tasks=tasks,
            store=store,
            clock=clock,
            metrics=metrics,
            ready=ready,
        )


def services_of(request: Request) -> Services:
    """The use cases of the application that a request came to."""
    services: Services = request.app.state.services
    return services


def resource(path: str, **handlers: Handler) -> Route:
    """One route with a handler per method, so that a 405 can name all that are allowed."""

    async def dispatch(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        return await handlers[method](request)

    return Route(path, dispatch, methods=list(handlers))


def answer(value: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A value as a JSON answer."""
    return Response(_ENCODER.encode(value), status_code=status, media_type="application/json", headers=headers)


def page(items: Sequence[object], cursor: str | None) -> Response:
    """One page of a list."""
    return answer({"items": items, "next_cursor": cursor})
