"""The application: every route, and a problem document for everything that goes wrong."""

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware

from horae.api import acts, batch, dead_letters, docs, events, health, jobs, openapi, queues, runs, schedules, tasks
from horae.api.auth import OPEN, Guard
from horae.api.context import Resource, Services
from horae.api.origin import SameOrigin
from horae.api.problems import on_error, on_http_error, on_surprise
from horae.api.routing import Routes
from horae.core.errors import HoraeError

PARTS = (jobs, batch, acts, runs, dead_letters, queues, schedules, tasks, events, health, openapi, docs)


def create_app(services: Services, *, guard: Guard = OPEN, local_names: bool = False) -> Starlette:
    """An ASGI application over the use cases; it opens and closes nothing, so its maker does.

    With `local_names` it answers to localhost only, whatever other names lead to it.
    """
    routes = [route for part in PARTS for route in part.ROUTES]
    routes.sort(key=_generality)
    app = Starlette(
        middleware=[Middleware(SameOrigin, local_names=local_names)],
        exception_handlers={HoraeError: on_error, HTTPException: on_http_error, Exception: on_surprise},
    )
    app.router = Routes(routes)
    app.state.services = services
    app.state.documents = {}
    app.state.references = {}
    app.state.guard = guard
    return app


def _generality(route: Resource) -> list[bool]:
    """Names come before parameters: `/v1/jobs/batch` is no job with the id `batch`."""
    return [part.startswith("{") for part in route.path.split("/")]
