"""Routes for those who look after the server: health, readiness, metrics, and a page that says where things are."""

import asyncio

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from horae.api.context import answer, resource, services_of
from horae.core.errors import Unavailable
from horae.metrics import CONTENT_TYPE

ANSWER_SECONDS = 2.0

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Horae</title>
<style>body{font:16px/1.6 system-ui,sans-serif;max-width:44rem;margin:3rem auto;padding:0 1rem}code{font-size:.95em}
@media(prefers-color-scheme:dark){body{background:#111;color:#ddd}a{color:#8bf}}</style></head>
<body><h1>Horae</h1><p>Runs jobs on time. This server answers at:</p><ul>
<li><a href="/v1/jobs"><code>/v1/jobs</code></a> the jobs; <code>POST</code> creates one</li>
<li><a href="/v1/runs"><code>/v1/runs</code></a> the runs, latest first</li>
<li><a href="/v1/tasks"><code>/v1/tasks</code></a> the tasks that workers know</li>
<li><a href="/v1/workers"><code>/v1/workers</code></a> the workers</li>
<li><code>/v1/schedules/preview</code> what a schedule means</li>
<li><a href="/healthz"><code>/healthz</code></a> <a href="/readyz"><code>/readyz</code></a>
<a href="/metrics"><code>/metrics</code></a> for those who look after it</li></ul>
<p>On the command line: <code>horae jobs ls</code>, <code>horae runs ls</code>,
<code>horae explain "0 9 * * mon-fri"</code>.</p></body></html>
"""


async def health(request: Request) -> Response:
    """The process answers."""
    return answer({"status": "ok"})


async def readiness(request: Request) -> Response:
    """The store answers and this node beats; else 503."""
    services = services_of(request)
    if not services.ready():
        raise Unavailable("this node has not joined the cluster, or its lease ran out")
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            await services.store.time()
    except TimeoutError as exc:
        raise Unavailable(f"the store did not answer within {ANSWER_SECONDS:g} s") from exc
    return answer({"status": "ready"})


async def metrics(request: Request) -> Response:
    """Figures in the format that Prometheus reads."""
    services = services_of(request)
    now = services.clock.now()
    services.metrics.queues(await services.store.queues(now=now), now)
    services.metrics.dead_letters(await services.store.dead_letters())
    return Response(services.metrics.text(), media_type=CONTENT_TYPE)


async def front(request: Request) -> Response:
    """A page that says where things are."""
    return HTMLResponse(PAGE)


ROUTES = [
    resource("/healthz", GET=health),
    resource("/readyz", GET=readiness),
    resource("/metrics", GET=metrics),
    resource("/", GET=front),
]
