"""Routes of tasks and of the workers that run them."""

from msgspec import Raw
from starlette.requests import Request
from starlette.responses import Response

from horae.api.auth import principal
from horae.api.context import page, resource, services_of
from horae.api.views import TaskView, worker_view


async def list_tasks(request: Request) -> Response:
    """Every task that a node ever registered."""
    principal(request)
    schemas = await services_of(request).tasks.schemas()
    return page([TaskView(name=name, schema=Raw(schema.encode())) for name, schema in sorted(schemas.items())], None)


async def list_workers(request: Request) -> Response:
    """Every node that runs tasks."""
    principal(request)
    return page([worker_view(node) for node in await services_of(request).inspection.workers()], None)


ROUTES = [resource("/v1/tasks", GET=list_tasks), resource("/v1/workers", GET=list_workers)]
