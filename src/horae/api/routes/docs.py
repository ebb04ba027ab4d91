"""HTML pages: a start page and the API reference; they load nothing from other hosts."""

import base64
import hashlib
from html import escape
from pathlib import Path

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from horae.api.dispatch.mount_cache import MountCache
from horae.api.dispatch.router import resource
from horae.api.http.operation import Operation
from horae.api.openapi.document import document_of
from horae.api.openapi.reference import Reference

_FILES = Path(__file__).parent / "pages"
STYLE = (_FILES / "style.css").read_text(encoding="utf-8")
SCRIPT = (_FILES / "docs.js").read_text(encoding="utf-8")


@Operation(scope=None, tag="server", answers={200: None}, media=("text/html",))
async def front(request: Request) -> Response:
    """Show a page with links to the routes and some commands."""
    return _page("Horae", _front(request.scope.get("root_path", "")))


@Operation(scope=None, tag="server", answers={200: None}, media=("text/html",))
async def reference(request: Request) -> Response:
    """Show the API reference, with a form to try each operation."""
    pages: MountCache[Response] = request.app.state.references  # whole, because making one takes a millisecond

    def page() -> Response:
        return _page("Horae: the API", Reference(msgspec.json.decode(document_of(request))).html(), script=True)

    return pages.get(request.scope.get("root_path", ""), page)


ROUTES = [resource("/", GET=front), resource("/docs", GET=reference)]


def _page(title: str, body: str, *, script: bool = False) -> Response:
    """Return a page that can load nothing from elsewhere and cannot be framed."""
    scripts = _source(SCRIPT) if script else "'none'"
    policy = (
        f"default-src 'none'; style-src {_source(STYLE)}; script-src {scripts}; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    html = (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head>\n{body}'
        f"{f'<script>{SCRIPT}</script>' if script else ''}</body></html>\n"
    )
    headers = {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
    }
    return HTMLResponse(html, headers=headers)


def _source(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _front(prefix: str) -> str:
    places = {
        "/docs": "the API reference, with forms to try it",
        "/openapi.json": "the API reference as an OpenAPI document",
        "/v1/jobs": "jobs, newest first",
        "/v1/runs": "runs, latest first",
        "/metrics": "metrics for Prometheus",
        "/healthz": "whether the process is alive",
        "/readyz": "whether the server is ready to work",
    }
    commands = {
        "horae jobs ls": "list the jobs",
        "horae jobs create demo.echo --schedule 'every 5m'": "create a job",
        "horae runs ls": "list past, running and coming runs",
        'horae explain "0 9 * * mon-fri"': "explain a schedule and show its next times",
    }
    links = "".join(
        f'<tr><td><a href="{escape(prefix + path)}"><code>{path}</code></a></td><td>{text}</td></tr>'
        for path, text in places.items()
    )
    lines = "".join(
        f"<tr><td><code>{escape(command)}</code></td><td>{text}</td></tr>" for command, text in commands.items()
    )
    return (
        f'<body class="page"><h1>Horae</h1><p>Runs jobs on time. This server provides:</p><table>{links}</table>'
        f"<p>On the command line:</p><table>{lines}</table>"
    )
