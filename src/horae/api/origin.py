"""Refuses acts that another web page makes a visitor's browser ask for.

A server without authentication listens on loopback only, but every page that its user visits can send requests there.
Browsers name the page that a request comes from; other clients do not, and are not concerned. A page whose own name was
made to point at loopback comes from the right place under the wrong name: `local_names` knows no name but localhost.
"""

from ipaddress import ip_address

from starlette.types import ASGIApp, Receive, Scope, Send

from horae.api.problems import Forbidden, problem_of, problem_response

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


class SameOrigin:
    """Lets only pages of this server itself change anything."""

    def __init__(self, app: ASGIApp, *, local_names: bool) -> None:
        self._app = app
        self._local_names = local_names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        if refusal is None:
            await self._app(scope, receive, send)
        else:
            await problem_response(problem_of(Forbidden(refusal)))(scope, receive, send)

    def _refusal(self, scope: Scope) -> str | None:
        origin = None if scope["method"] in SAFE else _header(scope, b"origin")
        if origin is not None and origin.partition("://")[2] != _header(scope, b"host"):
            return "a page of another site may not do this"
        host = _header(scope, b"host") if self._local_names else None
        if host is not None and not _is_local(host):
            return f"this server is for this machine only, under the name localhost, not {host[:100]}"
        return None


def _header(scope: Scope, name: bytes) -> str | None:
    for key, value in scope["headers"]:
        if key == name:
            return str(value, "latin-1")
    return None


def _is_local(host: str) -> bool:
    name = host.partition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]
    if name == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False
