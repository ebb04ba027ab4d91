"""The life of a run in PostgreSQL: started, settled, parked, stopped."""

from collections.abc import Mapping, Sequence
from datetime import date, datetime

import asyncpg

from horae.core.decisions.results import Settled
from horae.core.effects import effects_of_end
from horae.core.lifecycle import FINAL
from horae.core.model import NodeId, Reason, Run, RunId
from horae.core.signals import Kind, Signal
from horae.stores.postgres import codecs as rows
from horae.stores.postgres.base import PostgresBase, due_at
from horae.stores.postgres.codecs import columns, day_of
from horae.stores.postgres.connection.database import Database, Session, retried
from horae.stores.postgres.held import left_behind


class PostgresRuns(PostgresBase):
    """The verbs of the store that deal with runs."""

    @retried
    async def start(self, runs: Sequence[Run]) -> list[bool]:
        """Write that attempts began, or their progress, if the fences still hold."""
        if not runs:
            return []
        ordered = sorted(runs, key=lambda run: run.id)
        started = {row[0] for row in await self._db.rows("start_runs", *columns(rows.started, ordered))}
        return [run.id in started for run in runs]

    @retried
    async def settle(self, results: Sequence[Settled]) -> list[bool]:
        """Write results if the fences still hold; False means the run moved on and the result is void."""
        if not results:
            return []
        ordered = sorted(results, key=lambda result: result.run.id)
        await self._ensure_days(_days_of(ordered))
        try:
            written, woken = await self._write_results(ordered)
        except asyncpg.CheckViolationError:  # the partition is gone: days that we know were dropped
            self._days.clear()
            raise
        self._signals.send([*due_at(woken), *self._room_signal([result.run for result in written])])
        if len(written) == len(results):
            return [True] * len(results)
        done = set(map(_claim_of, written))
        missed = [result for result in results if _claim_of(result) not in done]
        given = columns(lambda result: (result.run.id, result.run.fence, result.run.state), missed)
        found = {row[0] for row in await self._db.rows("settled_before", *given)}
        done |= {_claim_of(result) for result in missed if result.run.id in found}
        return [_claim_of(result) in done for result in results]

    def _room_signal(self, left: Sequence[Run]) -> list[Signal]:
        """That there is room in a queue with a limit, because nodes no longer hold these runs."""
        limited = self._limited
        return [Signal(kind=Kind.DUE)] if limited and any(run.spec.queue in limited for run in left) else []

    async def _write_results(self, results: Sequence[Settled]) -> tuple[Sequence[Settled], list[datetime]]:
        """Write results; returns those whose fences held, and when runs wake because of them."""
        held = [result for result in results if result.run.state in FINAL and result.was_held]
        if len(held) == len(results) and not any(map(_has_ties, held)):
            return await _end(self._db, held, held=True, leave=True)  # the usual case is one statement
        waiting = [result for result in results if not result.was_held]
        returned = [result for result in results if result.run.state not in FINAL]
        async with self._db.transaction() as session:
            over: list[Settled] = []
            for ended, is_held in ((held, True), (waiting, False)):
                if ended:
                    over += (await _end(session, ended, held=is_held, leave=False))[0]
            back = await _return(session, returned) if returned else []
            await _add_attempts(session, [*over, *back])
            woken = await _write_effects(session, [result.run for result in over])
        return [*over, *back], [*woken, *(result.run.wake_at for result in back)]

    async def stops(self, node: NodeId) -> Mapping[RunId, Reason]:
        """The stop requests that are open for runs which a node holds."""
        return {RunId(row[0]): Reason(row[1]) for row in await self._db.rows("stops", node)}

    async def still_held(self, runs: Sequence[Run]) -> list[bool]:
        """Which of the runs their nodes still hold under the same fence."""
        if not runs:
            return []
        given = columns(lambda run: (run.id, run.fence, run.node), runs)
        found = {(row[0], row[1]) for row in await self._db.rows("held", *given)}
        return [(run.id, run.fence) in found for run in runs]

    async def held_by(self, node: NodeId, *, until: datetime) -> list[Run]:
        """Everything that a node holds of what wakes up to a moment."""
        async with self._db.session() as session:
            return await left_behind(session, [node], last_at=until)


async def _end(
    place: Database | Session, ended: Sequence[Settled], *, held: bool, leave: bool
) -> tuple[Sequence[Settled], list[datetime]]:
    """End runs; answers the results whose fences held, and when runs wake if these leave their gates at once."""
    [(count, ids, fences, woken)] = await place.rows("end_runs", held, rows.run_ends(ended), len(ended), leave)
    if count == len(ended):
        return ended, woken or []
    done = set(zip(ids or (), fences or (), strict=True))
    return [result for result in ended if _claim_of(result) in done], woken or []


async def _return(session: Session, returned: Sequence[Settled]) -> list[Settled]:
    """Give runs back, or put them off; answers the results whose fences held."""
    done = {(row[0], row[1]) for row in await session.rows("return_runs", *columns(rows.returned, returned))}
    return [result for result in returned if _claim_of(result) in done]


def _claim_of(result: Settled) -> tuple[str, int]:
    """The claim that a result is of."""
    return result.run.id, result.run.fence


def _has_ties(result: Settled) -> bool:
    """Whether the end of a run concerns more than its own row, its event and those behind it in its gate."""
    if result.attempt is not None or result.run.spec.key is None:
        return result.attempt is not None  # what fails comes with an attempt
    effects = effects_of_end(result.run)
    return effects is not None and effects.frees_key


def _days_of(results: Sequence[Settled]) -> set[date]:
    """The days that something of these results is kept under."""
    ends = [result.run.finished_at for result in results if result.run.finished_at is not None]
    ends += [result.attempt.ended_at for result in results if result.attempt is not None]
    days = {day_of(min(ends)), day_of(max(ends))} if ends else set()
    return days if len(days) < 2 else set(map(day_of, ends))


async def _add_attempts(session: Session, results: Sequence[Settled]) -> None:
    attempts = [result.attempt for result in results if result.attempt is not None]
    if attempts:
        await session.rows("add_attempts", *columns(rows.attempt, attempts))


async def _write_effects(session: Session, ended: Sequence[Run]) -> list[datetime]:
    """Write what ends bring with them; returns when runs wake that were parked behind them."""
    effects = [(run, effects) for run in ended if (effects := effects_of_end(run)) is not None]
    keyed = [run for run, each in effects if each.frees_key]
    if keyed:
        await session.rows("delete_keys", *columns(lambda run: (run.owner, run.spec.key, run.job_id), keyed))
    blocking = [run for run, each in effects if each.blocks_gate]
    if blocking:
        await session.rows("insert_blocks", *columns(rows.block, blocking))
    left: dict[str, datetime] = {}
    for run, each in effects:
        if each.leaves_gate and run.gate is not None and run.finished_at is not None:
            left[run.gate] = max(run.finished_at, left.get(run.gate, run.finished_at))
    if not left:
        return []
    # A statement of its own, so that it sees what was parked meanwhile.
    return await session.value("wake_parked", list(left), list(left.values())) or []
