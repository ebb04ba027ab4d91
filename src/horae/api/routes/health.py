"""Routes for operators: health, readiness and metrics."""

import asyncio
from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from horae.api.dispatch.context import services_of
from horae.api.dispatch.responses import json_response
from horae.api.dispatch.router import resource
from horae.api.http.operation import Operation
from horae.api.http.problems import Problem
from horae.core.errors import Unavailable
from horae.metrics import CONTENT_TYPE, SOON

STORE_TIMEOUT_SECONDS = 2.0


class Health(msgspec.Struct):
    """The state of the server."""

    status: Literal["ok", "ready"]


@Operation(scope=None, tag="server", answers={200: Health})
async def health(request: Request) -> Response:
    """Report that the process is alive."""
    return json_response(Health("ok"))


@Operation(scope=None, tag="server", answers={200: Health, 503: Problem})
async def readiness(request: Request) -> Response:
    """Report whether the store responds and this node's lease is valid; otherwise 503."""
    services = services_of(request)
    if not services.ready():
        raise Unavailable("this node has not joined the cluster, is about to leave it, or its lease has expired")
    try:
        async with asyncio.timeout(STORE_TIMEOUT_SECONDS):
            await services.store.time()
    except TimeoutError as exc:
        raise Unavailable(f"the store did not respond within {STORE_TIMEOUT_SECONDS:g} s") from exc
    return json_response(Health("ready"))


@Operation(scope=None, tag="server", answers={200: None, 503: Problem}, media=("text/plain",))
async def metrics(request: Request) -> Response:
    """Show metrics in the Prometheus format."""
    services = services_of(request)
    now = services.clock.now()
    due_soon = await services.store.due_soon(now=now, within=SOON)
    services.metrics.queues(await services.queues.depths(), due_soon, now)
    services.metrics.dead_letters(await services.store.count_dead_letters())
    services.metrics.nodes(await services.store.nodes())
    return Response(services.metrics.text(), media_type=CONTENT_TYPE)


ROUTES = [
    resource("/healthz", GET=health),
    resource("/readyz", GET=readiness),
    resource("/metrics", GET=metrics),
]
