"""The known time zone names, and suggestions for misspelt names."""

from functools import lru_cache
from zoneinfo import available_timezones

from horae.core.errors import InvalidSchedule
from horae.core.wording.suggestions import did_you_mean


def check_zone_name(name: str, pointer: str) -> None:
    """Raise InvalidSchedule for a name that is not in the IANA database."""
    if name not in _zone_names():
        hint = did_you_mean(name, _zone_names()) or "; write one such as Europe/Paris"
        raise InvalidSchedule(f"there is no time zone {name[:64]!r}{hint}", pointer=pointer)


@lru_cache(maxsize=1)
def _zone_names() -> frozenset[str]:
    """All allowed names, so that no other text reaches the file system; `localtime` differs from node to node."""
    return frozenset(available_timezones()) - {"localtime", "posixrules", "Factory"}
