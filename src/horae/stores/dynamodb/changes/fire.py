"""Firings of jobs in DynamoDB that do nothing but make runs, as nearly all do: without a transaction."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from horae.core.changes import Change, JobMoved, JobUnchanged
from horae.core.lifecycle import FINAL, WAITING
from horae.core.model import Job, Run
from horae.stores.dynamodb.changes.guards import NamedRows, found_of, job_key
from horae.stores.dynamodb.database import ConditionalStatement, Did, PutItem, change
from horae.stores.dynamodb.gates import DynamoGates, Place, is_item_gate, member_item, place_of
from horae.stores.dynamodb.items import NULL, Item, job_of_item, live_of, moment, packed, state_of, text, time_of
from horae.stores.dynamodb.pending import can_be_pending, pending_of

FIRST_PLACE: Place = (datetime.min.replace(tzinfo=UTC), "")  # before every run


class DynamoFire(DynamoGates):
    """Hints first, then each job by one conditional statement that keeps its new runs, then these runs."""

    async def _fire(self, changes: Sequence[tuple[int, Change]], rows: NamedRows) -> set[int]:
        """Write the plain firings whose guards hold; returns which of the changes were written."""
        firings = {place: runs for place, each in changes if (runs := _fired_by(each, rows))}
        if not firings:
            return set()
        moves = {place: _move_of(each) for place, each in changes if place in firings}
        ended, last = await self._members_of_jobs([rows.jobs[move.id] for move in moves.values()])
        firings = {place: runs for place, runs in firings.items() if min(map(place_of, runs)) > last(moves[place].id)}
        await self._db.write(await self._before_firing([run for runs in firings.values() for run in runs], moves))
        statements = [
            self._move(moves[place], rows.jobs[moves[place].id], runs, ended) for place, runs in firings.items()
        ]
        did = await self._db.attempt(statements)
        written = {place for place, done in zip(firings, did, strict=True) if done is Did.DONE}
        doubtful = [place for place, done in zip(firings, did, strict=True) if done is Did.DOUBT]
        written |= await self._were_written({place: firings[place] for place in doubtful}, moves)
        await self._insert_fired([run for place in written for run in firings[place]])
        return written

    async def _before_firing(self, runs: Sequence[Run], moves: Mapping[int, JobMoved]) -> list[PutItem]:
        """What is written before the jobs: hints of the runs and of the next plans, and places in gates."""
        members = [PutItem(self._db.names.meta, member_item(run)) for run in runs if is_item_gate(run.gate)]
        plans = [(move.plan_at, move.id) for move in moves.values() if move.plan_at is not None]
        hints = [await self._lines.plan_hint(plan_at, job_id) for plan_at, job_id in plans]
        return [*await self._lines.hints(runs), *hints, *members]

    async def _members_of_jobs(self, jobs: Sequence[Item]) -> tuple[set[str], Callable[[str], Place]]:
        """Which of the runs of jobs have ended, and the place of the last that waits: plain firings come after it."""
        ids = {ident for item in jobs for ident in live_of(item)}
        keys = [{"id": text(ident)} for ident in sorted(ids)]
        rows = await self._db.batch_get(self._db.names.runs, keys, attributes=("id", "job", "s", "d"))
        alive = [item for item in rows if state_of(item) not in FINAL]
        lasts: dict[str, Place] = {}
        for item in alive:
            place = (time_of(item["d"]), item["id"]["S"])
            if state_of(item) in WAITING and "job" in item:
                lasts[item["job"]["S"]] = max(lasts.get(item["job"]["S"], place), place)
        return ids - {item["id"]["S"] for item in alive}, lambda job_id: lasts.get(job_id, FIRST_PLACE)

    def _move(self, moved: JobMoved, item: Item, runs: Sequence[Run], ended: set[str]) -> ConditionalStatement:
        live = [ident for ident in live_of(item) if ident not in ended]
        values: Item = {
            "nf": NULL if moved.next_fire_at is None else moment(moved.next_fire_at),
            "pa": NULL if moved.plan_at is None else moment(moved.plan_at),
            "s": text(moved.status.value),
            "live": packed([*live, *(run.id for run in runs)]),
            **pending_of(runs),
        }
        where = {name: item[name] for name in ("r", "nf", "s", "live")}
        return change(self._db.names.jobs, job_key(moved.id), values, where)

    async def _were_written(self, firings: Mapping[int, Sequence[Run]], moves: Mapping[int, JobMoved]) -> set[int]:
        """Which firings an earlier send has written, of those in doubt."""
        items = await self._db.batch_get(self._db.names.jobs, [job_key(moves[place].id) for place in firings])
        live = {item["job"]["S"]: set(live_of(item)) for item in items}
        return {
            place for place, runs in firings.items() if {run.id for run in runs} <= live.get(moves[place].id, set())
        }


def _move_of(change_: Change) -> JobMoved:
    """The move of the job in a plain firing."""
    [moved] = [put for put in change_.puts if isinstance(put, JobMoved)]
    return moved


def _fired_by(change_: Change, rows: NamedRows) -> Sequence[Run]:
    """The runs of a change that is a plain firing and holds; empty for all others."""
    if len(change_.guards) != 1 or change_.deletes or change_.gates_left:
        return ()
    [guard] = change_.guards
    if not isinstance(guard, JobUnchanged) or guard.next_fire_at is None or (item := rows.jobs.get(guard.id)) is None:
        return ()
    runs = [put for put in change_.puts if isinstance(put, Run)]
    if len(runs) + 1 != len(change_.puts) or not any(isinstance(put, JobMoved) for put in change_.puts):
        return ()
    job: Job = job_of_item(item)
    if not can_be_pending(runs, job) or found_of(change_, rows).admit(change_) is not None:
        return ()
    return runs
