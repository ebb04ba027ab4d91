"""The application: every route, and a problem document for everything that goes wrong."""

from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from horae.api.auth.guard import OPEN, Guard
from horae.api.dispatch.context import Resource, Services
from horae.api.dispatch.router import Routes
from horae.api.http.admission import Admission
from horae.api.http.origin import refuse_other_pages
from horae.api.http.problems import on_error, on_http_error, on_surprise
from horae.api.openapi import document
from horae.api.routes import (
    batch,
    dead_letters,
    docs,
    events,
    health,
    job_actions,
    jobs,
    queues,
    runs,
    schedules,
    tasks,
)
from horae.core.errors import HoraeError

PARTS = (jobs, batch, job_actions, runs, dead_letters, queues, schedules, tasks, events, health, document, docs)


class Api(Starlette):
    """Answers every request in one place: layers around it would cost as much as most answers do."""

    def __init__(
        self, routes: Sequence[Resource], services: Services, guard: Guard, admission: Admission, *, local_names: bool
    ) -> None:
        super().__init__()
        self.router = self._routes = Routes(routes)
        self.services = services  # not in `state`, where each look takes as long as finding the route
        self.guard = guard
        self.admission = admission
        self._local_names = local_names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        scope["app"] = self
        request = Request(scope, receive, send)
        try:
            refuse_other_pages(scope, local_names=self._local_names)
            response = await self._routes.find(scope).dispatch(request)
        except HoraeError as exc:
            response = on_error(request, exc)
        except HTTPException as exc:
            response = on_http_error(request, exc)
        except Exception:
            await on_surprise()(scope, receive, send)
            raise  # the server logs it
        await response(scope, receive, send)


def create_app(
    services: Services, *, guard: Guard = OPEN, admission: Admission | None = None, local_names: bool = False
) -> Api:
    """An ASGI application over the use cases; it opens and closes nothing, so its maker does.

    With `local_names` it answers to localhost only, whatever other names lead to it.
    """
    routes = [route for part in PARTS for route in part.ROUTES]
    routes.sort(key=_generality)
    app = Api(routes, services, guard, admission or Admission(), local_names=local_names)
    app.state.documents = {}
    app.state.references = {}
    return app


def _generality(route: Resource) -> list[bool]:
    """Names come before parameters: `/v1/jobs/batch` is no job with the id `batch`."""
    return [part.startswith("{") for part in route.path.split("/")]
