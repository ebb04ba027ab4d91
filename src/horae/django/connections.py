"""Closes database connections around tasks, as Django does around requests.

A function runs in a thread of the worker, which keeps its connections as a thread of a web server does: up to
CONN_MAX_AGE. A coroutine gets a thread of its own for what it calls by `sync_to_async` (the ORM does so), as each
request of an ASGI server does, and its connections are closed with that thread.
"""

import asyncio
from collections.abc import Coroutine
from contextvars import ContextVar
from typing import Any

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.db import close_old_connections, connections

from horae.run import Run

_THREAD: ContextVar[ThreadSensitiveContext] = ContextVar("_THREAD")  # of the coroutine that runs here


def before_task(run: Run) -> Coroutine[Any, Any, None] | None:
    """Close connections that are too old or broken, in the thread of the task."""
    if _in_event_loop():
        return _begin_thread()
    close_old_connections()
    return None


def after_task(run: Run) -> Coroutine[Any, Any, None] | None:
    """Close connections that should not be kept."""
    if _in_event_loop():
        return _end_thread()
    close_old_connections()
    return None


async def _begin_thread() -> None:
    thread = ThreadSensitiveContext()
    await thread.__aenter__()  # type: ignore[no-untyped-call]
    _THREAD.set(thread)


async def _end_thread() -> None:
    thread = _THREAD.get()
    try:
        await sync_to_async(connections.close_all)()
    finally:
        await thread.__aexit__(None, None, None)  # type: ignore[no-untyped-call]


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
