"""Signals between processes through NOTIFY and LISTEN.

A NOTIFY inside the transaction that it is about would hold a lock of the whole database until the commit is on disk,
one commit after the other. So signals are sent after the commit, from a connection of their own that writes nothing,
and those that come while one is under way go as one. A signal that is lost with its process costs only time: the next
scan finds the change.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import structlog

from horae.core.errors import Misconfigured, Unavailable
from horae.core.model import NodeId
from horae.core.signals import Kind, Signal, merged
from horae.stores.common.subscribers import Subscribers
from horae.stores.postgres.connection.database import TIMEOUT, Address, door

log = structlog.get_logger(__name__)

CHECK_EVERY = 5.0  # seconds between checks of an idle connection
POLL_EVERY = 1.0  # seconds between hints behind a pooler, where LISTEN does not work
BACKOFF = (0.05, 5.0)  # seconds: the first wait before a reconnect, and the longest
MAX_PAYLOAD = 7000  # bytes; PostgreSQL takes 8000

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TICK = timedelta(microseconds=1)


class Signals:
    """Passes signals to the subscribers of this process and of all others."""

    def __init__(self, address: Address, *, listens: bool) -> None:
        self._address = address
        self._listens = listens
        self._channel = ""
        self._subscribers = Subscribers()
        self.subscribe = self._subscribers.add
        self._pending: list[Signal] = []
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._own: int | None = None  # the server process behind our connection: its signals are our own

    async def open(self, schema: str) -> None:
        """Begin to listen and to send; from here on nothing is missed."""
        self._channel = f"horae_{schema}"[:63]
        if self._address.pooled:
            self._task = asyncio.create_task(self._poll())
            return
        listening = asyncio.Event()
        self._task = asyncio.create_task(self._run(listening))
        with door():
            async with asyncio.timeout(TIMEOUT):
                await listening.wait()

    async def close(self) -> None:
        """Stop; what was not sent is found by the scans of the others."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    def send(self, signals: Iterable[Signal]) -> None:
        """Pass signals to this process at once and to the others in a moment."""
        if new := merged(signals):  # else the sender would wake, and ask whether the server still answers
            self._subscribers.tell(new)
            self._enqueue(new)

    def _enqueue(self, signals: Sequence[Signal]) -> None:
        self._pending = merged([*self._pending, *signals])
        self._wake.set()

    async def _run(self, listening: asyncio.Event) -> None:
        """Keep one connection for listening and sending; a lost one is replaced."""
        first, longest = BACKOFF
        wait = first
        while True:
            began_at = time.monotonic()
            try:
                with door():
                    connection = await self._address.connect()
                    try:
                        await self._converse(connection, listening)
                    finally:
                        self._own = None
                        connection.terminate()
            except (Unavailable, Misconfigured, asyncpg.PostgresError) as exc:  # whatever it is, we try again
                log.warning("signals_interrupted", error=str(exc))
                if time.monotonic() - began_at > longest:
                    wait = first  # a connection that lasted is replaced soon, but not one that always fails at once
                await asyncio.sleep(wait * random.uniform(0.5, 1.0))
                wait = min(wait * 2, longest)

    async def _converse(self, connection: Any, listening: asyncio.Event) -> None:
        self._own = connection.get_server_pid()
        if self._listens:
            await connection.add_listener(self._channel, self._hear)
        connection.add_termination_listener(lambda _: self._wake.set())
        if listening.is_set():
            self._subscribers.tell([Signal(kind=Kind.ANY)])  # signals may have been lost meanwhile
        listening.set()
        session = self._address.session(connection)
        while True:
            await self._next_turn()
            if connection.is_closed():
                raise Unavailable("the connection for signals was lost")
            pending, self._pending = self._pending, []
            try:
                if not pending:
                    await session.value("store_time")  # does the server still answer?
                for payload in _payloads(pending):
                    await session.rows("notify", self._channel, payload)
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
                self._enqueue(pending)
                raise

    async def _next_turn(self) -> None:
        """Wait for a signal to send, or for the time to check the connection."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CHECK_EVERY):
                await self._wake.wait()
        self._wake.clear()

    def _hear(self, _: Any, sender: int, __: str, payload: str) -> None:
        if sender != self._own:
            for line in payload.split("\n"):
                self._subscribers.tell([_decode(line)])

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(POLL_EVERY)
            self._subscribers.tell([Signal(kind=Kind.ANY)])


def _payloads(signals: Iterable[Signal]) -> list[str]:
    """Signals as texts that each fit into one notification."""
    payloads: list[str] = []
    for line in map(_encode, signals):
        if payloads and len(payloads[-1]) + len(line) < MAX_PAYLOAD:
            payloads[-1] += f"\n{line}"
        else:
            payloads.append(line)
    return payloads


def _encode(signal: Signal) -> str:
    at = "" if signal.at is None else str((signal.at - _EPOCH) // _TICK)
    return f"{signal.kind} {at} {signal.node or ''}"


def _decode(line: str) -> Signal:
    """The inverse of `_encode`; a kind that only a newer version knows is ANY."""
    kind, at, node = [*line.split(" "), "", ""][:3]
    if kind not in set(Kind):
        return Signal(kind=Kind.ANY)
    return Signal(kind=Kind(kind), at=_EPOCH + int(at) * _TICK if at else None, node=NodeId(node) if node else None)
