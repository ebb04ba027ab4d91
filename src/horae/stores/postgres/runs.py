"""Runs in PostgreSQL: started, settled, stopped, and which of them nodes hold."""

from collections.abc import Mapping, Sequence
from datetime import date, datetime

import asyncpg

from horae.core.decisions.results import Settled
from horae.core.effects import effects_of_end, frees_key
from horae.core.lifecycle import FINAL
from horae.core.model import NodeId, Reason, Run, RunId, State
from horae.core.signals import Kind, Signal
from horae.stores.common.records import key_row
from horae.stores.postgres import codecs as rows
from horae.stores.postgres.base import PostgresBase, due_from, wake_parked
from horae.stores.postgres.codecs import day_of
from horae.stores.postgres.connection.database import Database, Session, retried
from horae.stores.postgres.upkeep import find_held


class PostgresRuns(PostgresBase):
    """The verbs of the store that deal with runs."""

    @retried
    async def start(self, runs: Sequence[Run]) -> list[bool]:
        ordered = sorted(runs, key=lambda run: run.id)
        started = {row[0] for row in await self._db.batch("start_runs", rows.started, ordered)}
        return [run.id in started for run in runs]

    @retried
    async def settle(self, results: Sequence[Settled]) -> list[bool]:
        if not results:
            return []
        ordered = sorted(results, key=lambda result: result.run.id)
        await self._ensure_days(_days_of(ordered))
        try:
            written, woken = await self._write_results(ordered)
        except asyncpg.CheckViolationError:  # the partition is gone: days that we know were dropped
            self._days.clear()
            raise
        self._signals.send([*due_from(woken), *self._room_signal([result.run for result in written])])
        if len(written) == len(results):
            return [True] * len(results)
        done = set(map(_claim_of, written))
        missed = [result for result in results if _claim_of(result) not in done]
        found = {row[0] for row in await self._db.batch("settled_before", _outcome_of, missed)}
        done |= {_claim_of(result) for result in missed if result.run.id in found}
        return [_claim_of(result) in done for result in results]

    def _room_signal(self, left: Sequence[Run]) -> list[Signal]:
        """That there is room in a queue with a limit, because nodes no longer hold these runs."""
        limited = self._limited
        return [Signal(kind=Kind.DUE)] if limited and any(run.spec.queue in limited for run in left) else []

    async def _write_results(self, results: Sequence[Settled]) -> tuple[Sequence[Settled], list[datetime]]:
        """Write results; returns those whose fences held, and when runs wake because of them."""
        held = [result for result in results if result.run.state in FINAL and result.was_held]
        if len(held) == len(results) and not any(map(_writes_more, held)):
            return await _end(self._db, held, held=True, leave=True)  # the usual case is one statement
        waiting = [result for result in results if not result.was_held]
        returned = [result for result in results if result.run.state not in FINAL]
        async with self._db.transaction() as session:
            over: list[Settled] = []
            for ended, is_held in ((held, True), (waiting, False)):
                if ended:
                    over += (await _end(session, ended, held=is_held, leave=False))[0]
            back = await _return(session, returned)
            attempts = [result.attempt for result in (*over, *back) if result.attempt is not None]
            await session.batch("add_attempts", rows.attempt, attempts)
            woken = await _write_effects(session, [result.run for result in over])
        return [*over, *back], [*woken, *(result.run.wake_at for result in back)]

    async def stops(self, node: NodeId) -> Mapping[RunId, Reason]:
        return {RunId(row[0]): Reason(row[1]) for row in await self._db.rows("stops", node)}

    async def still_held(self, runs: Sequence[Run]) -> list[bool]:
        given = await self._db.batch("held", lambda run: (run.id, run.fence, run.node), runs)
        found = {(row[0], row[1]) for row in given}
        return [(run.id, run.fence) in found for run in runs]

    async def held_by(self, node: NodeId, *, until: datetime) -> list[Run]:
        async with self._db.session() as session:
            return await find_held(session, [node], last_at=until)


async def _end(
    place: Database | Session, ended: Sequence[Settled], *, held: bool, leave: bool
) -> tuple[Sequence[Settled], list[datetime]]:
    """End runs; returns the results whose fences held, and when runs wake if these leave their gates at once."""
    [(count, ids, fences, woken)] = await place.rows("end_runs", held, rows.run_ends(ended), len(ended), leave)
    if count == len(ended):
        return ended, woken or []
    done = set(zip(ids or (), fences or (), strict=True))
    return [result for result in ended if _claim_of(result) in done], woken or []


async def _return(session: Session, returned: Sequence[Settled]) -> list[Settled]:
    """Give runs back or have them retried; returns the results whose fences held."""
    done = {(row[0], row[1]) for row in await session.batch("return_runs", rows.returned, returned)}
    return [result for result in returned if _claim_of(result) in done]


def _writes_more(result: Settled) -> bool:
    """Whether an end writes more than the run, its event and the next one of its gate; what fails has an attempt."""
    return result.attempt is not None or frees_key(result.run)


def _claim_of(result: Settled) -> tuple[str, int]:
    """The claim that a result is of."""
    return result.run.id, result.run.fence


def _outcome_of(result: Settled) -> tuple[str, int, State]:
    return result.run.id, result.run.fence, result.run.state


def _days_of(results: Sequence[Settled]) -> set[date]:
    """The days of the partitions that these results are written to."""
    ends = [result.run.finished_at for result in results if result.run.finished_at is not None]
    ends += [result.attempt.ended_at for result in results if result.attempt is not None]
    days = {day_of(min(ends)), day_of(max(ends))} if ends else set()
    return days if len(days) < 2 else set(map(day_of, ends))


async def _write_effects(session: Session, ended: Sequence[Run]) -> list[datetime]:
    """Write the effects of ends; returns when runs wake that were parked behind them."""
    effects = [(run, effects) for run in ended if (effects := effects_of_end(run)) is not None]
    keyed = [run for run, each in effects if each.frees_key]
    await session.batch("delete_records", lambda run: key_row(run)[:4], keyed)
    await session.batch("insert_blocks", rows.block, [run for run, each in effects if each.blocks_gate])
    # A statement of its own, so that it sees what was parked meanwhile.
    return await wake_parked(session, [(run.gate, run.finished_at) for run, each in effects if each.leaves_gate])
