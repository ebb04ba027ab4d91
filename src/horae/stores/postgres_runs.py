"""The life of a run in PostgreSQL: claimed, started, settled, parked, stopped."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any

import asyncpg

from horae.core.lifecycle import FINAL
from horae.core.model import NodeId, Reason, Run, RunId
from horae.core.plan import Rival, Settled
from horae.store import ClaimRequest, Claims, Contested, Kind, Retraction, Signal
from horae.stores import postgres_rows as rows
from horae.stores.postgres_base import PostgresBase
from horae.stores.postgres_pool import Database, Session, retried
from horae.stores.postgres_rows import ROWS, columns, day_of

BEGINNING = datetime(1, 1, 1, tzinfo=UTC)
_MINE, _ALIVE, _NEXT_AT, _MORE = 38, 39, 40, 41  # columns of `claim` after those of `live_runs`


class PostgresRuns(PostgresBase):
    """The verbs of the store that deal with runs."""

    @retried
    async def claim(self, request: ClaimRequest) -> Claims:
        """Take runs for a node: by priority, then by wake-up time."""
        if request.free_gates:
            async with self._db.transaction() as session:
                await session.rows("free_gates", request.node, sorted(request.free_gates))
                found = await session.rows("claim", *_claim_arguments(request))
        else:
            found = await self._db.rows("claim", *_claim_arguments(request))
        runs = [ROWS.run(row) for row in found if row[_MINE]]
        blocked = [ROWS.run(row) for row in found if row[_MINE] is False]
        return Claims(
            alive=found[0][_ALIVE],
            runs=runs,
            contested=await self._contested(request.node, blocked) if blocked else (),
            next_at=found[0][_NEXT_AT],
            more=found[0][_MORE],
        )

    async def _contested(self, node: NodeId, blocked: Sequence[Run]) -> list[Contested]:
        given = columns(lambda run: (run.id, run.job_id, run.gate, run.due_at), blocked)
        rivals: dict[RunId, list[Rival]] = defaultdict(list)
        for row in await self._db.rows("rivals", node, *given):
            rivals[row[0]].append(Rival(job_id=row[1], started_at=row[2]))
        return [Contested(run=run, rivals=rivals[run.id]) for run in blocked]

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
        ended = [result for result in ordered if result.run.state in FINAL]
        returned = [result for result in ordered if result.run.state not in FINAL]
        await self._ensure_days(_days_of(ordered))
        try:
            done, woken = await self._write_results(ended, returned, held=held)
        except asyncpg.CheckViolationError:  # the partition is gone: days that we know were dropped
            self._days.clear()
            raise
        waiting = [result.run for result in returned if (result.run.id, result.run.fence) in done]
        if waiting or woken:
            times = [run.wake_at for run in waiting] + woken
            self._signals.send([Signal(kind=Kind.DUE, at=min(times))])
        missed = [result for result in results if (result.run.id, result.run.fence) not in done]
        if missed:
            given = columns(lambda result: (result.run.id, result.run.fence, result.run.state), missed)
            found = {row[0] for row in await self._db.rows("settled_before", *given)}
            done |= {(result.run.id, result.run.fence) for result in missed if result.run.id in found}
        return [(result.run.id, result.run.fence) in done for result in results]

    async def _write_results(
        self, ended: Sequence[Settled], returned: Sequence[Settled], *, held: bool
    ) -> tuple[set[tuple[str, int]], list[datetime]]:
        """Write results; answers the fences that held, and when runs wake that were parked behind them."""
        if not returned and not any(_has_ties(result) for result in ended):
            return await _end(self._db, ended, held=held), []  # the usual case is one statement
        async with self._db.transaction() as session:
            done = await _end(session, ended, held=held) if ended else set()
            if returned:
                found = await session.rows("return_runs", *columns(rows.returned, returned))
                done |= {(row[0], row[1]) for row in found}
            written = [result for result in (*ended, *returned) if (result.run.id, result.run.fence) in done]
            await _add_attempts(session, written)
            over = [result.run for result in ended if (result.run.id, result.run.fence) in done]
            await _free_keys(session, over)
            return done, await _wake_parked(session, over)

    @retried
    async def park(self, runs: Sequence[Run]) -> None:
        """Keep blocked runs away from claims until the run before them ends."""
        if not runs:
            return
        given = columns(lambda run: (run.id, run.fence), sorted(runs, key=lambda run: run.id))
        async with self._db.session() as session:
            await session.rows("park_runs", *given)
            await session.rows("park_runs_behind_holders", *given)

    @retried
    async def request_stop(self, run_ids: Sequence[RunId], reason: Reason) -> list[NodeId | None]:
        """Ask the nodes that hold the runs to stop them; None where nobody holds it."""
        holders = {row[0]: row[1] for row in await self._db.rows("request_stop", sorted(run_ids), reason)}
        self._signals.send(Signal(kind=Kind.STOP, node=node) for node in sorted(set(holders.values())))
        return [holders.get(run_id) for run_id in run_ids]

    @retried
    async def retract(self, runs: Sequence[Run], *, now: datetime) -> list[Retraction]:
        """Take back held runs of paused jobs, the latest slot first, so that none has a later one in its way."""
        answers: dict[RunId, Retraction] = {}
        for run in sorted(runs, key=lambda run: run.slot or run.due_at, reverse=True):
            answers[run.id] = await self._retract(run, now)
        return [answers[run.id] for run in runs]

    async def _retract(self, run: Run, now: datetime) -> Retraction:
        async with self._db.transaction() as session:
            for (gate,) in await session.rows("retract_held", run.id, run.fence, now):
                if gate is not None:
                    await session.rows("wake_parked", [gate], [now])
                return Retraction.TAKEN_BACK
            status = await session.value("job_status", run.job_id)
        return Retraction.OVER if status in (None, "cancelled", "finished") else Retraction.GOES_ON

    async def stops(self, node: NodeId) -> Mapping[RunId, Reason]:
        """The stop requests that are open for runs which a node holds."""
        return {RunId(row[0]): Reason(row[1]) for row in await self._db.rows("stops", node)}

    async def held(self, node: NodeId) -> Mapping[RunId, int]:
        """The runs that a node holds, with their fences."""
        return {RunId(row[0]): row[1] for row in await self._db.rows("held", node)}


def _claim_arguments(request: ClaimRequest) -> tuple[Any, ...]:
    return (
        request.node,
        request.queues,
        request.tasks,
        request.now,
        request.until,
        request.floor or BEGINNING,
        request.limit,
        request.full_gates,
    )


async def _end(place: Database | Session, ended: Sequence[Settled], *, held: bool) -> set[tuple[str, int]]:
    return {(row[0], row[1]) for row in await place.rows("end_runs", held, [rows.ended(result) for result in ended])}


def _has_ties(result: Settled) -> bool:
    """Whether the end of a run concerns more than its own row."""
    run = result.run
    return result.attempt is not None or run.gate is not None or (run.one_shot and run.spec.key is not None)


def _days_of(results: Sequence[Settled]) -> set[date]:
    """The days that something of these results is kept under."""
    ends = {result.run.finished_at for result in results}
    ends |= {result.attempt.ended_at for result in results if result.attempt is not None}
    return {day_of(end) for end in ends if end is not None}


async def _add_attempts(session: Session, results: Sequence[Settled]) -> None:
    attempts = [result.attempt for result in results if result.attempt is not None]
    if attempts:
        await session.rows("add_attempts", *columns(rows.attempt, attempts))


async def _free_keys(session: Session, runs: Sequence[Run]) -> None:
    keyed = [run for run in runs if run.one_shot and run.spec.key is not None]
    if keyed:
        await session.rows("free_keys", *columns(lambda run: (run.owner, run.spec.key, run.job_id), keyed))


async def _wake_parked(session: Session, runs: Sequence[Run]) -> list[datetime]:
    """Let the next parked run of each gate go on; a statement of its own, so that it sees what was parked meanwhile."""
    ends: dict[str, datetime] = {}
    for run in runs:
        if run.gate is not None and run.finished_at is not None:
            ends[run.gate] = max(run.finished_at, ends.get(run.gate, run.finished_at))
    if not ends:
        return []
    gates = sorted(ends)
    return [row[0] for row in await session.rows("wake_parked", gates, [ends[gate] for gate in gates])]
