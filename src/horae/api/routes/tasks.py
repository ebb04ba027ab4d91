"""Routes of tasks and of the workers that run them."""

from datetime import datetime
from typing import Literal

from msgspec import Raw, Struct
from starlette.requests import Request
from starlette.responses import Response

from horae.api.dispatch.context import services_of
from horae.api.dispatch.responses import PageView, page_response
from horae.api.dispatch.router import resource
from horae.api.http.operation import Operation, Param, Scope
from horae.api.http.query import Query
from horae.config import ROLES
from horae.queries.nodes import NodeState

ANY_ROLE = "any"
ROLE = Param("role", Literal["api", "planner", "worker", "any"], "nodes with this role; default `worker`")


class TaskView(Struct):
    """A task and the JSON schema of its parameters."""

    name: str
    schema: Raw


class WorkerView(Struct):
    """A node; its name is that of its host and the number of its process."""

    id: str
    name: str
    roles: list[str]
    version: str
    queues: list[str]
    concurrency: int
    running: int
    started_at: datetime
    last_seen_at: datetime
    alive: bool  # whether its heartbeats arrive


@Operation(scope=Scope.READ, tag="tasks", answers={200: PageView[TaskView]})
async def list_tasks(request: Request) -> Response:
    """List every task that a node ever registered."""
    schemas = await services_of(request).tasks.schemas()
    return page_response(
        [TaskView(name=name, schema=Raw(schema.encode())) for name, schema in sorted(schemas.items())], None
    )


@Operation(scope=Scope.READ, tag="tasks", params=(ROLE,), answers={200: PageView[WorkerView]})
async def list_workers(request: Request) -> Response:
    """List the nodes that run tasks, or those with another role."""
    role = Query(request).one_of(ROLE.name, (*ROLES, ANY_ROLE)) or "worker"
    found = await services_of(request).nodes.nodes(None if role == ANY_ROLE else role)
    return page_response([_worker_view(state) for state in found], None)


ROUTES = [resource("/v1/tasks", GET=list_tasks), resource("/v1/workers", GET=list_workers)]


def _worker_view(state: NodeState) -> WorkerView:
    node = state.node
    return WorkerView(
        id=node.id,
        name=node.name,
        roles=list(node.roles),
        version=node.version,
        queues=list(node.queues),
        concurrency=node.concurrency,
        running=node.running,
        started_at=node.started_at,
        last_seen_at=node.beat_at,
        alive=state.alive,
    )
