"""Claiming in PostgreSQL: what each lane has, its share, and one statement that takes the runs."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from time import monotonic
from typing import Any

from horae.core.decisions.fairness import (
    LANES_OF_OWNER,
    MANY_LANES,
    MAX_LANES,
    Lane,
    Offer,
    part_of_lane,
    share_out,
)
from horae.core.decisions.release import Rival
from horae.core.model import NodeId, Run, RunId
from horae.core.values import replace
from horae.ports.store import ClaimRequest, Claims, Contested
from horae.stores.postgres.base import PostgresBase
from horae.stores.postgres.codecs import BEGINNING, ROWS, columns, offered_run
from horae.stores.postgres.connection.database import Database, Session, retried

DECODE_SLICE = 100  # runs that are decoded before other work of the event loop gets its turn
MANY_IDLE = 50  # lanes without anything to claim that are not left to the next `tidy`
PUT_OFF_SECONDS = 1  # between two of these
LOOK_BEYOND = 100  # runs of a full queue that are looked at, because they may overlap
_TIMES = ("next_at", "first_at", "lined_up_at")  # of a claim
# The last columns of `claim`, after those of a run.
_MINE, _ALIVE, _NEXT_AT, _MORE, _FIRST_AT, _LIMITED, _LANES, _LINED_UP_AT, _LEFT_LANES, _LEFT_ATS = range(-10, 0)


class PostgresClaim(PostgresBase):
    """The verb of the store that gives runs to nodes."""

    async def claim(self, request: ClaimRequest) -> Claims:
        if request.among is not None:
            return await self._claim_given(request, list(dict.fromkeys(request.among)))
        claims, complete = await self._claim_known(request)
        if len(self._idle_lanes) >= MANY_IDLE and monotonic() - self._put_off_at > PUT_OFF_SECONDS:
            self._put_off_at = monotonic()  # lanes may have something that only we cannot take: so not every time
            await self._db.rows("put_off_lanes", request.now)
        if len(self._idle_lanes) >= LANES_OF_OWNER // 2:  # there may be more than were listed
            await self._db.rows("look_later", self._idle_lanes, request.now, MANY_LANES)
        if complete:
            return claims
        gates = [run.gate for run in claims.runs if run.gate is not None]  # of each gate only one is taken in a call
        left, full_gates = request.limit - len(claims.runs), (*request.full_gates, *gates)
        again = replace(request, free_gates=(), limit=left, full_gates=full_gates)
        rest, complete = await self._claim_known(again)
        contested = {each.run.id: each for each in (*claims.contested, *rest.contested) if each.run.gate not in gates}
        return replace(
            rest,
            runs=sorted((*claims.runs, *rest.runs), key=_turn),
            contested=list(contested.values()),
            left={**claims.left, **rest.left},
            more=rest.more or request.limit > 0 >= left or (not complete and len(rest.runs) > 0),
            **{name: _earliest(getattr(claims, name), getattr(rest, name)) for name in _TIMES},
        )

    async def _claim_given(self, request: ClaimRequest, ids: Sequence[RunId]) -> Claims:
        """Claim among given runs: first without the locks of limits, then with them what limits have kept back."""
        claims, limited = await self._claim_among(request, ids, ())
        if not limited or not claims.waiting or request.limit <= 0:
            return claims
        gates = [run.gate for run in claims.runs if run.gate is not None]  # of each gate only one is taken in a call
        left, full_gates = request.limit - len(claims.runs), (*request.full_gates, *gates)
        again = replace(request, free_gates=(), limit=left, full_gates=full_gates)
        locked = sorted(limited.intersection(request.queues) if request.queues else limited)
        rest, _ = await self._claim_among(again, list(claims.waiting), locked)
        full = [ROWS.run(row) for row in await self._contested_among(list(rest.waiting), locked, request)]
        behind = await self._contested(request.node, full) if full else []
        contested = {each.run.id: each for each in (*claims.contested, *rest.contested, *behind)}
        return replace(
            rest,
            runs=sorted((*claims.runs, *rest.runs), key=_turn),
            contested=[each for each in contested.values() if each.run.gate not in gates],
            lined_up_at=_earliest(claims.lined_up_at, rest.lined_up_at),
            waiting={run_id: wake_at for run_id, wake_at in rest.waiting.items() if run_id not in contested},
        )

    @retried
    async def _claim_among(
        self, request: ClaimRequest, ids: Sequence[RunId], locked: Sequence[str]
    ) -> tuple[Claims, frozenset[str]]:
        """The answer to a claim of given runs, and the queues that have a limit."""
        given = (
            *(request.node, ids, request.tasks, request.now, request.until, request.queues, request.limit),
            *(request.full_gates, locked, list(request.undecided_gates), request.free_gates),
        )
        if locked:
            async with self._db.transaction() as session:
                await session.rows("lock_limits", locked)
                answer, *found = await session.rows("claim_among", *given)
        else:
            answer, *found = await self._db.rows("claim_among", *given)
        mine, alive, limited, lined_up_at, staying, wake_ats = range(-6, 0)
        blocked = [offered_run(row, None) for row in found if not row[mine]]
        claims = Claims(
            alive=answer[alive],
            runs=await _taken(found, request.node, mine),
            contested=await self._contested(request.node, blocked) if blocked else (),
            lined_up_at=answer[lined_up_at],
            waiting=dict(zip(answer[staying] or (), answer[wake_ats] or (), strict=True)),
        )
        return claims, frozenset(answer[limited] or ())

    async def _contested_among(
        self, ids: Sequence[RunId], limited: Sequence[str], request: ClaimRequest
    ) -> Sequence[Any]:
        """Runs that are due behind another one in a full queue."""
        return await self._db.rows("contested_among", ids, limited, request.tasks, request.now) if ids else ()

    async def _claim_known(self, request: ClaimRequest) -> tuple[Claims, bool]:
        """Claim from the lanes that we know of; returns whether these are all, and all their limits were known."""
        answer, *found = await self._claim(request)
        limited, due = frozenset(answer[_LIMITED] or ()), answer[_LANES] or ()
        beyond = len(due) >= MAX_LANES  # there may be more than these
        if beyond:
            given = (request.until, request.queues, MANY_LANES, LANES_OF_OWNER // 2, MAX_LANES)
            due = await self._db.value("due_lanes_of_each_owner", *given) or due
        complete = self._lanes.keys() >= set(due) and limited <= self._limited
        remaining = zip(answer[_LEFT_LANES] or (), answer[_LEFT_ATS] or (), strict=True)
        left = {self._lanes[lane]: left_at for lane, left_at in remaining if lane in self._lanes}
        await self._learn_due(due)
        self._limited = limited
        blocked = [offered_run(row, None) for row in found if not row[_MINE]]
        if limited and request.limit > 0:
            blocked += await self._beyond_limits(replace(request, left=left), limited, blocked)
        claims = Claims(
            alive=answer[_ALIVE],
            runs=await _taken(found, request.node),
            contested=await self._contested(request.node, blocked) if blocked else (),
            next_at=answer[_NEXT_AT],
            more=answer[_MORE] or (beyond and len(found) > 0),
            first_at=answer[_FIRST_AT],
            lined_up_at=answer[_LINED_UP_AT],
            left=left,
        )
        return claims, complete

    async def _learn_due(self, due: Sequence[int]) -> None:
        """Remember the lanes that are due, and forget the others."""
        new = [lane for lane in due if lane not in self._lanes]
        found = {row[0]: Lane(*row[1:]) for row in await self._db.rows("lanes", new)} if new else {}
        self._lanes = {lane: known for lane in due if (known := self._lanes.get(lane) or found.get(lane)) is not None}

    @retried
    async def _claim(self, request: ClaimRequest) -> list[Any]:
        """Claim, with the limits of queues locked.

        They are locked before gates are written, so that claims never deadlock, and in a statement of its own, so that
        the claim sees the runs that other claims took before.
        """
        locked = sorted(self._limited.intersection(request.queues) if request.queues else self._limited)
        if not locked:
            return await self._take(self._db, request, locked)
        async with self._db.transaction() as session:
            await session.rows("lock_limits", locked)
            return await self._take(session, request, locked)

    async def _take(self, place: Database | Session, request: ClaimRequest, locked: Sequence[str]) -> list[Any]:
        """The answer to a claim, and its runs; a single lane needs no share."""
        wanted = request.queues
        lanes = {ident: lane for ident, lane in self._lanes.items() if not wanted or lane.queue in wanted}
        part = max(part_of_lane(len(lanes), request.limit), 1)
        given = (
            *(request.node, list(lanes), request.tasks, request.now, request.until, request.floor or BEGINNING),
            *(part, request.full_gates, locked, list(request.undecided_gates)),
            [request.left.get(lane, BEGINNING) for lane in lanes.values()],
        )
        offers: list[Offer] = []
        shares = dict.fromkeys(lanes.values(), request.limit)
        if len(lanes) > 1 or request.limit <= 0:
            offers = [Offer(lanes[row[0]], *row[1:]) for row in await place.rows("offers", *given)]
            shares = share_out(offers, request.limit, part=part)
        offered = {offer.lane for offer in offers}
        self._idle_lanes = [ident for ident, lane in lanes.items() if lane not in offered] if len(lanes) > 1 else []
        amounts = [shares.get(lane, 0) for lane in lanes.values()]
        answer, *found = await place.rows(
            *("claim", *given[:6], request.limit, *given[7:], amounts, request.free_gates, request.queues),
            *(MAX_LANES, MANY_LANES),
        )
        if offers:
            answer = list(answer)
            answer[_MORE] = answer[_MORE] or (0 < request.limit <= sum(amounts) and len(offers) > 1)
            answer[_FIRST_AT] = _earliest(answer[_FIRST_AT], *(offer.first_at for offer in offers))
        return [answer, *found]

    async def _beyond_limits(self, request: ClaimRequest, limited: frozenset[str], known: Sequence[Run]) -> list[Run]:
        """Runs that are due behind another one, and were not looked at because their queue is full."""
        lanes = {ident: lane for ident, lane in self._lanes.items() if lane.queue in limited}
        floors = [request.left.get(lane, BEGINNING) for lane in lanes.values()]
        given = ([*lanes], floors, request.tasks, request.now, LOOK_BEYOND)
        found = [ROWS.run(row) for row in await self._db.rows("contested_beyond_limits", *given)]
        seen = {run.id for run in known}
        return [run for run in found if run.id not in seen]

    async def _contested(self, node: NodeId, blocked: Sequence[Run]) -> list[Contested]:
        given = columns(lambda run: (run.id, run.job_id, run.gate, run.due_at), blocked)
        rivals: dict[RunId, list[Rival]] = defaultdict(list)
        for run_id, ident, job_id, started_at, failed in await self._db.rows("rivals", node, *given):
            rivals[run_id].append(Rival(id=ident, job_id=job_id, started_at=started_at, failed=failed))
        return [Contested(run=run, rivals=rivals[run.id]) for run in blocked]


async def _taken(found: Sequence[Any], node: NodeId, mine: int = _MINE) -> list[Run]:
    runs: list[Run] = []
    for first in range(0, len(found), DECODE_SLICE):
        if first:
            await asyncio.sleep(0)
        runs += [offered_run(row, node) for row in found[first : first + DECODE_SLICE] if row[mine]]
    return runs


def _earliest(*times: datetime | None) -> datetime | None:
    return min((each for each in times if each is not None), default=None)


def _turn(run: Run) -> tuple[Any, ...]:
    """The order of the runs of one claim."""
    return -run.spec.priority, run.wake_at, run.due_at, run.id
