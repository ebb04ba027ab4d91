"""The text of a cron expression, read into sets of numbers; every refusal names the field and the column."""

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
CALENDAR = ("second", "minute", "hour", "day", "month", "weekday", "year")  # in the order of a 7-field expression
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
    """A plain field: its text, and the values it allows."""

    text: str
    values: frozenset[int]

    @property
    def free(self) -> bool:
        """Whether the text starts with a star, which is what Debian's rules for days and daylight saving ask."""
        return self.text[0] in "*?"

    @property
    def everything(self) -> bool:
        return self.text in ("*", "?")


@dataclass(frozen=True, slots=True)
class DayOfMonth(Field):
    before_last: frozenset[int]  # `L` is 0, `L-3` is 3
    near: frozenset[int]  # `15W` is 15
    last_workday: bool  # `LW`

    @property
    def moving(self) -> bool:
        """Whether any of its days depends on the month."""
        return bool(self.before_last or self.near or self.last_workday)


@dataclass(frozen=True, slots=True)
class DayOfWeek(Field):
    nth: frozenset[tuple[int, int]]  # (weekday, which one of the month), with LAST for the last


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """A whole expression. Sunday is 0; `years` is None where every year will do."""

    second: Field
    minute: Field
    hour: Field
    day: DayOfMonth
    month: Field
    weekday: DayOfWeek
    year: Field | None
    both_days: bool  # the two day fields must both hold, not either

    @property
    def fixed(self) -> bool:
        """Whether daylight saving moves this entry's slots, rather than real time deciding."""
        return not (self.minute.free or self.hour.free)

    def idle_steps(self) -> list[tuple[str, str]]:
        """The items such as `*/90` whose step leaves the field at once, with the field's name."""
        sizes = (("minute", self.minute, 60), ("hour", self.hour, 24), ("month", self.month, 12))
        return [
            (name, item)
            for name, field, size in sizes
            for item in field.text.split(",")
            if "/" in item and int(item.split("/")[1]) >= size
        ]


def read(expression: str) -> Fields:
    _check_characters(expression)
    body = expression.strip(" \t")
    if body.startswith("@"):
        body = _alias(body)
        words = [(word, 0) for word in body.split()]  # columns of an alias would point into text nobody wrote
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
    """Refuse what the field `second`, `minute`, `hour`, `day`, `month` or `year` would refuse in an expression."""
    _check_characters(text)
    words = [(text if name == field else "*", 0) for field in CALENDAR]
    _fields(words)


def _check_characters(expression: str) -> None:
    if len(expression) > MAX_LENGTH:
        raise InvalidSchedule(f"a cron expression has at most {MAX_LENGTH} characters; this one has {len(expression)}")
    for column, character in enumerate(expression, 1):
        if not (" " <= character <= "~" or character == "\t"):
            raise InvalidSchedule(f"column {column}: the character {character!r} has no place in a cron expression")


def _alias(name: str) -> str:
    if name in ALIASES:
        return ALIASES[name]
    if name == "@reboot":
        raise InvalidSchedule("@reboot is refused: there is no one machine whose start it could mean; give a time")
    hint = f"; write {name.lower()}" if name.lower() in ALIASES else f"; known are {', '.join(ALIASES)}"
    raise InvalidSchedule(f"there is no alias {name[:80]!r}{hint}")


def _fields(words: list[tuple[str, int]]) -> Fields:
    second, minute, hour, day, month, (weekday, column), *year = words
    both = weekday.startswith("+")
    fields = Fields(
        second=_plain(_Reader("second", 0, 59, *second)),
        minute=_plain(_Reader("minute", 0, 59, *minute)),
        hour=_plain(_Reader("hour", 0, 23, *hour)),
        day=_day_of_month(_Reader("day of month", 1, 31, *day)),
        month=_plain(_Reader("month", 1, 12, *month, MONTHS, 1)),
        weekday=_day_of_week(_Reader("day of week", 0, 7, weekday.removeprefix("+"), column + both, WEEKDAYS)),
        year=_plain(_Reader("year", FIRST_YEAR, LAST_YEAR, *year[0])) if year and year[0][0] != "*" else None,
        both_days=both,
    )
    return replace(fields, both_days=both or fields.day.free or fields.weekday.free)


class _Reader:
    """One field's text with what it takes to read numbers, names, ranges and steps from it."""

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
            self.refuse(f"the range {span} runs backwards{self._way_round(low, high)}")
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
            self.refuse("a step of 0 leads nowhere")
        return step

    def _way_round(self, low: str, high: str) -> str:
        if high == "sun":
            return f"; Sunday is also 7, so write {self._names.get(low, low)}-7"
        return f"; write {low}-{self.high},{self.low}-{high}"

    def refuse(self, reason: str) -> NoReturn:
        place = f", column {self.column}" if self.column else ""
        raise InvalidSchedule(f"the {self.name} field ({self.text[:40]!r}{place}): {reason}")


def _plain(reader: _Reader) -> Field:
    if "?" in reader.text:
        reader.refuse("? stands for any day, so it belongs in the day fields only")
    values = frozenset(value for item in reader.items() for value in reader.values(item))
    return Field(reader.text, values)


def _day_of_month(reader: _Reader) -> DayOfMonth:
    values: set[int] = set()
    before_last: set[int] = set()
    near: set[int] = set()
    items = ["*"] if reader.text == "?" else reader.items()
    if reader.text.startswith("+"):
        reader.refuse("the + that asks for both day fields belongs before the day of week")
    for item in items:
        if item == "l":
            before_last.add(0)
        elif item.startswith("l-"):
            before_last.add(_days_before_last(reader, item[2:]))
        elif item.endswith("w") and item != "lw":
            near.add(reader.value(item[:-1]))
        elif item != "lw":
            values.update(reader.values(item))
    return DayOfMonth(reader.text, frozenset(values), frozenset(before_last), frozenset(near), "lw" in items)


def _days_before_last(reader: _Reader, word: str) -> int:
    days = reader.value(word)
    if days > 30:
        reader.refuse(f"no month has a day {days} days before its last")
    return days


def _day_of_week(reader: _Reader) -> DayOfWeek:
    values: set[int] = set()
    nth: set[tuple[int, int]] = set()
    for item in ["*"] if reader.text == "?" else reader.items():
        day, hash_sign, which = item.partition("#")
        if item == "l":
            reader.refuse("L needs a weekday, such as 5L for the last Friday")
        elif hash_sign:
            nth.add((reader.value(day) % 7, _which(reader, which)))
        elif item.endswith("l"):
            nth.add((reader.value(item[:-1]) % 7, LAST))
        else:
            values.update(value % 7 for value in reader.values(item))
    return DayOfWeek(reader.text, frozenset(values), frozenset(nth))


def _which(reader: _Reader, word: str) -> int:
    if word == "l":
        return LAST
    if word not in ("1", "2", "3", "4", "5"):
        reader.refuse(f"a month has a weekday up to 5 times, so after # comes 1 to 5 or L, not {word[:40]!r}")
    return int(word)
