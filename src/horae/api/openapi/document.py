"""The OpenAPI document, generated from the routes themselves, so that it cannot differ from them."""

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
from horae.api.dispatch.mount_cache import MountCache
from horae.api.dispatch.router import Resource, resource
from horae.api.http.operation import Operation, Param, Scope
from horae.api.http.problems import Problem
from horae.api.openapi.examples import EXAMPLES, LINES_EXAMPLE
from horae.api.openapi.links import LinkTarget, links_of
from horae.api.openapi.overlays import JOB_ID, RUN_ID
from horae.api.openapi.schedule_schemas import Schema
from horae.api.openapi.schemas import generate_schemas, schema_of
from horae.core.limits import Key, Queue

JSON, PROBLEM, EVENTS = "application/json", "application/problem+json", "text/event-stream"
TAGS = {
    "jobs": "Which task to run, when, and how.",
    "runs": "The occurrences of jobs.",
    "dead letters": "Runs that failed after all retries and are not resolved yet.",
    "queues": "Where runs wait for workers.",
    "usage": "How much an owner keeps, and its limits.",
    "archive": "Ended runs that are no longer in the store.",
    "schedules": "Preview a schedule before creating a job.",
    "tasks": "The tasks that jobs can run, and the workers that run them.",
    "events": "Events of jobs and runs, as they occur.",
    "server": "Health, metrics and documentation of the server.",
}
SCOPES = {
    Scope.READ: "read one's own jobs and runs",
    Scope.WRITE: "create and change one's own jobs and runs",
    Scope.SHELL: "create jobs that run shell commands",
    Scope.ADMIN: "everything except the shell, for every owner",
}
PROBLEMS = {
    400: "the request cannot be parsed",
    401: "the request has no valid token",
    403: "the token does not allow the request, or a page of another site sent it",
    404: "it does not exist, or belongs to another owner",
    405: "the route does not support the method",
    408: "the request took too long to arrive",
    409: "the current state of the job or run does not allow the request",
    410: "the events after `Last-Event-ID` are no longer kept; start again without it",
    412: "the job has changed since it was read",
    413: "the body is too large",
    414: "the URL is too long",
    422: "the request was parsed but is invalid; `errors` lists the fields",
    429: "too many requests, or more than the owner's quota; retry after `Retry-After` seconds",
    431: "there are too many headers, or they are too large",
    503: "the store does not respond, or the server is at capacity; retry after `Retry-After` seconds",
}
ALWAYS_POSSIBLE = frozenset({400, 403, 408, 414, 431})
RETRY_AFTER = {
    "description": "seconds to wait before retrying",
    "required": True,
    "schema": {"type": "integer", "minimum": 0},
}
HEADERS: Mapping[str, Schema] = {
    "ETag": {"description": "the revision, for If-Match", "schema": {"type": "string"}},
    "Location": {"description": "the path of the new job or run", "schema": {"type": "string"}},
    "Idempotency-Replayed": {
        "description": "`true` when this is the stored response to an earlier request",
        "schema": {"const": "true"},
    },
    "X-Run-Id": {"description": "the run whose log this is", "schema": RUN_ID},
}
PROBLEM_HEADERS: Mapping[int, Schema] = {
    401: {"WWW-Authenticate": {"description": "how to authenticate", "schema": {"type": "string"}}},
    405: {"Allow": {"description": "the supported methods", "schema": {"type": "string"}}},
    429: {"Retry-After": RETRY_AFTER},
    503: {"Retry-After": RETRY_AFTER},
}
IDEMPOTENCY_KEY = Param(
    "Idempotency-Key",
    Annotated[str, Meta(pattern="^[!-~]([ -~]{0,198}[!-~])?$")],
    "makes a request safe to repeat: the same body with the same key gets the same response for 24 h",
    place="header",
)
PATH_PARAMS: Mapping[str, Schema] = {  # by the path up to the parameter
    "/v1/jobs/{id}": JOB_ID,
    "/v1/runs/{id}": RUN_ID,
    "/v1/jobs/by-key/{key}": schema_of(Key),
    "/v1/queues/{name}": schema_of(Queue),
}
_LINES: Schema = {
    "schema": {"type": "string", "description": "one job per line"},
    "examples": {"two_jobs": {"summary": "two jobs", "value": LINES_EXAMPLE}},
}
_FORMER_NAMES = {"job_actions": "acts", "document": "openapi"}  # of modules, as they appear in operation ids
DESCRIPTION = (
    "Horae runs jobs on time. Timestamps are RFC 3339 in UTC and need an offset; durations are numbers of seconds. "
    "Lists come in pages: pass `next_cursor` as `cursor` until it is null. Every error is a problem document "
    "(RFC 9457), also for unknown routes and methods."
)


def document(routes: Iterable[BaseRoute], prefix: str = "") -> Schema:
    """Return the OpenAPI document of some routes; `prefix` is the path at which they are mounted."""
    resources = {path_of(route): route for route in routes if isinstance(route, Resource)}
    operations = [(path, each) for path, route in resources.items() for each in route.operations.values()]
    targets = [LinkTarget(id=operation_id(each), path=path) for path, each in operations]
    kinds = {repr(kind): kind for kind in (*_kinds(each for _, each in operations), Problem)}
    generated, components = generate_schemas(kinds.values())
    schemas = dict(zip(kinds, generated, strict=True))
    return {
        "openapi": "3.1.0",
        "info": {"title": "Horae", "version": __version__, "description": DESCRIPTION},
        "servers": [{"url": prefix or "/"}],
        "tags": _tags({each.tag for _, each in operations}),
        "paths": {
            path: {verb.lower(): _operation(path, each, schemas, targets) for verb, each in route.operations.items()}
            for path, route in resources.items()
        },
        "components": {
            "schemas": dict(sorted(components.items())),
            "responses": {f"Problem{status}": _problem_response(status) for status in PROBLEMS},
            "securitySchemes": {"bearer": _security_scheme()},
        },
    }


def path_of(route: Resource) -> str:
    """Return the path of a route without the converters of its parameters."""
    return re.sub(r":[a-z]+}", "}", route.path)


def operation_id(operation: Operation) -> str:
    """Return the id of an operation; generated clients name their methods after it, so it must not change."""
    module = operation.handler.__module__.rpartition(".")[2]
    return f"{_FORMER_NAMES.get(module, module)}.{getattr(operation.handler, '__name__', 'handler')}"


def implied_problems(path: str, operation: Operation) -> set[int]:
    """Return the error statuses that an operation may return in addition to those that it declares."""
    statuses = set(ALWAYS_POSSIBLE)
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
        "description": f"Scopes, in the claim `scope`: {scopes}. Without HORAE_AUTH=jwt no token is needed.",
    }


def _operation(path: str, operation: Operation, schemas: Mapping[str, Schema], targets: Sequence[LinkTarget]) -> Schema:
    summary, _, description = (operation.handler.__doc__ or "").strip().partition("\n")
    found: Schema = {
        "operationId": operation_id(operation),
        "tags": [operation.tag],
        "summary": summary.removesuffix("."),
        "parameters": [*_path_params(path), *map(_param, _params(operation))],
        "responses": _responses(path, operation, schemas, targets),
        "security": [] if operation.scope is None else [{"bearer": [str(operation.scope)]}],
    }
    if description.strip():
        found["description"] = re.sub(r"\s+", " ", description.strip())
    if operation.body is not None:
        found["requestBody"] = _request_body(operation, schemas[repr(operation.body)])
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
    found = EXAMPLES.get(_name(schema), {})
    examples = {title.replace(" ", "_"): {"summary": title, "value": body} for title, body in found.items()}
    json = {media: {"schema": schema, "examples": examples} for media in operation.takes if _is_json(media)}
    lines = {media: _LINES for media in operation.takes if media not in json}
    needed = [field.required for field in msgspec.structs.fields(operation.body)]
    return {"required": any(needed), "content": json | lines}


def _is_json(media: str) -> bool:
    return media == JSON or media.endswith("+json")


def _responses(
    path: str, operation: Operation, schemas: Mapping[str, Schema], targets: Sequence[LinkTarget]
) -> dict[str, Schema]:
    successes = {status: kind for status, kind in operation.answers.items() if kind is not Problem}
    failed = implied_problems(path, operation) | (operation.answers.keys() - successes.keys())
    responses = {
        status: _response(status, operation, None if kind is None else schemas[repr(kind)], targets)
        for status, kind in successes.items()
    }
    problems = {status: {"$ref": f"#/components/responses/Problem{status}"} for status in failed}
    return {str(status): response for status, response in sorted((responses | problems).items())}


def _response(status: int, operation: Operation, schema: Schema | None, targets: Sequence[LinkTarget]) -> Schema:
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
    return {"type": "object", "description": "one event of the stream", "properties": fields}


def _name(schema: Schema) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]


def _problem_response(status: int) -> Schema:
    found: Schema = {
        "description": f"{HTTPStatus(status).phrase}: {PROBLEMS[status]}",
        "content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    if status in PROBLEM_HEADERS:
        found["headers"] = PROBLEM_HEADERS[status]
    return found


def document_of(request: Request) -> bytes:
    """Return the document of the application that received a request, generated once for each mount path."""
    prefix: str = request.scope.get("root_path", "")
    documents: MountCache[bytes] = request.app.state.documents
    return documents.get(prefix, lambda: msgspec.json.encode(document(request.app.routes, prefix)))


@Operation(scope=None, tag="server", answers={200: dict[str, Any]})
async def show(request: Request) -> Response:
    """Show this OpenAPI document."""
    return Response(document_of(request), media_type=JSON)


ROUTES = [resource("/openapi.json", GET=show)]
