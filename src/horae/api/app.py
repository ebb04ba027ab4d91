"""The ASGI application: all routes, and a problem document for every error."""

from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from horae.api.auth.guard import OPEN, Guard
from horae.api.dispatch.context import Services
from horae.api.dispatch.mount_cache import MountCache
from horae.api.dispatch.router import Resource, ResourceRouter
from horae.api.http.admission import Admission
from horae.api.http.origin import refuse_foreign_host, refuse_foreign_origin
from horae.api.http.problems import on_error, on_http_error, on_unexpected_error
from horae.api.openapi import document
from horae.api.routes import (
    archive,
    batch,
    bulk,
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
    usage,
)
from horae.core.errors import HoraeError

ROUTE_MODULES = (
    jobs,
    batch,
    bulk,
    job_actions,
    runs,
    dead_letters,
    queues,
    usage,
    archive,
    schedules,
    tasks,
    events,
    health,
    document,
    docs,
)


class Api(Starlette):
    """Handles requests without middleware, whose layers would cost as much as most responses do."""

    def __init__(
        self, routes: Sequence[Resource], services: Services, guard: Guard, admission: Admission, *, local_names: bool
    ) -> None:
        super().__init__()
        self.router = self._routes = ResourceRouter(routes)
        self.services = services  # not in `state`, where each access costs as much as routing
        self.guard = guard
        self.admission = admission
        self._local_names = local_names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        scope["app"] = self
        request = Request(scope, receive, send)
        response: ASGIApp
        try:
            refuse_foreign_origin(scope)
            if self._local_names:
                refuse_foreign_host(scope)
            response = await self._routes.find(scope).dispatch(request)
        except HoraeError as exc:
            response = on_error(request, exc)
        except HTTPException as exc:
            response = on_http_error(request, exc)
        except Exception:
            await on_unexpected_error()(scope, receive, send)
            raise  # uvicorn logs it
        await response(scope, receive, send)


def create_app(
    services: Services, *, guard: Guard = OPEN, admission: Admission | None = None, local_names: bool = False
) -> Api:
    """Return the ASGI application; the caller opens and closes what `services` use.

    With `local_names` it accepts only requests whose Host is localhost or a loopback address.
    """
    routes = [route for module in ROUTE_MODULES for route in module.ROUTES]
    routes.sort(key=_generality)
    app = Api(routes, services, guard, admission or Admission(), local_names=local_names)
    app.state.documents = MountCache()
    app.state.references = MountCache()
    return app


def create_probes(services: Services) -> Api:
    """Return an application with `/healthz`, `/readyz` and `/metrics` alone, for a node without the api role."""
    return Api(health.ROUTES, services, OPEN, Admission(), local_names=False)


def _generality(route: Resource) -> list[bool]:
    """Sort fixed path segments before parameters, so that `/v1/jobs/batch` is not a job with the id `batch`."""
    return [part.startswith("{") for part in route.path.split("/")]
