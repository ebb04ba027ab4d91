"""Random cron expressions and clock changes to try them at."""

from datetime import UTC, datetime, timedelta
from random import Random
from zoneinfo import ZoneInfo

DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")

# (zone, when its clocks change): by an hour, at midnight, by half an hour, by two hours, by a day; and two calm ones
CHANGES = [
    ("Europe/Berlin", "2026-03-29T01:00"),
    ("Europe/Berlin", "2026-10-25T01:00"),
    ("America/New_York", "2026-03-08T07:00"),
    ("America/New_York", "2026-11-01T06:00"),
    ("Africa/Cairo", "2026-04-23T22:00"),
    ("Africa/Cairo", "2026-10-29T21:00"),
    ("Australia/Lord_Howe", "2026-10-03T15:30"),
    ("Australia/Lord_Howe", "2026-04-04T15:00"),
    ("Antarctica/Troll", "2026-03-29T01:00"),
    ("Antarctica/Troll", "2026-10-25T01:00"),
    ("Pacific/Apia", "2011-12-30T10:00"),
    ("America/Sao_Paulo", "2018-11-04T03:00"),
    ("America/Sao_Paulo", "2018-02-18T02:00"),
    ("Europe/Dublin", "2026-03-29T01:00"),
    ("Europe/Dublin", "2026-10-25T01:00"),
    ("Africa/Casablanca", "2026-02-15T02:00"),
    ("Africa/Casablanca", "2026-03-22T02:00"),
    ("Asia/Pyongyang", "2015-08-14T15:00"),
    ("Asia/Pyongyang", "2018-05-04T15:00"),
    ("America/Caracas", "2007-12-09T07:00"),
    ("Antarctica/Casey", "2010-03-04T15:00"),
    ("America/St_Johns", "2010-03-14T03:30"),
    ("Europe/Lisbon", "2026-12-31T23:00"),
    ("UTC", "2024-02-29T00:00"),
]


def change_at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def expression_near(rng: Random, at: datetime, zone: ZoneInfo, sizes: tuple[int, ...] = (5, 5, 6, 7)) -> str:
    """An expression with a fair chance to fire within hours of an instant."""
    local = (at + timedelta(minutes=rng.randint(-180, 180))).astimezone(zone)
    fields = [
        _field(rng, 0, 59, local.minute, (0, 15, 30, 45, 59)),
        _field(rng, 0, 23, local.hour, (0, 1, 2, 3, 23)),
        _day(rng, local),
        _field(rng, 1, 12, local.month, (1, 12), MONTHS, free=0.85),
        _weekday(rng, local),
    ]
    size = rng.choice(sizes)
    if size > 5:
        fields.insert(0, _field(rng, 0, 59, local.second, (0, 1, 30, 59)))
    if size > 6:
        fields.append(_field(rng, 1970, 2199, local.year, (2026, 2027), free=0.6))
    return " ".join(fields)


def _field(
    rng: Random,
    low: int,
    high: int,
    near: int,
    favourites: tuple[int, ...],
    names: tuple[str, ...] = (),
    free: float = 0.25,
) -> str:
    if rng.random() < free:
        return "*"
    items = [_item(rng, low, high, near, favourites, names) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
    return ",".join(items)


def _item(rng: Random, low: int, high: int, near: int, favourites: tuple[int, ...], names: tuple[str, ...]) -> str:
    first = rng.choice((near, near, rng.choice(favourites), rng.randint(low, high)))
    last = rng.choice((first, rng.randint(first, high)))
    step = rng.choice((1, 2, 3, 5, 7, 15, rng.randint(1, 90)))
    shape = rng.randrange(7)
    if shape == 0:
        return f"*/{step}"
    if shape == 1:
        return f"{first}-{last}/{step}"
    if shape == 2:
        return f"{first}/{step}"
    if shape == 3:
        return f"{first}-{last}"
    if names and shape == 4:
        return rng.choice((str.upper, str.lower, str.title))(names[(first - low) % len(names)])
    return str(first)


def _day(rng: Random, local: datetime) -> str:
    special = ("L", f"L-{rng.randint(1, 30)}", "LW", f"{local.day}W", f"{rng.randint(1, 31)}W", "?", f"L,{local.day}")
    if rng.random() < 0.2:
        return rng.choice(special)
    return _field(rng, 1, 31, local.day, (1, 31), free=0.6)


def _weekday(rng: Random, local: datetime) -> str:
    today = local.isoweekday() % 7
    nth = (local.day - 1) // 7 + 1
    special = (f"{today}L", f"{DAYS[today].upper()}L", f"{today}#{nth}", f"{DAYS[today]}#L", f"{today or 7}#{nth}", "?")
    text = rng.choice(special) if rng.random() < 0.2 else _field(rng, 0, 7, today, (0, 7), free=0.6)
    return rng.choice(("", "", "", "+")) + text
