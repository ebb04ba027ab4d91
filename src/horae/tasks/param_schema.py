"""Checks parameters against the JSON schema of a task, which is all that other nodes know about it.

The final check is the conversion by the worker.
"""

from collections.abc import Mapping

import msgspec

from horae.core.errors import Fault
from horae.core.wording.fault_words import Schema
from horae.core.wording.json_schema import value_faults


def schema_faults(schema: str | Schema, params: str | Mapping[str, object]) -> list[Fault]:
    """The faults of the parameters, with JSON pointers; schema and parameters may be JSON text."""
    try:
        value = msgspec.json.decode(params) if isinstance(params, str) else params
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as exc:
        return [Fault("/params", f"cannot be read as JSON: {exc}")]
    if not isinstance(value, dict):
        return [Fault("/params", "must be an object of named parameters")]
    return value_faults(msgspec.json.decode(schema) if isinstance(schema, str) else schema, value, "/params")
