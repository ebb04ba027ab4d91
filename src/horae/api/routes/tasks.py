"""Routes of tasks and of the workers that run them."""

from msgspec import Raw
from starlette.requests import Request
from starlette.responses import Response

from horae.api.dispatch.context import Page, page, resource, services_of
from horae.api.http.operation import Scope, operation
from horae.api.schemas.responses import TaskView, WorkerView, worker_view


@operation(scope=Scope.READ, tag="tasks", answers={200: Page[TaskView]})
async def list_tasks(request: Request) -> Response:
    """List every task that a node ever registered."""
    schemas = await services_of(request).tasks.schemas()
    return page([TaskView(name=name, schema=Raw(schema.encode())) for name, schema in sorted(schemas.items())], None)


@operation(scope=Scope.READ, tag="tasks", answers={200: Page[WorkerView]})
async def list_workers(request: Request) -> Response:
    """List every node that runs tasks."""
    return page([worker_view(node) for node in await services_of(request).inspection.workers()], None)


ROUTES = [resource("/v1/tasks", GET=list_tasks), resource("/v1/workers", GET=list_workers)]
