"""Grants: what a token says of tasks, priority and limits, in its claims `tasks`, `max_priority` and `limits`."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from horae.core.decisions.quotas import Count
from horae.core.limits import Priority
from horae.core.values import Value

MAX_PATTERNS = 200
Pattern = Annotated[str, Meta(min_length=1, max_length=200)]
Patterns = Annotated[tuple[Pattern, ...], Meta(max_length=MAX_PATTERNS)]
Resource = Literal["waiting", "recurring", "queues", "stored_bytes"]


class Grants(Value, frozen=True, kw_only=True):
    """What a token says beyond its scopes; None where it says nothing."""

    tasks: Patterns | None = None  # names of tasks that it may run, with * and ? for any text and any character
    max_priority: Priority | None = None
    limits: dict[Resource, Count] | None = None  # of its owner's use, instead of those of the settings


def read_grants(payload: Mapping[str, Any]) -> Grants:
    """Return the grants of a token; raises ValueError for a claim that is wrong, so that a slip allows nothing."""
    try:
        return msgspec.convert({name: payload[name] for name in Grants.__struct_fields__ if name in payload}, Grants)
    except msgspec.ValidationError as exc:
        raise ValueError(
            f"the token has a wrong claim: {exc}; `tasks` is a list of names, `max_priority` a number up to 100,"
            " `limits` an object of numbers"
        ) from exc
