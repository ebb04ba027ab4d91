"""The application: every route, and a problem document for everything that goes wrong."""

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware

from horae.api import health, jobs, runs, schedules, tasks
from horae.api.context import Services
from horae.api.origin import SameOrigin
from horae.api.problems import on_error, on_http_error, on_surprise
from horae.core.errors import HoraeError


def create_app(services: Services, *, local_names: bool = False) -> Starlette:
    """An ASGI application over the use cases; it opens and closes nothing, so its maker does.

    With `local_names` it answers to localhost only, whatever other names lead to it.
    """
    app = Starlette(
        routes=[*jobs.ROUTES, *runs.ROUTES, *schedules.ROUTES, *tasks.ROUTES, *health.ROUTES],
        middleware=[Middleware(SameOrigin, local_names=local_names)],
        exception_handlers={HoraeError: on_error, HTTPException: on_http_error, Exception: on_surprise},
    )
    app.router.redirect_slashes = False  # a wrong path is told, not guessed at
    app.state.services = services
    return app
