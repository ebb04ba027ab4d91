"""The known time zone names, and suggestions for misspelt names."""

from collections.abc import Collection
from difflib import get_close_matches
from functools import lru_cache
from zoneinfo import available_timezones

from horae.core.errors import InvalidSchedule


def check_zone_name(name: str, pointer: str) -> None:
    """Raise InvalidSchedule for a name that is not in the IANA database."""
    if name not in _zone_names():
        hint = _zone_hint(name[:64]) or "; write one such as Europe/Paris"
        raise InvalidSchedule(f"there is no time zone {name[:64]!r}{hint}", pointer=pointer)


def did_you_mean(word: object, known: Collection[str]) -> str:
    """`; did you mean …?` with the closest known word, or nothing."""
    close = get_close_matches(word[:64], known, n=1) if isinstance(word, str) else []
    return f"; did you mean {close[0]}?" if close else ""


@lru_cache(maxsize=1)
def _zone_names() -> frozenset[str]:
    """All allowed names, so that no other text reaches the file system; `localtime` differs from node to node."""
    return frozenset(available_timezones()) - {"localtime", "posixrules", "Factory"}


def _zone_hint(name: str) -> str:
    wanted = name.casefold().replace(" ", "_")
    for zone in sorted(_zone_names()):
        if wanted == zone.casefold() or wanted == zone.casefold().rpartition("/")[2]:
            return f"; did you mean {zone}?"
    # compare only names with the same first letters, so that a batch of wrong names stays cheap
    return did_you_mean(name, sorted(zone for zone in _zone_names() if zone[:3].casefold() == wanted[:3]))
