"""Routes for those who look after the server: health, readiness and metrics."""

import asyncio
from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from horae.api.dispatch.context import answer, resource, services_of
from horae.api.http.operation import operation
from horae.api.http.problems import Problem
from horae.core.errors import Unavailable
from horae.metrics import CONTENT_TYPE

ANSWER_SECONDS = 2.0


class Health(msgspec.Struct):
    """That the server is well."""

    status: Literal["ok", "ready"]


@operation(scope=None, tag="server", answers={200: Health})
async def health(request: Request) -> Response:
    """Tell that the process answers."""
    return answer(Health("ok"))


@operation(scope=None, tag="server", answers={200: Health, 503: Problem})
async def readiness(request: Request) -> Response:
    """Tell whether the store answers and this node beats; else 503."""
    services = services_of(request)
    if not services.ready():
        raise Unavailable("this node has not joined the cluster, or its lease ran out")
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            await services.store.time()
    except TimeoutError as exc:
        raise Unavailable(f"the store did not answer within {ANSWER_SECONDS:g} s") from exc
    return answer(Health("ready"))


@operation(scope=None, tag="server", answers={200: None, 503: Problem}, media="text/plain")
async def metrics(request: Request) -> Response:
    """Show figures in the format that Prometheus reads."""
    services = services_of(request)
    now = services.clock.now()
    services.metrics.queues(await services.store.queues(now=now), now)
    services.metrics.dead_letters(await services.store.dead_letters())
    services.metrics.nodes(await services.store.nodes())
    return Response(services.metrics.text(), media_type=CONTENT_TYPE)


ROUTES = [
    resource("/healthz", GET=health),
    resource("/readyz", GET=readiness),
    resource("/metrics", GET=metrics),
]
