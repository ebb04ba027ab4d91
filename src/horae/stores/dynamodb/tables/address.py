"""The address of a DynamoDB store and its options: `dynamodb://REGION/PREFIX?endpoint=URL&...`."""

from collections.abc import Mapping
from datetime import timedelta

from horae.aws_api.address import AwsAddress, parse_address
from horae.core.errors import Misconfigured
from horae.core.values import Value

SWITCH = {"on": True, "off": False}
DEFAULTS = {
    "billing": "on_demand",  # or provisioned, with `read` and `write`
    "read": "25",
    "write": "25",
    "warm_read": "",  # throughput that new tables are prepared for
    "warm_write": "",
    "backups": "on",  # point-in-time recovery
    "key": "",  # a key of KMS, by its ARN, id or alias; otherwise DynamoDB's own
    "protect": "off",  # deletion protection
    "keep": "",  # days after which DynamoDB itself deletes ended runs; empty: they are deleted by retention alone
}


class Options(Value, frozen=True, kw_only=True):
    """How tables are made, and how long they keep what has ended."""

    provisioned: tuple[int, int] | None  # units for reads and writes; None is on demand
    warm: tuple[int, int] | None
    backups: bool
    key: str | None
    protect: bool
    keep: timedelta | None


def parse_dynamodb(url: str) -> tuple[AwsAddress, Options]:
    """Read the address of a store; raises Misconfigured."""
    address = parse_address(url, scheme="dynamodb", variable="HORAE_STORE")
    if unknown := sorted(address.options.keys() - DEFAULTS.keys()):
        known = ", ".join(DEFAULTS)
        raise Misconfigured(f"HORAE_STORE: {unknown[0]!r} is no option of a DynamoDB store; these are: {known}")
    given = DEFAULTS | dict(address.options)
    if given["billing"] not in ("on_demand", "provisioned"):
        raise Misconfigured("HORAE_STORE: `billing` is on_demand or provisioned")
    warm = (
        (_count(given, "warm_read"), _count(given, "warm_write")) if given["warm_read"] or given["warm_write"] else None
    )
    options = Options(
        provisioned=(_count(given, "read"), _count(given, "write")) if given["billing"] == "provisioned" else None,
        warm=warm,
        backups=_switch(given, "backups"),
        key=given["key"] or None,
        protect=_switch(given, "protect"),
        keep=timedelta(days=_count(given, "keep")) if given["keep"] else None,
    )
    return address, options


def _count(given: Mapping[str, str], name: str) -> int:
    text = given[name]
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 10**7:
        raise Misconfigured(f"HORAE_STORE: `{name}` is a whole number above 0, not {text!r}")
    return int(text)


def _switch(given: Mapping[str, str], name: str) -> bool:
    if given[name] not in SWITCH:
        raise Misconfigured(f"HORAE_STORE: `{name}` is on or off, not {given[name]!r}")
    return SWITCH[given[name]]
