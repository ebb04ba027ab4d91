"""Horae runs jobs on time, at least once, and can prove it afterwards."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from horae.app import Horae
    from horae.client import AsyncClient, Client
    from horae.core.errors import (
        Fatal,
        HoraeError,
        Invalid,
        KeyTaken,
        NoResult,
        RetryAfter,
        RunCancelled,
        RunFailed,
        RunSkipped,
        Unavailable,
    )
    from horae.run import Run
    from horae.schedules import cron, every
    from horae.sdk.handle import Handle
    from horae.sdk.task import Task

__all__ = [
    "AsyncClient",
    "Client",
    "Fatal",
    "Handle",
    "Horae",
    "HoraeError",
    "Invalid",
    "KeyTaken",
    "NoResult",
    "RetryAfter",
    "Run",
    "RunCancelled",
    "RunFailed",
    "RunSkipped",
    "Task",
    "Unavailable",
    "cron",
    "every",
]

__version__ = "0.1.0"

_HOMES = {
    "AsyncClient": "horae.client",
    "Client": "horae.client",
    "Fatal": "horae.core.errors",
    "Handle": "horae.sdk.handle",
    "Horae": "horae.app",
    "HoraeError": "horae.core.errors",
    "Invalid": "horae.core.errors",
    "KeyTaken": "horae.core.errors",
    "NoResult": "horae.core.errors",
    "RetryAfter": "horae.core.errors",
    "Run": "horae.run",
    "RunCancelled": "horae.core.errors",
    "RunFailed": "horae.core.errors",
    "RunSkipped": "horae.core.errors",
    "Task": "horae.sdk.task",
    "Unavailable": "horae.core.errors",
    "cron": "horae.schedules",
    "every": "horae.schedules",
}


def __getattr__(name: str) -> Any:
    """Import public names at first use, which halves the start-up time of the command line."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
