"""The life of a run in PostgreSQL: started, settled, parked, stopped."""

from collections.abc import Mapping, Sequence
from datetime import date, datetime

import asyncpg

from horae.core.lifecycle import FINAL
from horae.core.model import NodeId, Reason, Run, RunId
from horae.core.results import Settled
from horae.core.signals import Kind, Signal
from horae.ports.store import Retraction
from horae.stores.postgres import codecs as rows
from horae.stores.postgres.base import OVER, PostgresBase
from horae.stores.postgres.codecs import columns, day_of
from horae.stores.postgres.database import Database, Session, retried
from horae.stores.postgres.gates import leave_gates, wake_parked, woken_signal
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
        """Write results of held runs if their fences still hold; False means the result is void."""
        return await self._settle(results, held=True)

    @retried
    async def end_waiting(self, results: Sequence[Settled]) -> list[bool]:
        """End runs that nobody holds, if they still wait with the same fence."""
        return await self._settle(results, held=False)

    async def _settle(self, results: Sequence[Settled], *, held: bool) -> list[bool]:
        if not results:
            return []
        ordered = sorted(results, key=lambda result: result.run.id)
        await self._ensure_days(_days_of(ordered))
        try:
            written, woken = await self._write_results(ordered, held=held)
        except asyncpg.CheckViolationError:  # the partition is gone: days that we know were dropped
            self._days.clear()
            raise
        self._signals.send([*woken_signal(woken), *self._room_signal([result.run for result in written])])
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

    async def _write_results(
        self, results: Sequence[Settled], *, held: bool
    ) -> tuple[Sequence[Settled], list[datetime]]:
        """Write results; answers those whose fences held, and when runs wake because of them."""
        ended = [result for result in results if result.run.state in FINAL]
        returned = [result for result in results if result.run.state not in FINAL]
        if not returned and not any(map(_has_ties, ended)):
            return await _end(self._db, ended, held=held, leave=True)  # the usual case is one statement
        async with self._db.transaction() as session:
            over, _ = await _end(session, ended, held=held, leave=False) if ended else ([], [])
            back = await _return(session, returned) if returned else []
            await _add_attempts(session, [*over, *back])
            await _free_keys(session, [result.run for result in over])
            woken = await leave_gates(session, [result.run for result in over])
        return [*over, *back], [*woken, *(result.run.wake_at for result in back)]

    @retried
    async def park(self, runs: Sequence[Run]) -> None:
        """Keep blocked runs away from claims until the run before them ends."""
        if not runs:
            return
        given = columns(lambda run: (run.id, run.fence), sorted(runs, key=lambda run: run.id))
        async with self._db.session() as session:
            await session.rows("park_runs", *given)
            await session.rows("park_runs_behind_holders", *given)
            await session.rows("park_runs_behind_blocks", *given)

    @retried
    async def request_stop(self, run_ids: Sequence[RunId], reason: Reason) -> list[NodeId | None]:
        """Ask the nodes that hold the runs to stop them; None where nobody holds it."""
        holders = {row[0]: row[1] for row in await self._db.rows("request_stop", sorted(run_ids), reason)}
        self._signals.send(Signal(kind=Kind.STOP, node=node) for node in sorted(set(holders.values())))
        return [holders.get(run_id) for run_id in run_ids]

    async def retract(self, runs: Sequence[Run], *, now: datetime) -> list[Retraction]:
        """Take back held runs of paused jobs, the latest slot first, so that none has a later one in its way."""
        answers: dict[RunId, Retraction] = {}
        for run in sorted(runs, key=lambda run: run.slot or run.due_at, reverse=True):
            answers[run.id] = await self._retract(run, now)
        self._signals.send(self._room_signal([run for run in runs if answers[run.id] is Retraction.TAKEN_BACK]))
        return [answers[run.id] for run in runs]

    @retried
    async def _retract(self, run: Run, now: datetime) -> Retraction:
        async with self._db.transaction() as session:
            taken = await session.rows("retract_held", run.id, run.fence, now)
            woken = await wake_parked(session, {gate: now for (gate,) in taken if gate is not None})
            status = None if taken else await session.value("job_status", run.job_id)
        self._signals.send(woken_signal(woken))
        if taken:
            return Retraction.TAKEN_BACK
        return Retraction.OVER if status in (None, *OVER) else Retraction.GOES_ON

    async def stops(self, node: NodeId) -> Mapping[RunId, Reason]:
        """The stop requests that are open for runs which a node holds."""
        return {RunId(row[0]): Reason(row[1]) for row in await self._db.rows("stops", node)}

    async def held(self, runs: Sequence[Run]) -> list[bool]:
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
    """Whether the end of a run concerns more than its own row and those behind it in its gate.

    What fails, and may block these, comes with an attempt.
    """
    run = result.run
    return result.attempt is not None or (run.spec.key is not None and run.one_shot)


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


async def _free_keys(session: Session, runs: Sequence[Run]) -> None:
    keyed = [run for run in runs if run.one_shot and run.spec.key is not None]
    if keyed:
        await session.rows("free_keys", *columns(lambda run: (run.owner, run.spec.key, run.job_id), keyed))
