"""Parses the text of a cron expression into sets of numbers; errors name the field and the column."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NoReturn

from horae.core.errors import InvalidSchedule

MAX_LENGTH = 1000
FIRST_YEAR, LAST_YEAR = 1970, 2199
LAST = 0  # as the `nth` of a weekday: its last occurrence in the month

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
FIELD_NAMES = ("second", "minute", "hour", "day", "month", "weekday", "year")  # in the order of a 7-field expression
ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "@yearly": "0 0 1 1 *",
        "@annually": "0 0 1 1 *",
        "@monthly": "0 0 1 * *",
        "@weekly": "0 0 * * 0",
        "@daily": "0 0 * * *",
        "@midnight": "0 0 * * *",
        "@hourly": "0 * * * *",
    }
)


@dataclass(frozen=True, slots=True)
class Field:
    """One field of an expression: its text and the values it allows."""

    text: str
    values: frozenset[int]

    @property
    def starts_with_star(self) -> bool:
        """Debian's rules for days and daylight saving depend on this; `?` counts as a star."""
        return self.text[0] in "*?"

    @property
    def is_any(self) -> bool:
        """Whether the field is just `*` or `?`."""
        return self.text in ("*", "?")


@dataclass(frozen=True, slots=True)
class DayOfMonth(Field):
    """The day-of-month field, with the items that depend on the month."""

    before_last: frozenset[int]  # `L` is 0, `L-3` is 3
    near: frozenset[int]  # `15W` is 15
    last_workday: bool  # `LW`

    @property
    def depends_on_month(self) -> bool:
        """Whether any of its days depends on the month."""
        return bool(self.before_last or self.near or self.last_workday)


@dataclass(frozen=True, slots=True)
class DayOfWeek(Field):
    """The day-of-week field, with Sunday as 0."""

    nth: frozenset[tuple[int, int]]  # (weekday, which one of the month), with LAST for the last


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """A whole expression."""

    second: Field
    minute: Field
    hour: Field
    day: DayOfMonth
    month: Field
    weekday: DayOfWeek
    year: Field | None  # None: every year
    both_days: bool  # the two day fields must both match, rather than either

    @property
    def fixed(self) -> bool:
        """Whether neither minute nor hour starts with a star; decides the default in `dst`."""
        return not (self.minute.starts_with_star or self.hour.starts_with_star)

    def useless_steps(self) -> list[tuple[str, str]]:
        """Items such as `*/90` whose step is larger than the field, each after the name of its field."""
        sizes = (("minute", self.minute, 60), ("hour", self.hour, 24), ("month", self.month, 12))
        return [
            (name, item)
            for name, field, size in sizes
            for item in field.text.split(",")
            if "/" in item and int(item.split("/")[1]) >= size
        ]


def parse_fields(expression: str) -> Fields:
    """Parse an expression of 5, 6 or 7 fields or an alias; raises InvalidSchedule."""
    _check_characters(expression)
    body = expression.strip(" \t")
    if body.startswith("@"):
        body = _expand_alias(body)
        words = [(word, 0) for word in body.split()]  # without columns, which would mean the expansion
    else:
        words = [(found.group(), found.start() + 1) for found in re.finditer(r"[^ \t]+", expression)]
    if not 5 <= len(words) <= 7:
        raise InvalidSchedule(
            f"a cron expression has 5 fields (minute hour day month weekday), 6 (seconds first) or 7 (year last); "
            f"{expression[:80]!r} has {len(words)}"
        )
    if len(words) == 6 and re.match("[0-9]{4}", words[5][0]):
        raise InvalidSchedule(f"six fields begin with seconds, and a year needs all seven: write '0 {body[:80]}'")
    if len(words) == 5:
        words.insert(0, ("0", 0))
    return _fields(words)


def check_field(name: str, text: str) -> None:
    """Raise InvalidSchedule if the text is not valid for that field; `name` is any of FIELD_NAMES but weekday."""
    _check_characters(text)
    words = [(text if name == field else "*", 0) for field in FIELD_NAMES]
    _fields(words)


def _check_characters(expression: str) -> None:
    if len(expression) > MAX_LENGTH:
        raise InvalidSchedule(f"a cron expression has at most {MAX_LENGTH} characters; this one has {len(expression)}")
    for column, character in enumerate(expression, 1):
        if not (" " <= character <= "~" or character == "\t"):
            raise InvalidSchedule(f"column {column}: the character {character!r} is not allowed in a cron expression")


def _expand_alias(name: str) -> str:
    if name in ALIASES:
        return ALIASES[name]
    if name == "@reboot":
        raise InvalidSchedule("@reboot is not supported, because jobs belong to no single machine; give a time instead")
    hint = f"; write {name.lower()}" if name.lower() in ALIASES else f"; the aliases are {', '.join(ALIASES)}"
    raise InvalidSchedule(f"there is no alias {name[:80]!r}{hint}")


def _fields(words: list[tuple[str, int]]) -> Fields:
    second, minute, hour, day, month, (weekday, column), *year = words
    both = weekday.startswith("+")
    fields = Fields(
        second=_plain_field(_FieldParser("second", 0, 59, *second)),
        minute=_plain_field(_FieldParser("minute", 0, 59, *minute)),
        hour=_plain_field(_FieldParser("hour", 0, 23, *hour)),
        day=_day_of_month(_FieldParser("day of month", 1, 31, *day)),
        month=_plain_field(_FieldParser("month", 1, 12, *month, MONTHS, 1)),
        weekday=_day_of_week(_FieldParser("day of week", 0, 7, weekday.removeprefix("+"), column + both, WEEKDAYS)),
        year=_year(*year),
        both_days=both,
    )
    return replace(fields, both_days=both or fields.day.starts_with_star or fields.weekday.starts_with_star)


def _year(word: tuple[str, int] = ("*", 0)) -> Field | None:
    return None if word[0] == "*" else _plain_field(_FieldParser("year", FIRST_YEAR, LAST_YEAR, *word))


class _FieldParser:
    """Parses the numbers, names, ranges and steps of one field."""

    def __init__(
        self, name: str, low: int, high: int, text: str, column: int, names: tuple[str, ...] = (), base: int = 0
    ) -> None:
        self.name, self.low, self.high, self.text, self.column = name, low, high, text, column
        self._names = {word: number for number, word in enumerate(names, base)}

    def items(self) -> list[str]:
        items = self.text.lower().split(",")
        if "" in items:
            self.refuse("an item of the list is empty" if self.text else "the field is empty")
        return items

    def values(self, item: str) -> range:
        """The values of `*`, `a`, `a-b`, each with an optional `/n`."""
        span, slash, step = item.partition("/")
        low, dash, high = span.partition("-")
        if span == "*":
            first, last = self.low, self.high
        elif dash:
            first, last = self.value(low), self.value(high)
        else:
            first = self.value(low)
            last = self.high if slash else first
        if last < first:
            self.refuse(f"the range {span} runs backwards{self._range_hint(low, high)}")
        return range(first, last + 1, self._step(step) if slash else 1)

    def value(self, word: str) -> int:
        if word in self._names:
            return self._names[word]
        number = self._number(word)
        if not self.low <= number <= self.high:
            self.refuse(f"{word} is not between {self.low} and {self.high}")
        return number

    def _number(self, word: str) -> int:
        if not re.fullmatch(r"[0-9]{1,4}", word):
            self.refuse(f"{word[:40]!r} is not a number{' or a three-letter name' if self._names else ''}")
        return int(word)

    def _step(self, word: str) -> int:
        step = self._number(word)
        if step == 0:
            self.refuse("a step must be at least 1")
        return step

    def _range_hint(self, low: str, high: str) -> str:
        if high == "sun":
            return f"; Sunday is also 7, so write {self._names.get(low, low)}-7"
        return f"; write {low}-{self.high},{self.low}-{high}"

    def refuse(self, reason: str) -> NoReturn:
        place = f", column {self.column}" if self.column else ""
        raise InvalidSchedule(f"the {self.name} field ({self.text[:40]!r}{place}): {reason}")


def _plain_field(parser: _FieldParser) -> Field:
    if "?" in parser.text:
        parser.refuse("? means any day and is allowed only in the day fields")
    values = frozenset(value for item in parser.items() for value in parser.values(item))
    return Field(parser.text, values)


def _day_of_month(parser: _FieldParser) -> DayOfMonth:
    values: set[int] = set()
    before_last: set[int] = set()
    near: set[int] = set()
    items = ["*"] if parser.text == "?" else parser.items()
    if parser.text.startswith("+"):
        parser.refuse("put the + that asks for both day fields before the day of week")
    for item in items:
        if item == "l":
            before_last.add(0)
        elif item.startswith("l-"):
            before_last.add(_days_before_last(parser, item[2:]))
        elif item.endswith("w") and item != "lw":
            near.add(parser.value(item[:-1]))
        elif item != "lw":
            values.update(parser.values(item))
    return DayOfMonth(parser.text, frozenset(values), frozenset(before_last), frozenset(near), "lw" in items)


def _days_before_last(parser: _FieldParser, word: str) -> int:
    days = parser.value(word)
    if days > 30:
        parser.refuse(f"no month has a day {days} days before its last")
    return days


def _day_of_week(parser: _FieldParser) -> DayOfWeek:
    values: set[int] = set()
    nth: set[tuple[int, int]] = set()
    for item in ["*"] if parser.text == "?" else parser.items():
        day, hash_sign, which = item.partition("#")
        if item == "l":
            parser.refuse("L needs a weekday, such as 5L for the last Friday")
        elif hash_sign:
            nth.add((parser.value(day) % 7, _nth(parser, which)))
        elif item.endswith("l"):
            nth.add((parser.value(item[:-1]) % 7, LAST))
        else:
            values.update(value % 7 for value in parser.values(item))
    return DayOfWeek(parser.text, frozenset(values), frozenset(nth))


def _nth(parser: _FieldParser, word: str) -> int:
    if word == "l":
        return LAST
    if word not in ("1", "2", "3", "4", "5"):
        parser.refuse(f"a weekday occurs at most 5 times in a month: write 1 to 5 or L after #, not {word[:40]!r}")
    return int(word)
