"""The OpenAPI document, drawn from the routes themselves, so that it cannot tell of what is not there."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from horae import __version__
from horae.api.dispatch.context import Resource, resource
from horae.api.http.operation import Operation, Param, Scope, operation
from horae.api.http.problems import Problem
from horae.api.openapi.examples import EXAMPLES, LINES_EXAMPLE
from horae.api.openapi.links import Target, links_of
from horae.api.openapi.overlays import JOB_ID, RUN_ID, Schema
from horae.api.openapi.schemas import draw, schema_of
from horae.core.limits import Key, Queue

JSON, PROBLEM, EVENTS = "application/json", "application/problem+json", "text/event-stream"
TAGS = {
    "jobs": "What to do and when.",
    "runs": "One occurrence of a job each.",
    "dead letters": "Runs that failed for good and that nobody has resolved.",
    "queues": "Where runs wait for workers.",
    "schedules": "Trying out schedules.",
    "tasks": "What can be run, and who runs it.",
    "events": "What happens, as it happens.",
    "server": "For those who look after it.",
}
SCOPES = {
    Scope.READ: "look at one's own jobs and runs",
    Scope.WRITE: "create and change one's own jobs and runs",
    Scope.SHELL: "create jobs that run shell commands",
    Scope.ADMIN: "everything but the shell, for every owner",
}
REFUSALS = {
    400: "what was sent cannot be parsed",
    401: "there is no valid token",
    403: "the token does not allow this, or a page of another site asks",
    404: "there is no such thing, or it is somebody else's",
    405: "this route does not know the method",
    408: "the request took too long to arrive",
    409: "the state of the thing does not allow it",
    410: "what a stream should go on from is no longer kept; begin anew without `Last-Event-ID`",
    412: "the thing has changed since it was read",
    413: "the body is too large",
    414: "the address is too long",
    422: "what was sent is parsed but wrong; `errors` tells where",
    429: "too many requests; `Retry-After` tells when to come back",
    431: "the headers are too many or too large",
    503: "the store does not answer, or there is too much to do; `Retry-After` tells when to come back",
}
OF_EVERY_REQUEST = frozenset({400, 403, 408, 414, 431})
RETRY_AFTER = {"description": "seconds to wait", "required": True, "schema": {"type": "integer", "minimum": 0}}
HEADERS: Mapping[str, Schema] = {
    "ETag": {"description": "the revision, for If-Match", "schema": {"type": "string"}},
    "Location": {"description": "where the new thing is", "schema": {"type": "string"}},
    "Idempotency-Replayed": {"description": "`true`: the answer to an earlier request", "schema": {"const": "true"}},
    "X-Run-Id": {"description": "the run whose log this is", "schema": RUN_ID},
}
REFUSAL_HEADERS: Mapping[int, Schema] = {
    401: {"WWW-Authenticate": {"description": "how to authenticate", "schema": {"type": "string"}}},
    405: {"Allow": {"description": "the methods it knows", "schema": {"type": "string"}}},
    429: {"Retry-After": RETRY_AFTER},
    503: {"Retry-After": RETRY_AFTER},
}
IDEMPOTENCY_KEY = Param(
    name="Idempotency-Key",
    place="header",
    schema=Annotated[str, Meta(pattern="^[!-~]([ -~]{0,198}[!-~])?$")],
    description="makes a repeated request harmless: the same body under the same key gets the same answer for 24 h",
)
PATH_PARAMS: Mapping[str, Schema] = {  # by the path up to the parameter
    "/v1/jobs/{id}": JOB_ID,
    "/v1/runs/{id}": RUN_ID,
    "/v1/jobs/by-key/{key}": schema_of(Key),
    "/v1/queues/{name}": schema_of(Queue),
}
_LINES: Schema = {
    "schema": {"type": "string", "description": "a job a line"},
    "examples": {"two_jobs": {"summary": "two jobs", "value": LINES_EXAMPLE}},
}
DESCRIPTION = (
    "Horae runs jobs on time. Timestamps are RFC 3339 in UTC and need an offset, durations are numbers of seconds. "
    "Lists come in pages: pass `next_cursor` as `cursor` until it is null. Everything that goes wrong is a problem "
    "document (RFC 9457), also unknown routes and methods."
)


def document(routes: Iterable[BaseRoute], prefix: str = "") -> Schema:
    """The document of some routes; `prefix` is where they are mounted."""
    resources = {path_of(route): route for route in routes if isinstance(route, Resource)}
    operations = [(path, each) for path, route in resources.items() for each in route.operations.values()]
    targets = [Target(id=operation_id(each), path=path) for path, each in operations]
    kinds = {repr(kind): kind for kind in (*_kinds(each for _, each in operations), Problem)}
    schemas, components = draw(kinds.values())
    drawn = dict(zip(kinds, schemas, strict=True))
    return {
        "openapi": "3.1.0",
        "info": {"title": "Horae", "version": __version__, "description": DESCRIPTION},
        "servers": [{"url": prefix or "/"}],
        "tags": _tags({each.tag for _, each in operations}),
        "paths": {
            path: {verb.lower(): _operation(path, each, drawn, targets) for verb, each in route.operations.items()}
            for path, route in resources.items()
        },
        "components": {
            "schemas": dict(sorted(components.items())),
            "responses": {f"Problem{status}": _refusal(status) for status in REFUSALS},
            "securitySchemes": {"bearer": _security_scheme()},
        },
    }


def path_of(route: Resource) -> str:
    """The path of a route without the converters of its parameters."""
    return re.sub(r":[a-z]+}", "}", route.path)


def operation_id(operation: Operation) -> str:
    """The name of an operation: that of its handler within its module."""
    module = operation.handler.__module__.rpartition(".")[2]
    return f"{module}.{getattr(operation.handler, '__name__', 'handler')}"


def refusals_of(path: str, operation: Operation) -> set[int]:
    """The problems that an operation may answer with beside those that it declares itself."""
    statuses = set(OF_EVERY_REQUEST)
    if operation.scope is not None:
        statuses |= {401, 429, 503}
    if "{" in path:
        statuses |= {404}
    if operation.body is not None:
        statuses |= {413, 422}
    if operation.queries:
        statuses |= {422}
    if operation.idempotent:
        statuses |= {409, 422}
    return statuses


# --- parts of the document --------------------------------------------------------------------------------------------


def _kinds(operations: Iterable[Operation]) -> Iterator[Any]:
    for each in operations:
        yield from (kind for kind in (each.body, *each.answers.values()) if kind is not None)


def _tags(used: set[str]) -> list[Schema]:
    return [{"name": tag, "description": text} for tag, text in TAGS.items() if tag in used]


def _security_scheme() -> Schema:
    scopes = "; ".join(f"`{scope}`: {text}" for scope, text in SCOPES.items())
    return {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": f"Scopes, in the claim `scope`: {scopes}. Without HORAE_AUTH=jwt no token is asked for.",
    }


def _operation(path: str, operation: Operation, drawn: Mapping[str, Schema], targets: Sequence[Target]) -> Schema:
    summary, _, description = (operation.handler.__doc__ or "").strip().partition("\n")
    found: Schema = {
        "operationId": operation_id(operation),
        "tags": [operation.tag],
        "summary": summary.removesuffix("."),
        "parameters": [*_path_params(path), *map(_param, _params(operation))],
        "responses": _responses(path, operation, drawn, targets),
        "security": [] if operation.scope is None else [{"bearer": [str(operation.scope)]}],
    }
    if description.strip():
        found["description"] = re.sub(r"\s+", " ", description.strip())
    if operation.body is not None:
        found["requestBody"] = _request_body(operation, drawn[repr(operation.body)])
    return found


def _params(operation: Operation) -> Sequence[Param]:
    return (*operation.params, IDEMPOTENCY_KEY) if operation.idempotent else operation.params


def _path_params(path: str) -> list[Schema]:
    return [
        {"name": name, "in": "path", "required": True, "schema": PATH_PARAMS[path[:end]]}
        for name, end in ((found[1], found.end()) for found in re.finditer(r"{(\w+)}", path))
    ]


def _param(param: Param) -> Schema:
    example = {} if param.example is None else {"example": param.example}
    return {
        "name": param.name,
        "in": param.place,
        "description": param.description,
        "schema": schema_of(param.schema),
        **example,
    }


def _request_body(operation: Operation, schema: Schema) -> Schema:
    shown = EXAMPLES.get(_name(schema), {})
    examples = {title.replace(" ", "_"): {"summary": title, "value": body} for title, body in shown.items()}
    json = {media: {"schema": schema, "examples": examples} for media in operation.takes if _is_json(media)}
    lines = {media: _LINES for media in operation.takes if media not in json}
    needed = [field.required for field in msgspec.structs.fields(operation.body)]
    return {"required": any(needed), "content": json | lines}


def _is_json(media: str) -> bool:
    return media == JSON or media.endswith("+json")


def _responses(
    path: str, operation: Operation, drawn: Mapping[str, Schema], targets: Sequence[Target]
) -> dict[str, Schema]:
    given = {status: kind for status, kind in operation.answers.items() if kind is not Problem}
    refused = refusals_of(path, operation) | (operation.answers.keys() - given.keys())
    answers = {
        status: _answer(status, operation, None if kind is None else drawn[repr(kind)], targets)
        for status, kind in given.items()
    }
    refusals = {status: {"$ref": f"#/components/responses/Problem{status}"} for status in refused}
    return {str(status): answer for status, answer in sorted((answers | refusals).items())}


def _answer(status: int, operation: Operation, schema: Schema | None, targets: Sequence[Target]) -> Schema:
    found: Schema = {
        "description": HTTPStatus(status).phrase,
        "content": {media: {"schema": _content(media, schema)} for media in operation.media},
    }
    names = (*operation.headers, "Idempotency-Replayed") if operation.idempotent else operation.headers
    if names:
        found["headers"] = {name: HEADERS[name] for name in names}
    if schema is not None and (links := links_of(_name(schema), targets)):
        found["links"] = links
    return found


def _content(media: str, schema: Schema | None) -> Schema:
    if media != EVENTS:
        return schema or {"type": "string"}
    data = {} if schema is None else {"contentMediaType": JSON, "contentSchema": schema}
    fields = {"event": {"type": "string"}, "id": {"type": "string"}, "data": {"type": "string", **data}}
    return {"type": "object", "description": "each event", "properties": fields}


def _name(schema: Schema) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]


def _refusal(status: int) -> Schema:
    found: Schema = {
        "description": f"{HTTPStatus(status).phrase}: {REFUSALS[status]}",
        "content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    if status in REFUSAL_HEADERS:
        found["headers"] = REFUSAL_HEADERS[status]
    return found


# --- the route --------------------------------------------------------------------------------------------------------


def document_of(request: Request) -> bytes:
    """The document of the application that a request came to, drawn once for each place where it is mounted."""
    prefix: str = request.scope.get("root_path", "")
    drawn: dict[str, bytes] = request.app.state.documents
    if prefix not in drawn:
        drawn[prefix] = msgspec.json.encode(document(request.app.routes, prefix))
    return drawn[prefix]


@operation(scope=None, tag="server", answers={200: dict[str, Any]})
async def show(request: Request) -> Response:
    """Show this document."""
    return Response(document_of(request), media_type=JSON)


ROUTES = [resource("/openapi.json", GET=show)]
