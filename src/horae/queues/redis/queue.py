"""The queue on Redis: sorted sets of tickets, one script for each verb, and messages instead of polling."""

import asyncio
import contextlib
import hashlib
import random
import secrets
from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from itertools import chain
from time import monotonic
from typing import Any, TypeVar

import msgspec
from redis.exceptions import NoScriptError

from horae.core.errors import Unavailable
from horae.core.model import RunId
from horae.core.signals import Kind, Signal
from horae.core.tickets import Ticket
from horae.ports.queue import QueueState, QueueTraits, Taken
from horae.queues.redis.connection import SECONDS, Client, RedisAddress, door
from horae.queues.redis.listener import RedisListener

T = TypeVar("T")

BATCH = 1000
HIDDEN = timedelta(seconds=15)  # a ticket that was taken; the claim that follows takes some milliseconds
SOON = timedelta(seconds=2)  # those who wait look again at least every second, so what wakes later wakes nobody
POLL = 0.1  # seconds between two looks while nobody can wake us
SPREAD = 0.05  # seconds over which those who wait for the same ticket look again
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

TRAITS = QueueTraits(max_delay=None, batch=BATCH, keeps_priority=True, keeps_order=True, carries_signals=True)


class RedisQueue:
    """Tickets on a server of Redis's protocol, 6.2 or later."""

    def __init__(self, url: str) -> None:
        self._address = RedisAddress(url)
        self._prefix = self._address.prefix
        self._client: Client = self._address.client()
        self._name = secrets.token_hex(8)  # of this taker
        self._woken = asyncio.Event()
        self._background: set[asyncio.Future[None]] = set()  # what a cancelled take leaves to be done
        self._heard: list[Callable[[Signal], None]] = []
        self._signals = f"{self._prefix}:signals"
        self._listener = RedisListener(
            self._listening_client, [self._signals, f"{self._prefix}:wake:{self._name}"], heard=self._on_message
        )

    @property
    def traits(self) -> QueueTraits:
        return TRAITS

    async def open(self) -> None:
        with door():
            await self._client.ping()

    async def close(self) -> None:
        await self._listener.stop()
        if self._background:
            await asyncio.wait(self._background, timeout=SECONDS)
        with door():
            await self._address.close(self._client)

    # --- tickets

    async def offer(self, tickets: Sequence[Ticket], *, now: datetime) -> None:
        for some in _batches(tickets, BATCH):
            lanes: defaultdict[tuple[str, str], list[Any]] = defaultdict(list)
            for ticket in some:
                lanes[_line(ticket), ticket.owner] += (_micros(ticket.wake_at), ticket.run_id)
            given = chain.from_iterable((*lane, len(pairs) // 2, *pairs) for lane, pairs in lanes.items())
            await self._run("offer", now, _micros(now + SOON), *given)

    async def take(
        self,
        *,
        queues: Sequence[str],
        without: Collection[str],
        tasks: Sequence[str],
        now: datetime,
        until: datetime,
        limit: int,
        wait: timedelta,
    ) -> list[Taken]:
        self._listener.start()
        wanted = (_names(queues), _names(without), _names(tasks))
        kind = hashlib.sha256(b"\0".join(wanted)).hexdigest()[:16]
        began, ahead = monotonic(), until - now
        moment, waits_until = now, now + wait
        while True:
            self._woken.clear()
            waits = self._listener.listening and moment < waits_until  # else nobody could wake us
            asked = (kind, self._name, _micros(waits_until) if waits else 0, *wanted)
            given = (_micros(moment + ahead), min(limit, BATCH), _micros(moment + HIDDEN), *asked)
            found, (next_at, back_at) = await self._take(moment, given)
            if found or moment >= waits_until:
                return found
            look_at = min(filter(None, (next_at and next_at - ahead, back_at)), default=waits_until)
            rest = max((look_at - moment).total_seconds(), 0.001) + random.random() * SPREAD
            if not self._listener.listening:
                rest = min(rest, POLL)
            await self._rest(min(rest, (waits_until - moment).total_seconds()), kind)
            moment = now + timedelta(seconds=monotonic() - began)

    async def _rest(self, seconds: float, kind: str) -> None:
        """Wait until we are woken; who is cancelled must not be woken in place of others."""
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), seconds)
        except asyncio.CancelledError:
            self._in_background(self._client.zrem(f"{self._prefix}:waiting:{kind}", self._name))
            raise

    def _in_background(self, act: Coroutine[Any, Any, Any]) -> None:
        async def quietly() -> None:
            with contextlib.suppress(Unavailable), door():
                await act

        task = asyncio.ensure_future(quietly())
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _take(
        self, now: datetime, given: Sequence[Any]
    ) -> tuple[list[Taken], tuple[datetime | None, datetime | None]]:
        """Take once; returns the tickets, and when the next one wakes and when the next comes back."""
        asking = asyncio.ensure_future(self._run("take", now, *given))
        try:
            next_at, back_at, *lanes = await asyncio.shield(asking)
        except asyncio.CancelledError:
            self._in_background(self._return(asking, now))
            raise
        return list(_taken(lanes)), (_maybe_time(next_at), _maybe_time(back_at))

    async def _return(self, asking: asyncio.Future[Any], now: datetime) -> None:
        """Give back what a take brings that nobody waits for any more; otherwise it comes back by itself."""
        _, _, *lanes = await asking
        if taken := list(_taken(lanes)):
            await self.give_back(taken, now=now, at=now)

    async def done(self, taken: Sequence[Taken]) -> None:
        for some in _batches(taken, BATCH):
            with door():
                await self._client.zrem(f"{self._prefix}:taken", *(each.receipt for each in some))

    async def give_back(self, taken: Sequence[Taken], *, now: datetime, at: datetime) -> None:
        for some in _batches(taken, BATCH):
            await self._run("give_back", now, _micros(at), *(each.receipt for each in some))

    # --- what it tells of itself

    async def generation(self) -> str:
        value: bytes = await self._run("generation", _EPOCH, secrets.token_hex(8))
        return value.decode()

    async def state(self) -> QueueState:
        return QueueState(tickets=int(await self._run("state", _EPOCH)), refused=0)

    async def clear(self) -> None:
        """Delete everything under this prefix."""
        with door():
            async for key in self._client.scan_iter(match=f"{self._prefix}*", count=BATCH):
                await self._client.unlink(key)

    # --- signals

    async def send(self, signals: Sequence[Signal]) -> None:
        if signals:
            with door():
                await self._client.publish(self._signals, msgspec.json.encode(signals))

    def subscribe(self, heard: Callable[[Signal], None]) -> Callable[[], None]:
        self._heard.append(heard)
        self._listener.start()
        return lambda: self._heard.remove(heard)

    def _on_message(self, channel: bytes, message: bytes) -> None:
        if channel != self._signals.encode():
            self._woken.set()
            return
        signals = (
            _decode_signals(message) if message else [Signal(kind=Kind.ANY)]
        )  # connected: some may have been missed
        for signal in signals:
            for heard in list(self._heard):
                heard(signal)

    async def _listening_client(self) -> Client:
        return await self._address.listening_client(self._client)

    # --- scripts

    async def _run(self, name: str, now: datetime, *given: Any) -> Any:
        """Run a script, which the server may have forgotten."""
        text, digest = _script(name)
        arguments = (1, f"{self._prefix}:lines", self._prefix, _micros(now), *given)
        with door():
            try:
                return await self._client.evalsha(digest, *arguments)
            except NoScriptError:
                return await self._client.eval(text, *arguments)


_decode_signals = msgspec.json.Decoder(list[Signal]).decode


@cache
def _script(name: str) -> tuple[str, str]:
    folder = files("horae.queues.redis") / "lua"
    text = "\n".join((folder / f"{part}.lua").read_text("utf-8") for part in ("common", name))
    return text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def _taken(lanes: Sequence[bytes]) -> Iterator[Taken]:
    """The tickets of an answer: lanes with their tickets as text."""
    for line, owner, text in _batches(lanes, 3):
        priority, queue, task = line.decode().split("/", 2)
        tail = f" {len(line)} {line.decode()}{owner.decode()}"
        owner_name, number = owner.decode(), int(priority)
        for run_id, at in _batches(text.decode().split(" "), 2):
            ticket = Ticket(
                run_id=RunId(run_id), task=task, queue=queue, priority=number, owner=owner_name, wake_at=_time(int(at))
            )
            yield Taken(ticket=ticket, receipt=f"{run_id} {at}{tail}")


def _batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[first : first + size] for first in range(0, len(items), size))


def _line(ticket: Ticket) -> str:
    return f"{ticket.priority}/{ticket.queue}/{ticket.task}"


def _names(names: Collection[str]) -> bytes:
    return msgspec.json.encode(sorted(names))


def _micros(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND


def _time(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def _maybe_time(text: bytes) -> datetime | None:
    return _time(int(text)) if text else None
