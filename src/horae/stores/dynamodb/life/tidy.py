"""Tidying in DynamoDB: parked runs that nothing blocks, lanes that are idle, and hints that are of no use any more."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from horae.aws_api.client import ServiceClient
from horae.core.lifecycle import FINAL, HELD, WAITING
from horae.core.model import Run
from horae.core.signals import Kind, Signal
from horae.stores.dynamodb import times
from horae.stores.dynamodb.claims.rooms import DynamoRooms
from horae.stores.dynamodb.database import DeleteItem, PutItem, counted
from horae.stores.dynamodb.gates import DynamoGates, is_waiting
from horae.stores.dynamodb.items import LATEST, Item, run_of, stamp, state_of, time_of_stamp
from horae.stores.dynamodb.life.plan import plan_ident, plan_key, plan_stamp
from horae.stores.dynamodb.lines import HELD_LONG, PARKED, PAUSED, PLAN, Hint, Line

LOOK_AT_GATES = 1000  # in one `tidy`, for parked runs that nothing blocks
SETTLED = timedelta(minutes=2)  # how far behind now a lane is swept
IDLE = timedelta(minutes=10)  # without anything, after which a lane is put off
ANNOUNCED = timedelta(seconds=30)  # between an announcement and its deed; longer than creators remember a lane
WORTH = timedelta(minutes=5)  # by which the low end of a lane must rise to be worth a write
SWEEP_EVERY = 30.0  # seconds between two looks of a process at all lanes
SWEEP = 1000  # hints of a lane that are looked at in one `tidy`
BEGINNING = ""


class DynamoTidy(DynamoGates, DynamoRooms):
    """The verb of the store that tidies."""

    def __init__(self, url: str, *, client: ServiceClient | None = None) -> None:
        super().__init__(url, client=client)
        self._swept_at = -SWEEP_EVERY
        self._looked_to = {PARKED: BEGINNING, PAUSED: BEGINNING, HELD_LONG: BEGINNING}

    @counted
    async def tidy(self, *, now: datetime) -> int:
        woken = await self._free_strays() + await self._tidy_parked(now)
        if times.steady() - self._swept_at >= SWEEP_EVERY:
            self._swept_at = times.steady()
            await self._sweep_all(now)
        if woken:
            self._tell([Signal(kind=Kind.DUE, at=now)])
        return woken

    async def _sweep_all(self, now: datetime) -> None:
        """Tidy what can wait: lanes, what is aside of them, and queues with a limit."""
        for line in (PAUSED, HELD_LONG):
            await self._tidy_aside(line)
        directory = await self._lines.directory()
        for each in directory.lanes:
            await self._tidy_lane(each, now)
        await self._tidy_plan(now)
        await self._tidy_rooms(queue for queue, known in directory.settings.items() if known.concurrency is not None)

    # --- what is aside

    async def _tidy_parked(self, now: datetime) -> int:
        """Wake the first parked runs of gates if nothing blocks them; returns how many."""
        waiting = await self._tidy_aside(PARKED)
        woken = 0
        for gate in dict.fromkeys(run.gate for run in waiting if run.gate is not None):
            found = await self._gate(gate)
            first = next((run for run in found.members if run.id in found.parked and run.state in WAITING), None)
            if first is None or any(run.state in HELD for run in found.members):
                continue
            if first.id == found.members[0].id and await self._unpark(first, now) is not None:
                woken += 1
        return woken

    async def _tidy_aside(self, line: str) -> list[Run]:
        """Delete hints of runs that ended, or are held, from a page of a line; returns the runs that wait."""
        hints = await self._lines.read_part(f"{line}#0", self._looked_to[line], limit=LOOK_AT_GATES)
        self._looked_to[line] = hints[-1].at + "0" if len(hints) == LOOK_AT_GATES else BEGINNING
        rows = {item["id"]["S"]: item for item in await self._rows([hint.ident for hint in hints])}
        useless = FINAL if line == HELD_LONG else FINAL | HELD
        over = [hint for hint in hints if hint.ident in rows and state_of(rows[hint.ident]) in useless]
        await self._db.write([DeleteItem(self._db.names.due, hint.key) for hint in over])
        return [run_of(item) for item in rows.values() if state_of(item) in WAITING]

    # --- lanes

    async def _tidy_lane(self, line: Line, now: datetime) -> None:
        """Raise the low end of a lane past what is over, and put it off when it is idle; both are announced first."""
        after = replace(line)
        settled = stamp(now - SETTLED)
        if line.rising is None:
            if time_of_stamp(settled) - time_of_stamp(line.low) > WORTH:
                after.rising = settled
        elif time_of_stamp(line.rising) + SETTLED + ANNOUNCED <= now:
            after.low, after.rising = await self._sweep(line, line.rising), None
        if line.next <= settled:
            await self._consider_putting_off(line, after, now)
        if after != line:
            await self._lines.change(line, after)

    async def _tidy_plan(self, now: datetime) -> None:
        """Raise the low end of the line of planners past what was planned; it is announced first."""
        line = await self._lines.existing(PLAN)
        if line is None:
            return
        after = replace(line)
        if line.rising is None:
            if now - SETTLED - time_of_stamp(line.low) > WORTH:
                after.rising = stamp(now - SETTLED)
        elif time_of_stamp(line.rising) + SETTLED + ANNOUNCED <= now:
            hints = await self._lines.read(line, line.low, line.rising, limit=SWEEP)
            keys = [plan_key(ident) for ident in dict.fromkeys(hint.ident for hint in hints)]
            rows = {plan_ident(item): plan_stamp(item) for item in await self._db.batch_get(self._db.names.jobs, keys)}
            still = (hint.at[:20] for hint in hints if rows.get(hint.ident) == hint.at[:20])
            reached = line.rising if len(hints) < SWEEP else hints[-1].at[:20]
            after.low, after.rising = next(still, reached), None
        if after != line:
            await self._lines.change(line, after)

    async def _consider_putting_off(self, line: Line, after: Line, now: datetime) -> None:
        first = await self._lines.read(line, line.low, limit=1)
        if first and first[0].at[:20] <= stamp(now):
            recent = await self._lines.read(line, stamp(now - IDLE), limit=1)
            low_end = await self._lines.read(line, line.low, stamp(now), limit=SWEEP)
            busy = bool(recent) and recent[0].at[:20] <= stamp(now)
            if busy or len(low_end) == SWEEP or await self._alive(low_end):
                after.closing = None
                return
            first = recent
        if line.closing is None:
            after.closing = stamp(now)
        elif time_of_stamp(line.closing) + ANNOUNCED <= now:
            after.next, after.closing = (first[0].at[:20] if first else LATEST), None

    async def _alive(self, hints: Sequence[Hint]) -> bool:
        """Whether any run of some hints has not ended and still wakes when they say."""
        items = await self._rows([hint.ident for hint in hints])
        return any(state_of(item) not in FINAL for item in items)

    async def _sweep(self, line: Line, high: str) -> str:
        """Look at the oldest hints of a lane; returns up to where none is of use.

        A run that is held for long gets a hint elsewhere. Where an old run still waits, useless hints behind it are
        deleted, because the low end cannot pass it.
        """
        hints = await self._lines.read(line, line.low, high, limit=SWEEP)
        rows = {item["id"]["S"]: item for item in await self._rows(list({hint.ident: None for hint in hints}))}
        low, stopped = line.low, False
        useless: list[Hint] = []
        held: list[PutItem] = []
        for hint in hints:
            item = rows.get(hint.ident)
            if item is not None and _is_true(hint, item):
                if is_waiting(item, state_of(item)):
                    stopped = True
                    continue
                if state_of(item) in HELD:
                    held.append(self._held_long(run_of(item)))
            if stopped:
                useless.append(hint)
            else:
                low = hint.at[:20]
        await self._db.write(held)
        await self._db.write([DeleteItem(self._db.names.due, hint.key) for hint in useless])
        return high if not stopped and len(hints) < SWEEP else low

    def _held_long(self, run: Run) -> PutItem:
        put = self._lines.aside(HELD_LONG, run)
        put.item["at"]["S"] = stamp(run.wake_at) + run.id
        return put


def _is_true(hint: Hint, item: Item) -> bool:
    """Whether a run still wakes when a hint says."""
    return stamp(run_of(item).wake_at) == hint.at[:20]
