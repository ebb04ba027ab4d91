"""Settings: from flags, the environment, `horae.toml` and defaults, in this order, each value with its source."""

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from pathlib import Path
from typing import Any

from horae.core.errors import Misconfigured

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)?", re.ASCII)
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def _text(value: object) -> str:
    return str(value)


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


def _duration(value: object) -> timedelta:
    match = _DURATION.fullmatch(str(value).strip())
    if match is None:
        raise ValueError("must be a duration such as 30d, 12h or 90s")
    return timedelta(seconds=float(match[1]) * _UNITS[match[2] or "s"])


def _names(value: object) -> tuple[str, ...]:
    items = value if isinstance(value, list | tuple) else str(value).split(",")
    return tuple(name for item in items if (name := str(item).strip()))


def _setting(default: Any, parse: Callable[[object], Any]) -> Any:
    return field(default=default, metadata={"parse": parse})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a node is told; the environment variable of `store` is `HORAE_STORE`, and so on."""

    store: str = _setting("sqlite:///.horae/horae.db", _text)
    queue: str = _setting("store", _text)
    blobs: str = _setting("store", _text)
    auth: str = _setting("off", _text)
    allow_shell: bool = _setting(False, _switch)
    retention: timedelta = _setting(timedelta(days=30), _duration)
    http_allow: tuple[str, ...] = _setting((), _names)
    heartbeat_seconds: timedelta = _setting(timedelta(seconds=3), _seconds)
    dead_after_seconds: timedelta = _setting(timedelta(seconds=15), _seconds)
    horizon_seconds: timedelta = _setting(timedelta(seconds=30), _seconds)
    lead_seconds: timedelta = _setting(timedelta(seconds=1), _seconds)
    drain_seconds: timedelta = _setting(timedelta(seconds=30), _seconds)
    host: str = _setting("127.0.0.1", _text)
    port: int = _setting(8765, lambda value: int(str(value)))
    sources: Mapping[str, str] = field(default_factory=dict)


def load_settings(
    flags: Mapping[str, object] | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    file: Path = Path("horae.toml"),
) -> Settings:
    """Read and check every setting; a value that cannot work is refused with a sentence."""
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
            name = _variable(setting.name)
            raise Misconfigured(f"{name} = {raw!r} (from {sources[setting.name]}): {exc}") from exc
    return _checked(Settings(**values, sources=sources))


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
    if settings.queue != "store":
        raise Misconfigured(f"HORAE_QUEUE = {settings.queue!r}: only the queue `store` is available in this version")
    if settings.auth != "off":
        raise Misconfigured(
            f"HORAE_AUTH = {settings.auth!r}: only `off` (loopback, one owner) is available in this version"
        )
    if settings.dead_after_seconds < 3 * settings.heartbeat_seconds:
        raise Misconfigured(
            "HORAE_DEAD_AFTER_SECONDS must be at least three heartbeats, or a hiccup buries a live node"
        )
    if settings.horizon_seconds <= settings.dead_after_seconds:
        raise Misconfigured(
            "HORAE_HORIZON_SECONDS must be longer than HORAE_DEAD_AFTER_SECONDS, or a lost planner costs lateness"
        )
    if settings.lead_seconds >= settings.horizon_seconds:
        raise Misconfigured("HORAE_LEAD_SECONDS must be shorter than HORAE_HORIZON_SECONDS")
    return settings


def _variable(name: str) -> str:
    return f"HORAE_{name.upper()}"
