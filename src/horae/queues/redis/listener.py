"""Listens for messages of Redis, and connects again by itself whenever the connection is lost."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any

import structlog

from horae.core.errors import Unavailable
from horae.queues.redis.connection import door

log = structlog.get_logger(__name__)

PING_AFTER = 5.0  # seconds without a message
SILENT_AFTER = 12.0  # seconds after which the connection counts as lost
FIRST_REST, LONGEST_REST = 0.1, 2.0  # seconds between two attempts to connect

Heard = Callable[[bytes, bytes], None]  # channel, message


class RedisListener:
    """One connection that is subscribed to some channels."""

    def __init__(self, connect: Callable[[], Awaitable[Any]], channels: list[str], *, heard: Heard) -> None:
        """`heard` gets each message, and empty ones after every connect: something may have been missed."""
        self._connect = connect
        self._channels = channels
        self._heard = heard
        self.listening = False  # whether all channels are subscribed to
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Listen from now on."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="redis listener")

    async def stop(self) -> None:
        """Listen no longer."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self) -> None:
        rest = FIRST_REST
        while True:
            began = monotonic()
            try:
                with door():
                    await self._listen()
            except Unavailable as exc:
                log.debug("queue_signals_lost", reason=str(exc))  # those who need the queue itself tell people
            finally:
                self.listening = False
            rest = FIRST_REST if monotonic() - began > LONGEST_REST else min(2 * rest, LONGEST_REST)
            await asyncio.sleep(rest)

    def _begin(self) -> None:
        self.listening = True
        for channel in self._channels:
            self._heard(channel.encode(), b"")

    async def _listen(self) -> None:
        client = await self._connect()
        async with contextlib.AsyncExitStack() as stack:
            pubsub = client.pubsub()
            stack.push_async_callback(pubsub.aclose)
            await pubsub.subscribe(*self._channels)
            heard_at, missing = monotonic(), set(self._channels)
            while monotonic() - heard_at < SILENT_AFTER:
                message = await pubsub.get_message(timeout=PING_AFTER)
                if message is None:
                    await pubsub.ping()
                    continue
                heard_at = monotonic()
                if message["type"] == "message":
                    self._heard(message["channel"], message["data"])
                elif message["type"] == "subscribe" and missing:
                    missing.discard(message["channel"].decode())
                    if not missing:
                        self._begin()
