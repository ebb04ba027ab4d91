"""The built-in tasks, which every node has."""

import asyncio
from typing import Annotated, Any

from msgspec import Meta

from horae.run import Run
from horae.tasks.errors import TaskFailure
from horae.tasks.http_request import http_request
from horae.tasks.registry import Registry, TaskFunction
from horae.tasks.shell_run import shell_run


class DemoError(TaskFailure):
    """Raised by `demo.fail`."""


async def echo(run: Run, message: str = "") -> str:
    """Log the message and return it."""
    run.log.info(message)
    return message


async def sleep(seconds: Annotated[float, Meta(ge=0, description="how long to sleep")]) -> float:
    """Sleep for a number of seconds and return it."""
    await asyncio.sleep(seconds)
    return seconds


async def fail(
    run: Run,
    times: Annotated[int | None, Meta(description="how many attempts fail first; by default all")] = None,
) -> int:
    """Fail always, or only the first attempts and then return the number of the attempt."""
    if times is None or run.attempt <= times:
        raise DemoError(f"attempt {run.attempt} failed on purpose")
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
        registry.add(TaskFunction[Any, Any](function, name=name))
    return registry
