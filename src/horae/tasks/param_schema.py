"""Checks parameters against the JSON schema of a task, which is all that other nodes know about it.

It supports the keywords that `TaskFunction.schema` produces and ignores all others; the final check is the conversion
by the worker.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import msgspec

from horae.core.errors import MAX_FAULTS, Fault

Schema = Mapping[str, Any]

_MAX_DEPTH = 100
_MAX_STEPS = 100_000  # limits the cost of a schema that refers to itself
_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def schema_faults(schema: str | Schema, params: str | Mapping[str, object]) -> list[Fault]:
    """The faults of the parameters, with JSON pointers; schema and parameters may be JSON text."""
    try:
        value = msgspec.json.decode(params) if isinstance(params, str) else params
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as exc:
        return [Fault("/params", f"cannot be read as JSON: {exc}")]
    if not isinstance(value, dict):
        return [Fault("/params", "must be an object of named parameters")]
    root = msgspec.json.decode(schema) if isinstance(schema, str) else schema
    return list(islice(_Checker(root).faults(root, value, "/params", 0), MAX_FAULTS))


class _Checker:
    """Checks one value against one root schema, with limited depth and steps."""

    def __init__(self, root: Schema) -> None:
        self._definitions: Schema = root.get("$defs", {})
        self._steps = 0

    def faults(self, schema: Schema, value: object, at: str, depth: int) -> Iterator[Fault]:
        self._steps += 1
        if depth > _MAX_DEPTH or self._steps > _MAX_STEPS:
            return
        schema = self._resolved(schema)
        if (choices := schema.get("anyOf")) is not None:
            yield from self._any_of(choices, value, at, depth)
            return
        if (fault := _scalar_fault(schema, value)) is not None:
            yield Fault(at, fault)
        elif isinstance(value, dict):
            yield from self._object(schema, value, at, depth)
        elif isinstance(value, list):
            for index, item in enumerate(value):
                if self._steps > _MAX_STEPS:
                    return
                yield from self.faults(_item_schema(schema, index), item, f"{at}/{index}", depth + 1)

    def _any_of(self, choices: list[Schema], value: object, at: str, depth: int) -> Iterator[Fault]:
        """The faults of the closest choice: one of the same type, if there is one."""
        found = [list(islice(self.faults(choice, value, at, depth + 1), MAX_FAULTS)) for choice in choices]
        if any(not faults for faults in found):
            return
        deeper = [faults for faults in found if faults[0].pointer != at]
        if deeper:
            yield from deeper[0]
        else:
            yield Fault(at, "; or ".join(faults[0].detail for faults in found))

    def _object(self, schema: Schema, value: Mapping[str, object], at: str, depth: int) -> Iterator[Fault]:
        properties: Schema = schema.get("properties", {})
        more = schema.get("additionalProperties", True)
        for name in schema.get("required", ()):
            if name not in value:
                yield Fault(pointer(at, name), "is required")
        for name, item in value.items():
            if name in properties:
                yield from self.faults(properties[name], item, pointer(at, name), depth + 1)
            elif more is False:
                yield Fault(pointer(at, name), f"is not a known name; known are {', '.join(properties) or 'none'}")
            elif isinstance(more, dict):
                yield from self.faults(more, item, pointer(at, name), depth + 1)

    def _resolved(self, schema: Schema) -> Schema:
        for _ in range(_MAX_DEPTH):
            if "$ref" not in schema:
                return schema
            schema = self._definitions.get(str(schema["$ref"]).rpartition("/")[2], {})
        return {}


def _scalar_fault(schema: Schema, value: object) -> str | None:
    expected = schema.get("type")
    if expected is not None and not _has_type(expected, value):
        return f"must be of type {expected}, not {_type_name(value)}"
    if "enum" in schema and value not in schema["enum"]:
        return f"must be one of {', '.join(map(str, schema['enum']))}"
    if "const" in schema and value != schema["const"]:
        return f"must be {schema['const']}"
    return _range_fault(schema, value)


def _range_fault(schema: Schema, value: object) -> str | None:
    if isinstance(value, str | list):
        unit = "Length" if isinstance(value, str) else "Items"
        if len(value) < schema.get(f"min{unit}", 0):
            return f"must have at least {schema[f'min{unit}']} {'characters' if unit == 'Length' else 'items'}"
        if len(value) > schema.get(f"max{unit}", len(value)):
            return f"must have at most {schema[f'max{unit}']} {'characters' if unit == 'Length' else 'items'}"
    if isinstance(value, int | float) and not isinstance(value, bool):
        if value < schema.get("minimum", value):
            return f"must be at least {schema['minimum']}"
        if value > schema.get("maximum", value):
            return f"must be at most {schema['maximum']}"
        if "exclusiveMinimum" in schema and value <= schema["exclusiveMinimum"]:
            return f"must be more than {schema['exclusiveMinimum']}"
        if "exclusiveMaximum" in schema and value >= schema["exclusiveMaximum"]:
            return f"must be less than {schema['exclusiveMaximum']}"
    return None


def _item_schema(schema: Schema, index: int) -> Schema:
    first = schema.get("prefixItems", [])
    following: Any = first[index] if index < len(first) else schema.get("items", {})
    return following if isinstance(following, dict) else {}


def _has_type(expected: object, value: object) -> bool:
    names = expected if isinstance(expected, list) else [expected]
    if isinstance(value, bool):
        return "boolean" in names
    if isinstance(value, float) and value.is_integer() and "integer" in names:
        return True
    return any(isinstance(value, _TYPES.get(str(name), (object,))) for name in names)


def _type_name(value: object) -> str:
    if isinstance(value, bool):
        return "boolean"
    return next((name for name, types in _TYPES.items() if isinstance(value, types)), "unknown")


def pointer(at: str, *names: str) -> str:
    """Return the JSON pointer of what is below another one, by its names."""
    return "/".join((at, *(name.replace("~", "~0").replace("/", "~1") for name in names)))
