"""Routes requests: finds the resource of a path with one regular expression and dispatches to its operation."""

import re
from collections.abc import Mapping, Sequence

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from horae.api.auth.guard import authorize, principal
from horae.api.http.admission import Admission
from horae.api.http.operation import Operation, set_operation

_NAMED = re.compile(r"\(\?P<\w+>")


class Resource(Route):
    """A path with one operation per method; it matches every method, so that a 405 can list the allowed ones."""

    def __init__(self, path: str, operations: Mapping[str, Operation]) -> None:
        super().__init__(path, self.dispatch)
        self.operations = operations

    async def dispatch(self, request: Request) -> ASGIApp:
        """Authorize a request and return the response of its operation."""
        method = request.method
        operation = self.operations.get("GET" if method == "HEAD" else method)
        if operation is None:
            raise HTTPException(405, headers={"Allow": self._allowed()})
        set_operation(request, operation)
        await authorize(request, operation.scope)
        if operation.scope is None:  # health checks and metrics must work on a busy server, so admission skips them
            response = await operation.handler(request)
        else:
            response = await self._handle(request, operation)
        if not isinstance(response, StreamingResponse):
            return response
        return _without_stream(response) if method == "HEAD" else _counted_stream(request, response)

    async def _handle(self, request: Request, operation: Operation) -> Response:
        admission: Admission = request.app.admission
        admitted = admission.enter(request, principal(request).owner)
        try:
            if not operation.listing:
                return await operation.handler(request)
            async with admission.lists.turn(principal(request).owner):
                return await operation.handler(request)
        finally:
            admitted.leave()

    def _allowed(self) -> str:
        return ", ".join([*self.operations, *(["HEAD"] if "GET" in self.operations else [])])


def resource(path: str, **operations: Operation) -> Resource:
    """Return a resource; the keywords are its methods."""
    return Resource(path, operations)


class ResourceRouter(Router):
    """Finds the first resource that matches a path."""

    def __init__(self, resources: Sequence[Resource]) -> None:
        super().__init__(resources, redirect_slashes=False)  # a wrong path is a 404, not a redirect to a guess
        self._ordered = tuple(resources)
        self._any = re.compile("|".join(f"({_NAMED.sub('(?:', each.path_regex.pattern)})" for each in resources))

    def find(self, scope: Scope) -> Resource:
        """Return the resource of a request and set its path parameters; raises HTTPException when there is none."""
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        found = self._any.match(path)
        if found is None:
            raise HTTPException(404)
        assert found.lastindex is not None
        route = self._ordered[found.lastindex - 1]
        match = route.path_regex.match(path)
        assert match is not None
        scope["path_params"] = {**scope.get("path_params", {}), **match.groupdict()}
        return route


def _counted_stream(request: Request, response: StreamingResponse) -> ASGIApp:
    """Count a stream as one of its owner's from now until it ends; raises RateLimited or Unavailable."""
    admission: Admission = request.app.admission
    admitted = admission.open_stream(principal(request).owner)

    async def respond(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await response(scope, receive, send)
        finally:
            admitted.leave()

    return respond


def _without_stream(response: StreamingResponse) -> Response:
    """Return the head of a response, so that HEAD does not start a stream."""
    head = Response(status_code=response.status_code)
    head.raw_headers = response.raw_headers
    return head
