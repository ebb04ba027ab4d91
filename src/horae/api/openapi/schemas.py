"""JSON schemas of what users write and read, drawn by msgspec from the types, with what types cannot say laid over."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, get_args

import msgspec
from msgspec import inspect

from horae.api.openapi.examples import EXAMPLES
from horae.api.openapi.overlays import ONE_OF_TWO, OVERLAYS, REFERENCE, Schema
from horae.api.openapi.schedule_schemas import SCHEDULE_SCHEMAS
from horae.api.schemas.job_requests import READ_ONLY


def draw(kinds: Iterable[Any]) -> tuple[list[Schema], dict[str, Schema]]:
    """The schema of each kind, and the components that they refer to."""
    kinds = list(kinds)
    schemas, drawn = msgspec.json.schema_components(kinds, ref_template=f"{REFERENCE}{{name}}")
    for name, fields in _instants(kinds):
        for field in fields:
            _mark_instant(drawn[name]["properties"][field])
    for name, overlays in OVERLAYS.items():
        for field, overlay in overlays.items():
            if name in drawn:
                _lay(drawn[name]["properties"], field, overlay)
    components = {public_name(name): _renamed(schema) for name, schema in drawn.items()}
    for name, schema in components.items():
        schema["title"] = name
        if name in EXAMPLES:
            schema["examples"] = list(EXAMPLES[name].values())
    if "JobRequest" in components:
        components = {**components, **SCHEDULE_SCHEMAS, **_kin_of_jobs(components)}
    for name in components.keys() & {"DiscardRequest", "RequeueRequest"}:
        components[name]["oneOf"] = ONE_OF_TWO
    return [_renamed(schema) for schema in schemas], components


def public_name(name: str) -> str:
    """The name of a type outside: `JobView` is a Job, `Page_JobView_` a JobPage and `JobBody` a JobRequest."""
    if name.startswith("Page_"):
        return f"{public_name(name.removeprefix('Page_').removesuffix('_'))}Page"
    if name.endswith("Body"):
        return f"{name.removesuffix('Body')}Request"
    return name.removesuffix("View")


def _lay(properties: Schema, field: str, overlay: Schema) -> None:
    """An overlay that says of what type a field is replaces its schema; any other adds to it."""
    drawn = properties.get(field, {})
    says_type = any(word in overlay for word in ("type", "anyOf", "$ref", "enum"))
    kept = {word: drawn[word] for word in ("default",) if word in drawn} if says_type else drawn
    properties[field] = {**kept, **overlay}


def _kin_of_jobs(components: Mapping[str, Schema]) -> dict[str, Schema]:
    """The shapes that a job is written in, which differ in a few fields: alone, in a batch, as a patch, as a whole."""
    job = components["JobRequest"]
    fields = {name: schema for name, schema in job["properties"].items() if name not in ("notify", "idempotency_key")}
    in_batch = fields | {"idempotency_key": job["properties"]["idempotency_key"]}
    told = components["Job"]["properties"].items()
    read_only = {name: {**schema, "readOnly": True} for name, schema in told if name in READ_ONLY}
    shapes = {
        "JobRequest": job | {"properties": fields},
        "BatchJobRequest": job
        | {"title": "BatchJobRequest", "properties": in_batch, "examples": [{"task": "demo.echo"}]},
    }
    if "PatchRequest" in components:
        shapes["PatchRequest"] = components["PatchRequest"] | {"properties": _without_defaults(fields)}
    if "ReplacementRequest" in components:
        shapes["ReplacementRequest"] = components["ReplacementRequest"] | {"properties": fields | read_only}
    return shapes


def _without_defaults(properties: Schema) -> Schema:
    return {name: {k: v for k, v in schema.items() if k != "default"} for name, schema in properties.items()}


def _renamed(value: Any) -> Any:
    """The same with public names, and with patterns that need no look-ahead, as not every reader knows that."""
    if isinstance(value, dict):
        return {word: _RENAMERS.get(word, _renamed)(part) for word, part in value.items()}
    return [_renamed(item) for item in value] if isinstance(value, list) else value


def _renamed_reference(reference: str) -> str:
    return f"{REFERENCE}{public_name(reference.removeprefix(REFERENCE))}"


_RENAMERS: Mapping[str, Callable[[Any], Any]] = {
    "$ref": _renamed_reference,
    "pattern": lambda pattern: pattern.removesuffix(r"(?!\n)"),
}


def _instants(kinds: Iterable[Any]) -> Iterator[tuple[str, list[str]]]:
    """The fields of each struct that hold a timestamp, which msgspec draws as mere strings."""
    seen: set[type] = set()
    waiting: list[Any] = list(inspect.multi_type_info(kinds))
    while waiting:
        match waiting.pop():
            case inspect.StructType(cls=cls, fields=fields) if cls not in seen:
                seen.add(cls)
                waiting.extend(field.type for field in fields)
                instants = [field.encode_name for field in fields if _holds_instant(field.type)]
                if instants:
                    yield cls.__name__, instants
            case inspect.UnionType(types=types):
                waiting.extend(types)
            case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
                waiting.append(item)
            case inspect.DictType(value_type=item):
                waiting.append(item)
            case inspect.Metadata(type=kind):
                waiting.append(kind)


def _holds_instant(kind: inspect.Type) -> bool:
    kinds = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    return any(isinstance(one, inspect.DateTimeType) for one in kinds)


def _mark_instant(schema: Schema) -> None:
    for choice in schema.get("anyOf", [schema]):
        if choice.get("type") == "string":
            choice["format"] = "date-time"


def schema_of(kind: Any) -> Schema:
    """The schema of a parameter."""
    if kind is datetime or datetime in get_args(kind):
        return {"type": "string", "format": "date-time"}
    [schema], components = draw([kind])
    reference = schema.get("$ref")
    if reference is None:
        return schema
    return {k: v for k, v in components[reference.removeprefix(REFERENCE)].items() if k not in ("title", "description")}
