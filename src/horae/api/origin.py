"""Refuses acts that another web page makes a visitor's browser ask for.

A server without authentication listens on loopback only, but every page that its user visits can send requests there.
Browsers name the page that a request comes from; other clients do not, and are not concerned.
"""

from starlette.types import ASGIApp, Receive, Scope, Send

from horae.api.problems import Forbidden, problem_of, problem_response

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


class SameOrigin:
    """Lets only pages of this server itself change anything."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] not in SAFE and _foreign(scope["headers"]):
            refusal = Forbidden("a page of another site may not do this")
            await problem_response(problem_of(refusal))(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def _foreign(headers: list[tuple[bytes, bytes]]) -> bool:
    origin = host = None
    for name, value in headers:
        if name == b"origin":
            origin = value
        elif name == b"host":
            host = value
    return origin is not None and origin.partition(b"://")[2] != host
