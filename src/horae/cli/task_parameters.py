"""Reads --param and --secret for a task: a parameter that takes text gets text, even if it looks like a number."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from horae.cli.arguments import json_object, pairs, secret_pairs, text_pairs
from horae.cli.client import CommandClient

TaskName = Callable[[], str | None]  # asked for only if it makes a difference; None if it is not known


def task_parameters(
    client: CommandClient, task: TaskName, whole: str | None, single: Sequence[str] | None
) -> dict[str, Any]:
    """Read --params and --param; a single parameter wins over the same one in the object."""
    fitting = _fitting(client, task, pairs(single, "--param"), text_pairs(single, "--param"))
    return {**json_object(whole, "--params"), **fitting}


def task_secrets(client: CommandClient, task: TaskName, given: Sequence[str] | None) -> dict[str, Any]:
    """Read --secret."""
    return _fitting(client, task, secret_pairs(given, "--secret"), text_pairs(given, "--secret"))


def _fitting(
    client: CommandClient, task: TaskName, values: Mapping[str, Any], texts: Mapping[str, str]
) -> dict[str, Any]:
    """Return the text instead of what it means as JSON, where only text fits."""
    if all(isinstance(value, str) for value in values.values()):
        return dict(values)
    schemas = _parameter_schemas(client, task())
    return {
        name: texts[name] if not isinstance(value, str) and _only_text_fits(value, schemas.get(name, {})) else value
        for name, value in values.items()
    }


def _parameter_schemas(client: CommandClient, task: str | None) -> Mapping[str, Any]:
    """Return the schema of each parameter of a task; empty if no worker has registered it."""
    tasks = [] if task is None else client.get("/v1/tasks")["items"]
    found: Mapping[str, Any] = next((one["schema"].get("properties", {}) for one in tasks if one["name"] == task), {})
    return found


def _only_text_fits(value: Any, schema: Mapping[str, Any]) -> bool:
    types = {choice.get("type") for choice in schema.get("anyOf", [schema])}
    return "string" in types and types <= {"string", "null"} and not (value is None and "null" in types)
