"""The tasks that every node has."""

import asyncio
from typing import Annotated, Any

from msgspec import Meta

from horae.run import Run
from horae.tasks.errors import TaskFailure
from horae.tasks.http_request import http_request
from horae.tasks.registry import Registry, Task
from horae.tasks.shell_run import shell_run


class DemoError(TaskFailure):
    """Raised by `demo.fail`, as it was asked to."""


async def echo(run: Run, message: str = "") -> str:
    """Return the message, and write it to the log."""
    run.log.info(message)
    return message


async def sleep(seconds: Annotated[float, Meta(ge=0, description="how long to sleep")]) -> float:
    """Sleep for some seconds, and return how many."""
    await asyncio.sleep(seconds)
    return seconds


async def fail(
    run: Run,
    times: Annotated[int | None, Meta(description="how many attempts fail first; every one by default")] = None,
) -> int:
    """Fail, always or for the first attempts; then return the number of the attempt."""
    if times is None or run.attempt <= times:
        raise DemoError(f"attempt {run.attempt} failed, as it was asked to")
    return run.attempt


def builtin_tasks() -> Registry:
    """A registry of the built-in tasks."""
    registry = Registry()
    for name, function in (
        ("demo.echo", echo),
        ("demo.sleep", sleep),
        ("demo.fail", fail),
        ("http.request", http_request),
        ("shell.run", shell_run),
    ):
        registry.add(Task[Any, Any](function, name=name))
    return registry
