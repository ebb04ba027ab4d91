"""Says in plain words what is wrong with a value, given its JSON schema or the message of the decoder.

No sentence has the value itself in it: that may be long, or secret.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Schema = Mapping[str, Any]

_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_WORDS = {
    "object": "an object",
    "array": "a list",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
}
_PYTHON_WORDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "null",
    "object": "an object",
    "array": "a list",
    "datetime": "a date and time",
    "date": "a date",
    "bytes": "text",
}


def is_of_type(expected: object, value: object) -> bool:
    """Return whether a value has the type, or one of the types, of a JSON schema."""
    names = expected if isinstance(expected, list) else [expected]
    if isinstance(value, bool):
        return "boolean" in names
    if isinstance(value, float) and value.is_integer() and "integer" in names:
        return True
    return any(isinstance(value, _TYPES.get(str(name), (object,))) for name in names)


def type_words(schema: Schema) -> str:
    """Return what a schema asks for, such as `a whole number` or `one of red, blue`; empty if it takes anything."""
    if "enum" in schema:
        return f"one of {', '.join(str(choice) for choice in schema['enum'] if choice is not None)}"
    if "const" in schema:
        return str(schema["const"])
    expected = schema.get("type", [])
    names = expected if isinstance(expected, list) else [expected]
    return " or ".join(_WORDS.get(str(name), str(name)) for name in names)


def value_words(value: object) -> str:
    """Return what a value is, such as `text` or `a number`."""
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return "a number" if isinstance(value, int) or value.is_integer() else "a fraction"
    return next((_WORDS[name] for name, types in _TYPES.items() if isinstance(value, types)), "something else")


def mismatch(alternatives: Sequence[str], value: object) -> str:
    """Return the sentence for a value that is none of the alternatives; null goes without saying."""
    named = list(dict.fromkeys(words for words in alternatives if words not in ("", "null"))) or ["null"]
    choice = (", or " if any("," in words for words in named) else " or ").join(named)
    found = value_words(value)
    quoted = any(words.startswith("one of ") for words in named) and isinstance(value, str)
    return f"must be {choice}" if quoted or found in named else f"must be {choice}, not {found}"


def range_fault(schema: Schema, value: object) -> str | None:
    """Return what is wrong with the size or the form of a value that has the right type; None if nothing is."""
    if isinstance(value, str):
        return _size_fault(schema, len(value), "Length", "characters") or _pattern_fault(schema, value)
    if isinstance(value, list):
        return _size_fault(schema, len(value), "Items", "items")
    if isinstance(value, dict):
        return _size_fault(schema, len(value), "Properties", "entries")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _number_fault(schema, value)
    return None


def _size_fault(schema: Schema, size: int, unit: str, words: str) -> str | None:
    least, most = schema.get(f"min{unit}", 0), schema.get(f"max{unit}")
    if size < least:
        return "must not be empty" if least == 1 else f"must have at least {least} {words}, not {size}"
    if most is not None and size > most:
        return f"must have at most {most} {words}, not {size}"
    return None


def _pattern_fault(schema: Schema, value: str) -> str | None:
    pattern = schema.get("pattern")
    if pattern is None or re.search(pattern, value):
        return None
    return f"does not have the right form: {schema.get('description', pattern)}"


def _number_fault(schema: Schema, value: float) -> str | None:
    least, above = schema.get("minimum"), schema.get("exclusiveMinimum")
    most, below = schema.get("maximum"), schema.get("exclusiveMaximum")
    too_small = (least is not None and value < least) or (above is not None and value <= above)
    too_large = (most is not None and value > most) or (below is not None and value >= below)
    if too_small or too_large:
        if least is not None and most is not None:
            return f"must be from {_number(least)} to {_number(most)}"
        bounds = {"at least": least, "more than": above, "at most": most, "less than": below}
        return f"must be {' and '.join(f'{words} {_number(n)}' for words, n in bounds.items() if n is not None)}"
    step = schema.get("multipleOf")
    return f"must be a multiple of {_number(step)}" if step is not None and value % step else None


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else str(value)


# --- messages of the decoder, for what a schema does not say

_SENTENCES = {
    "Invalid RFC3339 encoded datetime": "must be a date and time such as 2026-01-31T09:00:00Z",
    "Invalid RFC3339 encoded date": "must be a date such as 2026-01-31",
    "Invalid RFC3339 encoded time": "must be a time such as 09:00:00",
    "Invalid ISO8601 duration": "must be a duration such as PT1H30M",
    "Invalid UUID": "must be a UUID such as 00000000-0000-0000-0000-000000000000",
    "Invalid decimal string": "must be a decimal number such as 12.50",
    "Invalid base64 encoded string": "must be text in base64",
    "Number out of range": "is a number that is out of range",
    "Integer value out of range": "is a number that is out of range",
}
_UNITS = {"str": "characters", "bytes": "bytes", "object": "entries"}
_COMPARISONS = {">=": "at least", "<=": "at most", ">": "more than", "<": "less than"}
_PATTERNS: Sequence[tuple[re.Pattern[str], Callable[[re.Match[str]], str]]] = (
    (re.compile(r"Expected (?P<types>.+), got (?P<got>\w+)"), lambda m: _expected(m["types"], m["got"])),
    (
        re.compile(r"Expected (?P<type>\w+) of length (?P<sign>[<>]=) (?P<n>\d+)"),
        lambda m: f"must have {_COMPARISONS[m['sign']]} {m['n']} {_UNITS.get(m['type'], 'items')}",
    ),
    (
        re.compile(r"Expected (?:int|float|decimal) (?P<sign>[<>]=?) (?P<n>\S+)"),
        lambda m: f"must be {_COMPARISONS[m['sign']]} {m['n'].removesuffix('.0')}",
    ),
    (re.compile(r"Expected \w+ that's a multiple of (?P<n>\S+)"), lambda m: f"must be a multiple of {m['n']}"),
    (
        re.compile(r"Expected \w+ matching regex '(?P<form>.*)'", re.DOTALL),
        lambda m: f"does not have the right form: {m['form']}",
    ),
    (re.compile(r"Expected \w+ with a timezone component"), lambda m: "needs an offset, such as Z or +01:00"),
    (re.compile(r"Expected \w+ with no timezone component"), lambda m: "must not have an offset"),
    (re.compile(r"Object missing required field (?P<name>.+)"), lambda m: f"needs {m['name']}"),
    (re.compile(r"Object contains unknown field (?P<name>.+)"), lambda m: f"has no {m['name']}"),
    (re.compile(r"Invalid (?:enum )?value .*", re.DOTALL), lambda m: "is not one of the choices"),
)


def plain_words(message: str) -> str:
    """Return a message of the decoder, without its place, in plain words; one of a task's own type stays as it is."""
    text = message.replace("`", "").partition(" - at key in")[0]
    if text in _SENTENCES:
        return _SENTENCES[text]
    for pattern, words in _PATTERNS:
        if (found := pattern.fullmatch(text)) is not None:
            return words(found)
    return text


def _expected(types: str, got: str) -> str:
    named = [_PYTHON_WORDS.get(name, name) for name in types.split(" | ") if name != "null"] or ["null"]
    found = "a number" if got in ("int", "float") else _PYTHON_WORDS.get(got, got)
    return f"must be {' or '.join(named)}, not {found}"
