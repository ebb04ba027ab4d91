"""Dead letters in PostgreSQL: what becomes of them, and by what they failed."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from horae.core.model import DISCARDED, RunId
from horae.core.records import Receipt
from horae.core.values import replace
from horae.ports.reader import ErrorGroup, RunFilter
from horae.ports.store import Resolution
from horae.stores.common.codecs import decode_error
from horae.stores.postgres.base import PostgresBase, due_signal
from horae.stores.postgres.codecs import Places, columns
from horae.stores.postgres.create import write_runs
from horae.stores.postgres.database import Session, retried
from horae.stores.postgres.gates import wake_parked, woken_signal
from horae.stores.postgres.idempotency import Outcome, with_receipts
from horae.stores.postgres.list_queries import RunQuery

MAX_LETTERS = 10_000  # that are counted, or looked at for groups


class PostgresLetters(PostgresBase):
    """The verbs of the store that deal with dead letters."""

    async def dead_letters(self) -> int:
        """How many failed runs nobody has resolved, counted up to a bound."""
        count: int = await self._db.value("count_dead_letters", MAX_LETTERS)
        return count

    async def dead_letter_groups(self, which: RunFilter) -> list[ErrorGroup]:
        """Dead letters by task and error, the most frequent first; of at most 10,000 letters, the latest."""
        query = RunQuery.of(replace(which, dead_letters=True), None, MAX_LETTERS - 1)
        groups = query.groups()
        found = await self._db.rows(groups.name, *query.arguments(groups))
        return [group for row in found if (group := _group(row)) is not None]

    @retried
    async def resolve(self, resolutions: Sequence[Resolution], *, now: datetime) -> list[bool | Receipt]:
        """Resolve dead letters, each with the creation of its successor; False where it is none (any more)."""
        if not resolutions:
            return []
        successors = [item.successor for item in resolutions if item.successor is not None]
        places = await self._places_of(successors)
        woken: list[datetime] = []

        async with self._db.transaction() as session:

            async def act(items: Sequence[Resolution]) -> list[Outcome[bool]]:
                done, times = await _resolve(session, items, places, now)
                woken.extend(times)
                return [Outcome(each, each) for each in done]

            answers = await with_receipts(session, resolutions, lambda item: item.receipt, act)
        self._signals.send([*due_signal(successors), *woken_signal(woken)])
        return answers


async def _resolve(
    session: Session, items: Sequence[Resolution], places: Places, now: datetime
) -> tuple[list[bool], list[datetime]]:
    """Resolve letters that still are; answers which, and when runs go on that they blocked."""
    first = {item.run_id: item for item in reversed(items)}  # of two for one letter only one can win
    ordered = sorted(first.values(), key=lambda item: item.run_id)
    letters = await session.rows("resolve_letters", *columns(_resolution, ordered))
    done = {row[0] for row in letters}
    successors = [item.successor for item in ordered if item.run_id in done and item.successor is not None]
    await write_runs(session, successors, places)
    gated = [(gate, due_at, ident) for ident, gate, due_at in letters if gate is not None]
    lifted = await session.rows("lift_blocks", *zip(*gated, strict=True)) if gated else []
    woken = await wake_parked(session, {row[0]: now for row in lifted})
    return [item.run_id in done and first[item.run_id] is item for item in items], woken


def _resolution(item: Resolution) -> tuple[RunId, str]:
    return item.run_id, DISCARDED if item.successor is None else item.successor.id


def _group(row: Sequence[Any]) -> ErrorGroup | None:
    error = decode_error(row[1])
    if error is None:
        return None
    return ErrorGroup(error=error, count=row[2], oldest_at=row[3], newest_at=row[4], task=row[0], example=RunId(row[5]))
