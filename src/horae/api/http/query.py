"""Reads query parameters by name; unknown and repeated ones are refused."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, TypeVar

from msgspec import Meta
from starlette.requests import Request

from horae.api.http.operation import Param, operation_of
from horae.core.errors import Fault, Invalid
from horae.core.schedule.timestamps import parse_timestamp
from horae.core.wording.suggestions import did_you_mean

MAX_LIMIT = 1000
DEFAULT_LIMIT = 50
MAX_TEXT = 500
MAX_CURSOR = 2000

Choice = TypeVar("Choice", bound=StrEnum)
Text = Annotated[str, Meta(min_length=1, max_length=MAX_TEXT)]
Count = Annotated[int, Meta(ge=1, le=MAX_LIMIT)]
Cursor = Annotated[str, Meta(min_length=1, max_length=MAX_CURSOR)]

PAGING = (
    Param("limit", Count, f"the maximum number of items on a page; default {DEFAULT_LIMIT}"),
    Param("cursor", Cursor, "`next_cursor` of the previous page"),
)


class Query:
    """The query parameters of one request; only those that its operation declares are accepted."""

    _place = ""  # of the parameters, as a JSON pointer

    def __init__(self, request: Request) -> None:
        known = operation_of(request).queries
        self._values: dict[str, str] = {}
        for name, value in request.query_params.multi_items():
            if name not in known:
                raise _unknown(name, known)
            if name in self._values:
                raise Invalid(f"{name} is given twice; give it once", pointer=f"/{name}")
            if "\0" in value:
                raise Invalid(f"{name} cannot contain the character NUL", pointer=f"/{name}")
            self._values[name] = value

    @property
    def names(self) -> frozenset[str]:
        """The names of the parameters that are given."""
        return frozenset(self._values)

    def text(self, name: str, longest: int = MAX_TEXT) -> str | None:
        """Return a text that is not empty; None when it is absent."""
        value = self._values.get(name)
        if value is not None and not 0 < len(value) <= longest:
            raise Invalid(f"{name} must have 1 to {longest} characters", pointer=self._pointer(name))
        return value

    def number(self, name: str, default: int, largest: int) -> int:
        """Return a number from 1 to `largest`."""
        value = self._values.get(name)
        if value is None:
            return default
        if not (value.isascii() and value.isdecimal() and len(value) <= 9 and 1 <= int(value) <= largest):
            raise Invalid(f"{name} must be a number from 1 to {largest}", pointer=self._pointer(name))
        return int(value)

    def one_of(self, name: str, choices: Iterable[str]) -> str | None:
        """Return one of the given words; None when it is absent."""
        value = self._values.get(name)
        if value is not None and value not in (known := list(choices)):
            raise Invalid(f"{name} must be one of {', '.join(known)}", pointer=self._pointer(name))
        return value

    def choice(self, name: str, kind: type[Choice]) -> Choice | None:
        """Return a member of an enum; None when it is absent."""
        value = self.one_of(name, list(kind))
        return None if value is None else kind(value)

    def flag(self, name: str) -> bool:
        """Return whether it is `true`; absent is `false`."""
        return self.one_of(name, ("true", "false")) == "true"

    def time(self, name: str) -> datetime | None:
        """Return a timestamp with an offset; an unescaped `+`, which arrives as a blank, is accepted."""
        value = self._values.get(name)
        if value is None:
            return None
        if len(value) > 6 and value[-6] == " ":
            value = f"{value[:-6]}+{value[-5:]}"
        return read_timestamp(value, self._pointer(name))

    @property
    def limit(self) -> int:
        return self.number("limit", DEFAULT_LIMIT, MAX_LIMIT)

    @property
    def cursor(self) -> str | None:
        return self.text("cursor", MAX_CURSOR)

    def _pointer(self, name: str) -> str:
        return f"{self._place}/{name}"


class FilterFields(Query):
    """The fields of a filter in a body, which are those of the query of a list."""

    _place = "/filter"

    def __init__(self, fields: Mapping[str, str]) -> None:
        self._values = dict(fields)


def read_timestamp(text: str, pointer: str) -> datetime:
    """Return a timestamp with an offset; raises Invalid, whose code is that of a field and not of a schedule."""
    try:
        return parse_timestamp(text, pointer)
    except Invalid as exc:
        raise Invalid(str(exc), faults=exc.faults) from exc


def _unknown(name: str, known: tuple[str, ...]) -> Invalid:
    there = f"; known parameters are {', '.join(known)}" if known else "; there are none here"
    detail = f"unknown parameter {name[:100]!r}{did_you_mean(name, known) or there}"
    return Invalid(detail, faults=[Fault(f"/{name[:100]}", detail)])
