"""Checks a value against a JSON schema.

It supports the keywords that msgspec produces and ignores all others, with limited depth and steps.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from horae.core.errors import MAX_FAULTS, Fault
from horae.core.wording.fault_words import Schema, is_of_type, mismatch, range_fault, type_words

_MAX_DEPTH = 100
_MAX_STEPS = 100_000  # limits the cost of a schema that refers to itself


def value_faults(schema: Schema, value: object, at: str) -> list[Fault]:
    """Return the first faults of a value, whose own place is the JSON pointer `at`."""
    return list(islice(_Checker(schema).faults(schema, value, at, 0), MAX_FAULTS))


class _Checker:
    """Checks one value against one root schema."""

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
        elif not _has_type(schema, value):
            yield Fault(at, mismatch([type_words(schema)], value))
        elif (fault := range_fault(schema, value)) is not None:
            yield Fault(at, fault)
        elif isinstance(value, dict):
            yield from self._object(schema, value, at, depth)
        elif isinstance(value, list):
            for index, item in enumerate(value):
                if self._steps > _MAX_STEPS:
                    return
                yield from self.faults(_item_schema(schema, index), item, f"{at}/{index}", depth + 1)

    def _any_of(self, choices: list[Schema], value: object, at: str, depth: int) -> Iterator[Fault]:
        """Yield the faults of the choice that has the type of the value, or else all that it might have been."""
        closest: list[Fault] = []
        for choice in choices:
            faults = list(islice(self.faults(choice, value, at, depth + 1), MAX_FAULTS))
            if not faults:
                return
            if not closest and _has_type(self._resolved(choice), value):
                closest = faults
        yield from closest or [Fault(at, mismatch(list(self._alternatives(choices, depth)), value))]

    def _alternatives(self, choices: list[Schema], depth: int) -> Iterator[str]:
        for choice in map(self._resolved, choices):
            if "anyOf" in choice and depth < _MAX_DEPTH:
                yield from self._alternatives(choice["anyOf"], depth + 1)
            else:
                yield type_words(choice)

    def _object(self, schema: Schema, value: Mapping[str, object], at: str, depth: int) -> Iterator[Fault]:
        properties: Schema = schema.get("properties", {})
        more = schema.get("additionalProperties", True)
        names: Schema = schema.get("propertyNames", {})
        for name in schema.get("required", ()):
            if name not in value:
                yield Fault(pointer(at, name), "is required")
        for name, item in value.items():
            if (fault := range_fault(names, name)) is not None:
                yield Fault(at, f"has a name that {fault}")
            elif name in properties:
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


def _has_type(schema: Schema, value: object) -> bool:
    if "enum" in schema:
        return value in schema["enum"]
    if "const" in schema:
        return bool(value == schema["const"])
    expected = schema.get("type")
    return expected is None or is_of_type(expected, value)


def _item_schema(schema: Schema, index: int) -> Schema:
    first = schema.get("prefixItems", [])
    following: Any = first[index] if index < len(first) else schema.get("items", {})
    return following if isinstance(following, dict) else {}


def pointer(at: str, *names: str) -> str:
    """Return the JSON pointer of what is below another one, by its names."""
    return "/".join((at, *(name.replace("~", "~0").replace("/", "~1") for name in names)))
