"""Requests that their sender may repeat: each is done once under its key, and answered the same way again."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import TypeVar

from horae.core.effects import keep_record
from horae.core.errors import InFlight, RequestChanged
from horae.core.records import IdempotencyRecord
from horae.jobs.lookup import find_request
from horae.ports.clock import Clock
from horae.ports.store import Store

T = TypeVar("T", contravariant=True)

Issue = Callable[[T], Awaitable[IdempotencyRecord]]  # what is about to be written → its record, written with it

_UNDER = "\x1f"  # joins a key and the place of an item; no user's key can hold it


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A request that may come again: whose it is, its key, and what it says."""

    owner: str
    key: str
    fingerprint: str

    def item(self, place: int) -> "Ask":
        """The request for one of many items."""
        return Ask(owner=self.owner, key=f"{self.key}{_UNDER}{place}", fingerprint=self.fingerprint)


def fingerprint(*parts: bytes) -> str:
    """What tells one request from another."""
    digest = sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8))
        digest.update(part)
    return digest.hexdigest()


class Idempotency:
    """Remembers answers by owner and key."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._in_flight: set[tuple[str, str]] = set()

    async def earlier(self, ask: Ask) -> str | None:
        """The answer to an earlier request, if there was one; raises RequestChanged when it said something else."""
        record = await find_request(self._store, ask.owner, ask.key, now=self._clock.now())
        return None if record is None else answer_of(record, ask)

    def of(self, ask: Ask, answer: str) -> IdempotencyRecord:
        """The record of something that is about to be written."""
        return IdempotencyRecord(
            owner=ask.owner,
            key=ask.key,
            fingerprint=ask.fingerprint,
            answer=answer,
            created_at=self._clock.now(),
        )

    async def keep(self, ask: Ask, answer: str) -> str:
        """Keep the answer to an act that is over; the one that holds, when another process was faster."""
        record = self.of(ask, answer)
        return answer_of(await keep(self._store, record), ask)

    @contextmanager
    def in_flight(self, ask: Ask) -> Iterator[None]:
        """Do an act of many steps; raises InFlight while this process is still at it for an earlier request."""
        name = (ask.owner, ask.key)
        if name in self._in_flight:
            raise InFlight(ask.key)
        self._in_flight.add(name)
        try:
            yield
        finally:
            self._in_flight.discard(name)


async def keep(store: Store, record: IdempotencyRecord) -> IdempotencyRecord:
    """Keep a record unless there is one already; the record that holds."""
    [refusal] = await store.apply([keep_record(record)])
    return refusal.found if refusal is not None and isinstance(refusal.found, IdempotencyRecord) else record


def answer_of(record: IdempotencyRecord, ask: Ask) -> str:
    """The answer to a repeated request; raises RequestChanged when the earlier one said something else."""
    if record.fingerprint != ask.fingerprint:
        raise RequestChanged(ask.key)
    return record.answer
