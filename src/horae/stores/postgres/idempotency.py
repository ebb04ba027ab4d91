"""Receipts in PostgreSQL: the answers to requests that may come again, written together with what they are about."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from horae.core.errors import Unavailable
from horae.core.records import RECEIPT_LIFE, Receipt
from horae.ports.events import EVENT_LIFE
from horae.stores.postgres import codecs as rows
from horae.stores.postgres.base import PostgresBase
from horae.stores.postgres.codecs import columns, receipt_of
from horae.stores.postgres.database import Session, retried

TRIES = 5  # a receipt may expire between the two looks at it, again and again

T = TypeVar("T")
A = TypeVar("A")
Key = tuple[str, str]  # owner, key


@dataclass(frozen=True, slots=True)
class Outcome(Generic[A]):
    """The answer about one item, and whether something was written for it."""

    answer: A
    written: bool


class PostgresReceipts(PostgresBase):
    """The verbs of the store that deal with repeated requests, and with what is kept for a day."""

    async def receipt(self, owner: str, key: str, *, now: datetime) -> Receipt | None:
        """The receipt of an earlier request under this key, while it is valid."""
        for row in await self._db.rows("valid_receipt", owner, key, now, RECEIPT_LIFE):
            return receipt_of(row)
        return None

    @retried
    async def keep_receipt(self, receipt: Receipt) -> Receipt:
        """Keep the answer to an act that is over, unless there is one already; the receipt that holds."""
        async with self._db.transaction() as session:
            return (await take_receipts(session, [receipt])).get(_key(receipt), receipt)

    @retried
    async def expire(self, *, now: datetime, limit: int) -> int:
        """Delete receipts older than RECEIPT_LIFE and events older than EVENT_LIFE; how many rows, 0 when done."""
        async with self._db.session() as session:
            receipts = await session.rows("expire_receipts", now - RECEIPT_LIFE, limit)
            events = await session.rows("expire_events", now - EVENT_LIFE, limit)
        return len(receipts) + len(events)


async def take_receipts(session: Session, receipts: Sequence[Receipt]) -> dict[Key, Receipt]:
    """Write receipts, of which no two have the same key; answers the valid ones that were there first.

    Whoever writes one at the same time is waited for: of several exactly one is first.
    """
    earlier: dict[Key, Receipt] = {}
    waiting = list(receipts)
    for _ in range(TRIES):
        if not waiting:
            return earlier
        taken = await session.rows("take_receipts", *columns(rows.receipt, waiting), RECEIPT_LIFE)
        taken_keys = {(row[0], row[1]) for row in taken}
        waiting = [receipt for receipt in waiting if _key(receipt) not in taken_keys]
        if waiting:
            found = [receipt_of(row) for row in await session.rows("receipts", *columns(_key, waiting))]
            earlier |= {_key(receipt): receipt for receipt in found}
            waiting = [receipt for receipt in waiting if _key(receipt) not in earlier]
    raise Unavailable("receipts are being taken and freed too fast; try again")


async def with_receipts(
    session: Session,
    items: Sequence[T],
    receipt_of_item: Callable[[T], Receipt | None],
    act: Callable[[Sequence[T]], Awaitable[Sequence[Outcome[A]]]],
) -> list[A | Receipt]:
    """Act on items, each together with its receipt; where a valid receipt is there already, it is the answer.

    Nearly always in one round. Of several items with the same key the first is acted on; the others get its receipt, or
    their own turn when nothing was written for it.
    """
    answers: dict[int, A | Receipt] = {}
    while waiting := [place for place in range(len(items)) if place not in answers]:
        receipts = {place: receipt for place in waiting if (receipt := receipt_of_item(items[place])) is not None}
        first = {_key(receipt): place for place, receipt in reversed(receipts.items())}
        kept = await take_receipts(session, [receipts[place] for place in first.values()])
        turn = [
            place
            for place in waiting
            if place not in receipts or (first[_key(receipts[place])] == place and _key(receipts[place]) not in kept)
        ]
        mine = {place: receipts[place] for place in turn if place in receipts}
        for place, outcome in zip(turn, await act([items[place] for place in turn]) if turn else (), strict=True):
            answers[place] = outcome.answer
            if place in mine and outcome.written:
                kept[_key(mine[place])] = mine[place]
        await _drop_receipts(session, [receipt for receipt in mine.values() if _key(receipt) not in kept])
        for place, receipt in receipts.items():
            if place not in answers and _key(receipt) in kept:
                answers[place] = kept[_key(receipt)]
    return [answers[place] for place in range(len(items))]


async def _drop_receipts(session: Session, receipts: Sequence[Receipt]) -> None:
    if receipts:
        await session.rows("drop_receipts", *columns(_key, receipts))


def _key(receipt: Receipt) -> Key:
    return receipt.owner, receipt.key
