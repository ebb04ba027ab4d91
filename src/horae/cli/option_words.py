"""Tells the problems of a new job in the words of the command line: `--max-retries` instead of `max_retries`."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from horae.core.errors import Fault, Invalid

_OPTIONS = {
    "timeout_seconds": "--timeout",
    "start_within_seconds": "--start-within",
    "catchup_seconds": "--catchup",
    **{
        field: f"--{field.replace('_', '-')}"
        for field in ("allow_unknown_task", "max_retries", "on_failure", "ordering_key")
    },
}
_FIELDS = re.compile(rf"(?:set )?\b(?P<field>{'|'.join(_OPTIONS)})\b")


@contextmanager
def told_in_options() -> Iterator[None]:
    """Raise an Invalid of the body again, with options instead of fields."""
    try:
        yield
    except Invalid as exc:
        faults = [Fault(fault.pointer, _in_options(fault.detail)) for fault in exc.faults]
        raise Invalid(_in_options(str(exc)), faults=faults) from exc


def _in_options(detail: str) -> str:
    return _FIELDS.sub(_option, detail)


def _option(found: re.Match[str]) -> str:
    asked = "use " if found[0].startswith("set ") else ""
    return f"{asked}{_OPTIONS[found['field']]}"
