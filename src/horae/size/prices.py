"""List prices in dollars, with their region and date; a file may replace any of them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from horae.core.errors import Misconfigured
from horae.core.values import Value


class Prices(Value, frozen=True, kw_only=True):
    """What a unit of each thing costs."""

    region: str = "us-east-1"
    as_of: str = "2026-11"  # list prices without discounts, as known then; a program does not look them up

    write_units_million: float = 0.625  # DynamoDB on demand
    read_units_million: float = 0.125
    write_unit_hour: float = 0.00065  # DynamoDB provisioned
    read_unit_hour: float = 0.00013
    dynamodb_gb_month: float = 0.25
    sqs_requests_million: float = 0.40
    postgres_vcpu_hour: float = 0.084  # RDS, one availability zone, memory included
    postgres_gb_month: float = 0.115
    redis_node_hour: float = 0.126  # ElastiCache for Valkey, two vCPUs, 6 GB
    node_vcpu_hour: float = 0.03625  # a machine that runs Horae


def read_prices(path: Path) -> Prices:
    """Return the prices of a JSON file: any field of `Prices`; others keep their default."""
    try:
        given: Any = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as exc:
        raise Misconfigured(f"--prices {path}: {exc}") from exc
    if not isinstance(given, Mapping):
        raise Misconfigured(f"--prices {path}: it must be a JSON object")
    known = set(Prices.__struct_fields__)
    if unknown := sorted(set(given) - known):
        raise Misconfigured(f"--prices {path}: unknown {', '.join(unknown)}; known are {', '.join(sorted(known))}")
    if "as_of" not in given:
        raise Misconfigured(f"--prices {path}: as_of is missing: the date of the prices, such as 2026-11")
    try:
        return msgspec.convert(dict(given), Prices)
    except msgspec.ValidationError as exc:
        raise Misconfigured(f"--prices {path}: {exc}") from exc
