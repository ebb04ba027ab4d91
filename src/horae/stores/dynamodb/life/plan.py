"""What planners should look at in DynamoDB: jobs and backfills, by the hints of the plan line."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from horae.aws_api.client import ServiceClient
from horae.core.decisions.firing import MAX_UNSTARTED, Due
from horae.core.lifecycle import FINAL
from horae.core.model import Backfill, Job, JobId, State, shard_of
from horae.ports.store import Plannable
from horae.stores.dynamodb import times
from horae.stores.dynamodb.changes.guards import job_key, run_key
from horae.stores.dynamodb.database import counted
from horae.stores.dynamodb.gates import DynamoGates
from horae.stores.dynamodb.items import NULL, Item, job_of_item, live_of, stamp, state_of, text, time_of
from horae.stores.dynamodb.lines import PLAN, Hint, Line
from horae.stores.dynamodb.small_items import backfill_of

PAGE = 500  # hints that are read at once
LATE = timedelta(seconds=5)  # by which others may write a hint later than its time
LOOK_EVERY = 10.0  # seconds between two looks at everything
_UNSTARTED = frozenset({State.SCHEDULED, State.CLAIMED})


class PlanFloor:
    """Where planners begin to read: after hints that were of no use the last time, but for a full look now and then."""

    def __init__(self) -> None:
        self._low = ""
        self._shards: frozenset[int] = frozenset()
        self._looked_at = -LOOK_EVERY

    def begin(self, low: str, shards: frozenset[int], planned: str) -> str:
        """Return where to begin; `planned` is the earliest hint that this process has written since."""
        if shards != self._shards or times.steady() - self._looked_at >= LOOK_EVERY:
            self._shards, self._looked_at = shards, times.steady()
            return low
        return max(low, min(self._low, planned))

    def end(self, reached: str, found: Sequence[str]) -> None:
        """Note up to where nothing is left but what was found."""
        self._low = min([reached, *found])


class DynamoPlan(DynamoGates):
    """The verb of the store that planners ask."""

    def __init__(self, url: str, *, client: ServiceClient | None = None) -> None:
        super().__init__(url, client=client)
        self._floor = PlanFloor()

    @counted
    async def plannable(self, shards: Sequence[int], *, now: datetime, limit: int) -> Plannable:
        line = await self._lines.existing(PLAN)
        if line is None:
            return Plannable(jobs=(), backfills=(), next_at=None)
        wanted = frozenset(shards)
        jobs: dict[str, Item] = {}
        fills: dict[str, Item] = {}
        high, later, complete = stamp(now), None, False
        low = self._floor.begin(line.low, wanted, self._lines.take_planned())
        while len(jobs) < limit and len(fills) < limit:
            hints = await self._lines.read(line, low, limit=PAGE, of=wanted)
            due = [hint for hint in hints if hint.at[:20] <= high and _shard(hint) in wanted]
            found = await self._plans(due)
            jobs |= {item["job"]["S"]: item for item in found if item["sk"]["S"] == "job"}
            fills |= {item["sk"]["S"]: item for item in found if item["sk"]["S"] != "job"}
            later = next((hint for hint in hints if hint.at[:20] > high), None)
            if complete := later is not None or len(hints) < PAGE:
                break
            low = hints[-1].at + "0"
        stamps = [at for item in (*jobs.values(), *fills.values()) if (at := plan_stamp(item)) is not None]
        self._floor.end(stamp(now - LATE) if complete else "", stamps)
        next_at = None if later is None else await self._next_plan_at(line, wanted, later)
        return await self._plannable(list(jobs.values())[:limit], list(fills.values())[:limit], next_at)

    async def _plannable(self, jobs: Sequence[Item], fills: Sequence[Item], next_at: datetime | None) -> Plannable:
        known = {item["job"]["S"]: item for item in jobs}
        missing = {item["job"]["S"] for item in fills} - known.keys()
        others = await self._db.batch_get(self._db.names.jobs, [job_key(ident) for ident in sorted(missing)])
        known |= {item["job"]["S"]: item for item in others}
        await self._complete(list(known.values()))
        due = await self._with_counts(list(known.values()))
        backfills: list[tuple[Backfill, Due]] = [
            (backfill_of(item), due[JobId(item["job"]["S"])]) for item in fills if item["job"]["S"] in known
        ]
        return Plannable(
            jobs=[due[JobId(item["job"]["S"])] for item in sorted(jobs, key=lambda item: int(item["pa"]["N"]))],
            backfills=sorted(backfills, key=lambda pair: pair[0].plan_at),
            next_at=next_at,
        )

    async def _plans(self, hints: Iterable[Hint]) -> list[Item]:
        """The jobs and backfills of hints that are to be planned now; the others were planned before."""
        wanted = {hint.ident: hint.at[:20] for hint in hints}  # of several hints the last
        found = await self._db.batch_get(self._db.names.jobs, [plan_key(ident) for ident in wanted])
        return [item for item in found if (at := plan_stamp(item)) is not None and at <= wanted[plan_ident(item)]]

    async def _next_plan_at(self, line: Line, shards: frozenset[int], first: Hint) -> datetime | None:
        """When there is something to plan again: the first hint that is still true."""
        low = first.at
        while hints := await self._lines.read(line, low, limit=20, of=shards):
            mine = [hint for hint in hints if _shard(hint) in shards]
            found = await self._db.batch_get(
                self._db.names.jobs, [plan_key(ident) for ident in {h.ident for h in mine}]
            )
            stamps = {plan_ident(item): plan_stamp(item) for item in found}
            for hint in mine:
                if stamps.get(hint.ident) == hint.at[:20]:
                    return hint.wake_at
            low = hints[-1].at + "0"
        return None

    async def _with_counts(self, jobs: Sequence[Item]) -> dict[JobId, Due]:
        """Jobs with how many of their runs are alive."""
        ids = {ident for item in jobs for ident in live_of(item)}
        keys = [run_key(ident) for ident in sorted(ids)]
        rows = await self._db.batch_get(self._db.names.runs, keys, attributes=("id", "s"))
        states = {item["id"]["S"]: state_of(item) for item in rows}
        due: dict[JobId, Due] = {}
        for item in jobs:
            job: Job = job_of_item(item)
            live = [states[ident] for ident in live_of(item) if ident in states and states[ident] not in FINAL]
            unstarted = sum(state in _UNSTARTED for state in live)
            due[job.id] = Due(job=job, unstarted=min(unstarted, MAX_UNSTARTED), live=min(len(live), MAX_UNSTARTED))
        return due


def plan_stamp(item: Item) -> str | None:
    """When a job or backfill is to be planned; None for never."""
    return stamp(time_of(item["pa"])) if "N" in item.get("pa", NULL) else None


def plan_ident(item: Item) -> str:
    """How the plan line names a job or backfill."""
    job_id, sort_key = item["job"]["S"], item["sk"]["S"]
    return job_id if sort_key == "job" else f"{job_id}+{sort_key.removeprefix('fill#')}"


def plan_key(ident: str) -> Item:
    job_id, _, backfill = ident.partition("+")
    return {"job": text(job_id), "sk": text(f"fill#{backfill}" if backfill else "job")}


def _shard(hint: Hint) -> int:
    return shard_of(JobId(hint.ident[:32]))
