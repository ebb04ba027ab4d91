"""Horae runs jobs on time, at least once, and can prove it afterwards."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from horae.app import Horae
    from horae.client import AsyncClient, Client, Refused
    from horae.core.errors import (
        Conflict,
        Fatal,
        Gone,
        HoraeError,
        IllegalMove,
        InFlight,
        InternalError,
        Invalid,
        InvalidSchedule,
        KeyTaken,
        Malformed,
        Misconfigured,
        NoResult,
        NotFound,
        RequestChanged,
        RetryAfter,
        RevisionChanged,
        RunCancelled,
        RunFailed,
        RunSkipped,
        TooLarge,
        Unavailable,
        UnknownTask,
        WaitRefused,
    )
    from horae.jobs.bulk_create import Interrupted
    from horae.run import Run
    from horae.schedules import cron, every
    from horae.sdk.event_loop import WouldBlock
    from horae.sdk.handle import Handle
    from horae.sdk.queues import Queue
    from horae.sdk.retry import Retry
    from horae.sdk.task import Task
    from horae.tasks.registry import TaskExists

__all__ = [
    "AsyncClient",
    "Client",
    "Conflict",
    "Fatal",
    "Gone",
    "Handle",
    "Horae",
    "HoraeError",
    "IllegalMove",
    "InFlight",
    "InternalError",
    "Interrupted",
    "Invalid",
    "InvalidSchedule",
    "KeyTaken",
    "Malformed",
    "Misconfigured",
    "NoResult",
    "NotFound",
    "Queue",
    "Refused",
    "RequestChanged",
    "Retry",
    "RetryAfter",
    "RevisionChanged",
    "Run",
    "RunCancelled",
    "RunFailed",
    "RunSkipped",
    "Task",
    "TaskExists",
    "TooLarge",
    "Unavailable",
    "UnknownTask",
    "WaitRefused",
    "WouldBlock",
    "cron",
    "every",
]

__version__ = "0.1.0"

_HOMES = {
    "AsyncClient": "horae.client",
    "Client": "horae.client",
    "Conflict": "horae.core.errors",
    "Fatal": "horae.core.errors",
    "Gone": "horae.core.errors",
    "Handle": "horae.sdk.handle",
    "Horae": "horae.app",
    "HoraeError": "horae.core.errors",
    "IllegalMove": "horae.core.errors",
    "InFlight": "horae.core.errors",
    "InternalError": "horae.core.errors",
    "Interrupted": "horae.jobs.bulk_create",
    "Invalid": "horae.core.errors",
    "InvalidSchedule": "horae.core.errors",
    "KeyTaken": "horae.core.errors",
    "Malformed": "horae.core.errors",
    "Misconfigured": "horae.core.errors",
    "NoResult": "horae.core.errors",
    "NotFound": "horae.core.errors",
    "Queue": "horae.sdk.queues",
    "Refused": "horae.client",
    "RequestChanged": "horae.core.errors",
    "Retry": "horae.sdk.retry",
    "RetryAfter": "horae.core.errors",
    "RevisionChanged": "horae.core.errors",
    "Run": "horae.run",
    "RunCancelled": "horae.core.errors",
    "RunFailed": "horae.core.errors",
    "RunSkipped": "horae.core.errors",
    "Task": "horae.sdk.task",
    "TaskExists": "horae.tasks.registry",
    "TooLarge": "horae.core.errors",
    "Unavailable": "horae.core.errors",
    "UnknownTask": "horae.core.errors",
    "WaitRefused": "horae.core.errors",
    "WouldBlock": "horae.sdk.event_loop",
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
