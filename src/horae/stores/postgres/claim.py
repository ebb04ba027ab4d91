"""Claiming in PostgreSQL: one statement, and before it the locks of queues that have a limit."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from horae.core.model import NodeId, Run, RunId
from horae.core.release import Rival
from horae.core.values import replace
from horae.ports.store import ClaimRequest, Claims, Contested
from horae.stores.postgres.base import PostgresBase
from horae.stores.postgres.codecs import BEGINNING, ROWS, columns, offered_run
from horae.stores.postgres.database import retried

DECODE_SLICE = 100  # runs that are decoded before other work of the event loop gets its turn
LOOK_BEYOND = 100  # runs behind a full queue that are looked at in case they overlap
_ID = 0  # the first column of `claim`
# The last ones, after those of a run.
_MINE, _ALIVE, _NEXT_AT, _MORE, _FIRST_AT, _LIMITED, _LINED_UP_AT = range(-7, 0)


class PostgresClaim(PostgresBase):
    """The verb of the store that gives runs to nodes."""

    async def claim(self, request: ClaimRequest) -> Claims:
        """Take runs for a node: by priority, from queues in turn, of a queue from owners in turn, by wake-up time."""
        known = self._limited
        answer, *found = await self._claim(request, known)
        answers = [answer]
        limited = self._learn_limits(request.queues, answer[_LIMITED] or ())
        runs = await _taken(found, request.node)
        if not limited <= known:  # of queues whose limit we did not know, nothing came
            rest = replace(request, free_gates=(), limit=request.limit - len(runs))
            answer, *beside = await self._claim(rest, limited)
            answers.append(answer)
            runs = sorted((*runs, *await _taken(beside, request.node)), key=_turn)
            found = list({row[_ID]: row for row in (*found, *beside)}.values())
        blocked = [offered_run(row, None) for row in found if not row[_MINE]]
        if limited and request.limit > 0:
            blocked += await self._beyond_limits(request, limited, blocked)
        return Claims(
            alive=answer[_ALIVE],
            runs=runs,
            contested=await self._contested(request.node, blocked) if blocked else (),
            next_at=answer[_NEXT_AT],
            more=any(each[_MORE] for each in answers),
            first_at=_earliest(answers, _FIRST_AT),
            lined_up_at=_earliest(answers, _LINED_UP_AT),
        )

    def _learn_limits(self, queues: Sequence[str], limited: Sequence[str]) -> frozenset[str]:
        """Remember which of the queues that were asked for have a limit, and what is known of the others."""
        others = self._limited.difference(queues) if queues else frozenset()
        self._limited = others.union(limited)
        return frozenset(limited)

    @retried
    async def _claim(self, request: ClaimRequest, limited: frozenset[str]) -> list[Any]:
        """Claim, with the limits of queues locked.

        That is done before gates are written, so that claims never wait for each other in a ring, and in a statement of
        its own, so that the claim sees whatever others have taken before us.
        """
        locked = sorted(limited.intersection(request.queues) if request.queues else limited)
        arguments = (
            request.node,
            request.queues,
            request.tasks,
            request.now,
            request.until,
            request.floor or BEGINNING,
            request.limit,
            request.full_gates,
            locked,
            request.free_gates,
            list(request.undecided_gates),
        )
        if not locked:
            return await self._db.rows("claim", *arguments)
        async with self._db.transaction() as session:
            await session.rows("lock_limits", locked)
            return await session.rows("claim", *arguments)

    async def _beyond_limits(self, request: ClaimRequest, limited: frozenset[str], known: Sequence[Run]) -> list[Run]:
        """Runs that are due behind another one, and were not looked at because their queue is full."""
        given = (sorted(limited), request.tasks, request.now, LOOK_BEYOND)
        found = [ROWS.run(row) for row in await self._db.rows("contested_beyond_limits", *given)]
        seen = {run.id for run in known}
        return [run for run in found if run.id not in seen]

    async def _contested(self, node: NodeId, blocked: Sequence[Run]) -> list[Contested]:
        given = columns(lambda run: (run.id, run.job_id, run.gate, run.due_at), blocked)
        rivals: dict[RunId, list[Rival]] = defaultdict(list)
        for run_id, job_id, started_at, failed in await self._db.rows("rivals", node, *given):
            rivals[run_id].append(Rival(job_id=job_id, started_at=started_at, failed=failed))
        return [Contested(run=run, rivals=rivals[run.id]) for run in blocked]


async def _taken(found: Sequence[Any], node: NodeId) -> list[Run]:
    runs: list[Run] = []
    for first in range(0, len(found), DECODE_SLICE):
        if first:
            await asyncio.sleep(0)
        runs += [offered_run(row, node) for row in found[first : first + DECODE_SLICE] if row[_MINE]]
    return runs


def _earliest(answers: Sequence[Any], column: int) -> datetime | None:
    return min((each[column] for each in answers if each[column] is not None), default=None)


def _turn(run: Run) -> tuple[Any, ...]:
    """By what runs of one claim are ordered."""
    return -run.spec.priority, run.wake_at, run.due_at, run.id
