"""Settings of a node: flags win over the environment, `horae.toml` and the defaults, in this order."""

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from horae.core.decisions.firing import LONGEST_HORIZON
from horae.core.decisions.quotas import Limits
from horae.core.errors import Misconfigured

ROLES = ("api", "planner", "worker")  # what a node may do
LOG_LEVELS = ("debug", "info", "warning", "error", "critical")

MIN_JWT_SECRET = 32  # bytes; HS256 requires a key at least as long as its hash (RFC 7518, 3.2)
MAKE_SECRET = "make one with: openssl rand -base64 48"

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)?", re.ASCII)
_PASSWORD = re.compile(r"([?&](?:sentinel_)?password=)[^&#]*")
_AMOUNT = re.compile(r"(\d{1,18}|\d{1,3}(?:_\d{3}){1,5})\s*([kMGT]B)?", re.ASCII)
_SIZES = {None: 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def _switch(value: object) -> bool:
    text = str(value).strip().lower()
    if text in ("1", "true", "yes", "on"):
        return True
    if text in ("0", "false", "no", "off", ""):
        return False
    raise ValueError("must be 0 or 1")


def _seconds(value: object) -> timedelta:
    seconds = float(str(value))
    if not 0 < seconds < 86400:
        raise ValueError("must be a number of seconds, above 0 and below a day")
    return timedelta(seconds=seconds)


def parse_duration(value: object) -> timedelta:
    """Read a duration such as `30d`, `12h` or `90s`; a number alone is seconds. Raises ValueError."""
    match = _DURATION.fullmatch(str(value).strip())
    if match is None:
        raise ValueError("must be a duration such as 30d, 12h or 90s")
    return timedelta(seconds=float(match[1]) * _UNITS[match[2] or "s"])


def parse_names(value: object) -> tuple[str, ...]:
    """Read names such as `a,b`; blanks around them and empty ones are left out."""
    items = value if isinstance(value, list | tuple) else str(value).split(",")
    return tuple(name for item in items if (name := str(item).strip()))


def _reachable(value: object) -> tuple[str, ...]:
    """Read hosts and networks; a mistyped network is refused, because as a host it would silently allow nothing."""
    for name in (names := parse_names(value)):
        if "/" in name or re.fullmatch(r"[\d.]+|\[.*|.*:.*", name):
            try:
                ip_network(name, strict=False)
            except ValueError as exc:
                raise ValueError(f"{name!r} is neither a host nor a network such as 10.0.0.0/8 or fd00::/8") from exc
    return names


def _authentication(value: object) -> str:
    text = str(value).strip().lower()
    if text not in ("off", "jwt"):
        raise ValueError("must be off (loopback only, one owner) or jwt")
    return text


def _claim(value: object) -> str:
    text = str(value).strip()
    if not text:
        raise ValueError("must be the name of a claim; the default is sub")
    return text


def _rate(value: object) -> float:
    rate = float(str(value))
    if not 0 <= rate < 1_000_000:
        raise ValueError("must be a number of requests per second, 0 for no limit")
    return rate


def _amount(value: object) -> int:
    """Read a number such as `2000000`, `2_000_000` or `50GB`."""
    match = _AMOUNT.fullmatch(str(value).strip())
    if match is None:
        raise ValueError("must be a whole number, such as 1000000 or 50GB, 0 for no limit")
    return int(match[1]) * _SIZES[match[2]]


def _port(value: object) -> int:
    port = int(str(value))
    if not 0 <= port < 65536:
        raise ValueError("must be a number from 0 (any free one) to 65535")
    return port


def _maybe_port(value: object) -> int | None:
    return _port(value) if str(value).strip() else None


def _log_form(value: object) -> str:
    text = str(value).strip().lower()
    if text not in ("", "text", "json"):
        raise ValueError("must be text or json; empty means text on a terminal, else json")
    return text


def _log_level(value: object) -> str:
    text = str(value).strip().lower()
    if text not in LOG_LEVELS:
        raise ValueError(f"must be one of {', '.join(LOG_LEVELS)}")
    return text


def _setting(default: Any, parse: Callable[[object], Any], *, secret: bool = False) -> Any:
    return field(default=default, repr=not secret, metadata={"parse": parse, "secret": secret})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every setting of a node; the environment variable of `store` is `HORAE_STORE`, and so on."""

    store: str = _setting("sqlite:///.horae/horae.db", str)
    queue: str = _setting("store", str)
    blobs: str = _setting("store", str)
    events: str = _setting("", str)
    archive: str = _setting("", str)
    auth: str = _setting("off", _authentication)
    jwt_secret: str = _setting("", str, secret=True)
    jwks: str = _setting("", str)
    jwt_audience: str = _setting("", str)
    jwt_owner_claim: str = _setting("sub", _claim)
    encryption_key: str = _setting("", str, secret=True)
    rate_limit: float = _setting(0.0, _rate)  # requests per second and owner; 0: none
    max_waiting: int = _setting(Limits().waiting, _amount)  # of one owner; 0: no limit
    max_recurring: int = _setting(Limits().recurring, _amount)
    max_queues: int = _setting(Limits().queues, _amount)
    max_stored_bytes: int = _setting(Limits().stored_bytes, _amount)
    allow_shell: bool = _setting(False, _switch)
    retention: timedelta = _setting(timedelta(days=30), parse_duration)
    http_allow: tuple[str, ...] = _setting((), _reachable)
    heartbeat_seconds: timedelta = _setting(timedelta(seconds=3), _seconds)
    dead_after_seconds: timedelta = _setting(timedelta(seconds=15), _seconds)
    horizon_seconds: timedelta = _setting(timedelta(seconds=30), _seconds)
    lead_seconds: timedelta = _setting(timedelta(seconds=1), _seconds)
    drain_seconds: timedelta = _setting(timedelta(seconds=30), _seconds)
    log: str = _setting("", _log_form)  # empty: text on a terminal, else JSON
    log_level: str = _setting("info", _log_level)
    host: str = _setting("127.0.0.1", str)
    port: int = _setting(8765, _port)
    probe_port: int | None = _setting(None, _maybe_port)
    sources: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownSetting:
    """A setting as `horae doctor` shows it, without secrets."""

    variable: str
    value: str
    source: str


def shown_settings(settings: Settings) -> list[ShownSetting]:
    """Return every setting with its source; secrets and passwords are replaced by `***`."""
    return [
        ShownSetting(
            variable=_variable(setting.name),
            value="***" if setting.metadata["secret"] and value else _shown(setting.name, value),
            source=settings.sources.get(setting.name, "default"),
        )
        for setting in fields(Settings)
        if setting.name != "sources"
        for value in [getattr(settings, setting.name)]
    ]


def without_password(url: str) -> str:
    """Return an address with its password replaced by `***`."""
    parts = urlsplit(url)
    shown = url.replace(f":{parts.password}@", ":***@") if parts.password else url
    if any(name in ("password", "sentinel_password") for name, _ in parse_qsl(parts.query)):
        shown = _PASSWORD.sub(r"\1***", shown)
    return shown


def load_settings(
    flags: Mapping[str, object] | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    file: Path = Path("horae.toml"),
) -> Settings:
    """Read and check every setting; raises Misconfigured for a value that cannot work."""
    given = _gather(flags or {}, environ, file)
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for setting in fields(Settings):
        if setting.name not in given:
            continue
        raw, sources[setting.name] = given[setting.name]
        try:
            values[setting.name] = setting.metadata["parse"](raw)
        except ValueError as exc:
            shown = "" if setting.metadata["secret"] else f" = {raw!r}"
            raise Misconfigured(f"{_variable(setting.name)}{shown} (from {sources[setting.name]}): {exc}") from exc
    return _checked(Settings(**values, sources=sources))


def refuse_short_secret(secret: str) -> None:
    """Raise Misconfigured for a HORAE_JWT_SECRET that is short enough to be guessed."""
    if (size := len(secret.encode())) < MIN_JWT_SECRET:
        raise Misconfigured(f"HORAE_JWT_SECRET has {size} bytes, but needs at least {MIN_JWT_SECRET}; {MAKE_SECRET}")


def _gather(flags: Mapping[str, object], environ: Mapping[str, str], file: Path) -> dict[str, tuple[object, str]]:
    known = [setting.name for setting in fields(Settings) if setting.name != "sources"]
    given: dict[str, tuple[object, str]] = {}
    for name, value in _read_file(file).items():
        key = name.lower().removeprefix("horae_")
        if key not in known:
            raise Misconfigured(f"{file}: there is no setting {name!r}; the settings are {', '.join(known)}")
        given[key] = (value, str(file))
    for name in known:
        if _variable(name) in environ:
            given[name] = (environ[_variable(name)], f"environment {_variable(name)}")
        if flags.get(name) is not None:
            given[name] = (flags[name], f"flag --{name.replace('_', '-')}")
    return given


def _read_file(file: Path) -> dict[str, object]:
    if not file.is_file():
        return {}
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise Misconfigured(f"{file} is not valid TOML: {exc}") from exc


def _checked(settings: Settings) -> Settings:
    _refuse_unavailable(settings)
    if settings.dead_after_seconds < 3 * settings.heartbeat_seconds:
        raise Misconfigured(
            "HORAE_DEAD_AFTER_SECONDS must be at least three times HORAE_HEARTBEAT_SECONDS,"
            " or one slow heartbeat makes a live node count as dead"
        )
    if settings.horizon_seconds <= settings.dead_after_seconds:
        raise Misconfigured(
            "HORAE_HORIZON_SECONDS must be longer than HORAE_DEAD_AFTER_SECONDS, or runs start late when a planner dies"
        )
    if settings.horizon_seconds > LONGEST_HORIZON:
        raise Misconfigured("HORAE_HORIZON_SECONDS may be an hour at most; 30 seconds suit nearly everyone")
    if settings.lead_seconds >= settings.horizon_seconds:
        raise Misconfigured("HORAE_LEAD_SECONDS must be shorter than HORAE_HORIZON_SECONDS")
    return settings


def _refuse_unavailable(settings: Settings) -> None:
    """Raise Misconfigured for adapters that are planned, but not available yet."""
    if settings.queue != "store" and not settings.queue.startswith(("redis:", "rediss:", "redis+", "rediss+", "sqs:")):
        shown = without_password(settings.queue)
        raise Misconfigured(f"HORAE_QUEUE = {shown!r}: must be `store`, redis://host:6379/0 or sqs://REGION/PREFIX")
    if settings.events:
        raise Misconfigured("HORAE_EVENTS is not available in this version; GET /v1/events streams events")


def _shown(name: str, value: object) -> str:
    """Return a value as it could be written in the environment."""
    if isinstance(value, timedelta):
        return f"{value.total_seconds():.15g}" if name.endswith("_seconds") else _shown_duration(value)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float):
        return f"{value:.15g}"
    return without_password(str(value))


def _shown_duration(value: timedelta) -> str:
    seconds = value.total_seconds()
    unit = next(unit for unit in ("d", "h", "m", "s") if seconds % _UNITS[unit] == 0 or unit == "s")
    return f"{seconds / _UNITS[unit]:.15g}{unit}"


def _variable(name: str) -> str:
    return f"HORAE_{name.upper()}"
