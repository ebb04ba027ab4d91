"""What is wrong with a value, in plain words: no types of a programming language, no patterns, all choices."""

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import pytest
from msgspec import Meta

from horae.core.errors import Fault
from horae.core.wording.fault_words import plain_words
from horae.core.wording.json_schema import value_faults


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Shape(msgspec.Struct, forbid_unknown_fields=True):
    sides: Annotated[int, Meta(ge=3)]
    colour: Colour = Colour.RED


NAMED = Annotated[str, Meta(pattern="^[a-z]+$", description="small letters")]
CASES: list[tuple[Any, Any, str, str]] = [
    (int | None, "x", "", "must be a whole number, not text"),
    (int, 1.5, "", "must be a whole number, not a fraction"),
    (str, 1, "", "must be text, not a number"),
    (bool | None, "yes", "", "must be true or false, not text"),
    (str | dict[str, int] | None, 7, "", "must be text or an object, not a number"),
    (Colour, "green", "", "must be one of blue, red"),
    (Colour | None, 7, "", "must be one of blue, red, not a number"),
    (Literal["2xx", "3xx"] | int | list[int], "x", "", "must be one of 2xx, 3xx, or a whole number, or a list"),
    (Annotated[int, Meta(ge=-1, le=1)] | None, 9, "", "must be from -1 to 1"),
    (Annotated[float, Meta(gt=0, le=60)] | None, 0, "", "must be more than 0 and at most 60"),
    (Annotated[int, Meta(multiple_of=5)], 7, "", "must be a multiple of 5"),
    (Annotated[str, Meta(min_length=1)], "", "", "must not be empty"),
    (Annotated[str, Meta(max_length=2)], "abc", "", "must have at most 2 characters, not 3"),
    (Annotated[list[int], Meta(min_length=2)], [1], "", "must have at least 2 items, not 1"),
    (Annotated[dict[str, int], Meta(max_length=1)], {"a": 1, "b": 2}, "", "must have at most 1 entries, not 2"),
    (
        dict[Annotated[str, Meta(max_length=1)], int],
        {"ab": 1},
        "",
        "has a name that must have at most 1 characters, not 2",
    ),
    (NAMED, "A", "", "does not have the right form: small letters"),
    (list[int], [1, "x"], "/1", "must be a whole number, not text"),
    (Shape, {"sides": 2}, "/sides", "must be at least 3"),
    (Shape, {"sides": 4, "size": 1}, "/size", "is not a known name; known are sides, colour"),
    (Shape | None, {}, "/sides", "is required"),
    (None, 1, "", "must be null, not a number"),
]


@pytest.mark.parametrize(("kind", "value", "place", "words"), CASES)
def test_a_wrong_value_is_told_in_plain_words(kind: Any, value: Any, place: str, words: str) -> None:
    assert value_faults(msgspec.json.schema(kind), value, "") == [Fault(place, words)]


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        (datetime, "x", "must be a date and time such as 2026-01-31T09:00:00Z"),
        (date, "2026-13-01", "must be a date such as 2026-01-31"),
        (time, "99", "must be a time such as 09:00:00"),
        (timedelta, "x", "must be a duration such as PT1H30M"),
        (UUID, "x", "must be a UUID such as 00000000-0000-0000-0000-000000000000"),
        (Decimal, "x", "must be a decimal number such as 12.50"),
        (bytes, "é", "must be text in base64"),
        (Annotated[datetime, Meta(tz=True)], "2026-01-01T00:00:00", "needs an offset, such as Z or +01:00"),
        (Annotated[datetime, Meta(tz=False)], "2026-01-01T00:00:00Z", "must not have an offset"),
        (int | None, "x", "must be a whole number, not text"),
        (Annotated[str, Meta(max_length=2)], "abc", "must have at most 2 characters"),
        (Annotated[float, Meta(gt=0)], 0, "must be more than 0"),
        (Annotated[int, Meta(multiple_of=5)], 7, "must be a multiple of 5"),
        (NAMED, "A", "does not have the right form: ^[a-z]+$"),
        (Colour, "green", "is not one of the choices"),
        (Shape, {}, "needs sides"),
        (Shape, {"sides": 3, "size": 1}, "has no size"),
        (dict[Annotated[str, Meta(min_length=1)], int], {"": 1}, "must have at least 1 characters"),
    ],
)
def test_a_message_of_the_decoder_is_translated(kind: Any, value: Any, words: str) -> None:
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.json.decode(msgspec.json.encode(value), type=kind)
    assert plain_words(str(refused.value).partition(" - at `")[0]) == words


def test_what_a_tasks_own_type_says_stays() -> None:
    assert plain_words("a parcel needs a street") == "a parcel needs a street"
