"""Idempotency keys: a repeated request is executed once and gets the same answer again."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import TypeVar

from horae.core.effects import keep_record
from horae.core.errors import InFlight, Invalid, RequestChanged
from horae.core.records import IdempotencyRecord
from horae.lookup import find_request
from horae.ports.clock import Clock
from horae.ports.store import Store

T = TypeVar("T", contravariant=True)

Issue = Callable[[T], Awaitable[IdempotencyRecord]]  # what is about to be written → its record, in the same write

_UNDER = "\x1f"  # between a key and the name of an item; not allowed in users' keys, see `asked`


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A request with an idempotency key; the fingerprint is that of its content."""

    owner: str
    key: str
    fingerprint: str

    def item(self, name: int | str) -> "Ask":
        """Return the request for one of many items, by its place or its id."""
        return Ask(owner=self.owner, key=f"{self.key}{_UNDER}{name}", fingerprint=self.fingerprint)


def asked(owner: str, key: str, *content: bytes) -> Ask:
    """Return the request with a user's key; raises Invalid for one that could be taken for that of an item."""
    if _UNDER in key:
        raise Invalid("an idempotency key must not contain the control character U+001F; choose a key without it")
    return Ask(owner=owner, key=key, fingerprint=fingerprint(*content))


def fingerprint(*parts: bytes) -> str:
    """Return a hash of the content of a request."""
    digest = sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8))
        digest.update(part)
    return digest.hexdigest()


class Idempotency:
    """Stores the answers to requests by owner and idempotency key."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._in_flight: set[tuple[str, str]] = set()

    async def earlier(self, ask: Ask) -> str | None:
        """Return the answer to an earlier request, if there was one; raises RequestChanged if that one differed."""
        record = await find_request(self._store, ask.owner, ask.key, now=self._clock.now())
        return None if record is None else answer_of(record, ask)

    def of(self, ask: Ask, answer: str) -> IdempotencyRecord:
        """Return the record for something that is about to be written."""
        return IdempotencyRecord(
            owner=ask.owner,
            key=ask.key,
            fingerprint=ask.fingerprint,
            answer=answer,
            created_at=self._clock.now(),
        )

    async def keep(self, ask: Ask, answer: str) -> str:
        """Store an answer, and return it; or the stored one, when another process was faster."""
        record = self.of(ask, answer)
        [refusal] = await self._store.apply([keep_record(record)])
        return answer_of(refusal.found if refusal and isinstance(refusal.found, IdempotencyRecord) else record, ask)

    @contextmanager
    def in_flight(self, ask: Ask) -> Iterator[None]:
        """Mark a request as in progress; raises InFlight when this process is still executing an earlier copy."""
        name = (ask.owner, ask.key)
        if name in self._in_flight:
            raise InFlight(ask.key)
        self._in_flight.add(name)
        try:
            yield
        finally:
            self._in_flight.discard(name)


def answer_of(record: IdempotencyRecord, ask: Ask) -> str:
    """Return the answer to a repeated request; raises RequestChanged if the earlier one differed."""
    if record.fingerprint != ask.fingerprint:
        raise RequestChanged(ask.key)
    return record.answer
