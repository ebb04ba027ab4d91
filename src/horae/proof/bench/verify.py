"""Checks in the store that every job of a benchmark succeeded once, and that no guarantee was broken."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import msgspec

from horae.core.lifecycle import FINAL
from horae.core.model import Job, JobId, Run, State
from horae.core.schedule.evaluate import count_between
from horae.core.schedule.types import Every
from horae.ports.reader import Listing, RunFilter
from horae.ports.store import Store
from horae.proof.bench.load import FAR, CronLoad
from horae.proof.bench.tasks import once, slot
from horae.proof.checking import History, Tolerance, violations
from horae.proof.checking.listing import run_pages

PAGE = 1_000
JUDGED = 100_000  # runs that are judged one by one; more are only counted
READERS = 4  # ledgers that are read concurrently
MOST = 20  # problems in a report
_LIVE = frozenset(State) - FINAL
_TICK = timedelta(microseconds=1)

OnRead = Callable[[int], None]


class _Numbered(msgspec.Struct):
    """The parameters of a one-shot."""

    n: int


_number = msgspec.json.Decoder(_Numbered).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotCounts:
    """How the requested slots ended."""

    expected: int
    run: int
    skipped: int

    @property
    def missing(self) -> int:
        return self.expected - self.run - self.skipped


async def no_live_runs(store: Store, task: str, *, before: datetime) -> bool:
    """Whether no run of a task that is due before a moment is live."""
    return not (await _live_runs(store, task, before)).items


async def all_slots_fired(store: Store, job_ids: Sequence[JobId], *, to: datetime) -> bool:
    """Whether every slot before a moment has been fired."""
    return all([job.next_fire_at is None or job.next_fire_at >= to async for job in _recurring(store, job_ids)])


class Verification:
    """Reads a store whose nodes have stopped, and collects problems."""

    def __init__(self, store: Store, *, now: datetime, tolerance: Tolerance) -> None:
        self._store = store
        self._now = now
        self._tolerance = tolerance
        self.problems: list[str] = []

    def expect(self, condition: bool, problem: str) -> None:
        """Add a problem unless the condition holds."""
        if not condition and len(self.problems) < MOST:
            self.problems.append(problem)

    async def once_each(self, submitted: int, on_read: OnRead) -> int:
        """Check that every one-shot has exactly one run and that it succeeded; return how many succeeded."""
        await self._expect_no_live_runs(once.name, before=self._now + FAR / 2)
        seen, states, read = bytearray(submitted), Counter[State](), 0
        async for page in run_pages(self._store, RunFilter(states=FINAL, task=once.name), limit=PAGE):
            for run in page:
                states[run.state] += 1
                self._mark(seen, _number(run.spec.params).n)
            if read < JUDGED:
                await self._judge(History(now=self._now, runs=page))
            read += len(page)
            on_read(read)
        self.expect(read == submitted, f"the store has {read} ended jobs, not {submitted}")
        self.expect(seen.count(1) == submitted, f"{submitted - seen.count(1)} jobs have no ended run, or several")
        self.expect(states[State.SUCCEEDED] == read, f"not all jobs succeeded: {_counted(states)}")
        return states[State.SUCCEEDED]

    async def slots(self, load: CronLoad, on_read: OnRead) -> SlotCounts:
        """Check that every slot is accounted for once; return how the slots ended."""
        await self._expect_no_live_runs(slot.name, before=load.end_at)
        jobs = [job async for job in _recurring(self._store, load.job_ids)]
        self.expect(len(jobs) == load.rate, f"the store has {len(jobs)} recurring jobs, not {load.rate}")
        ran = skipped = read = 0
        remaining = iter(jobs)

        async def read_some() -> None:
            nonlocal ran, skipped, read
            for job in remaining:
                outcomes = await self._slot_outcomes(job, load.seconds)
                ran, skipped, read = ran + outcomes[State.SUCCEEDED], skipped + outcomes[State.SKIPPED], read + 1
                on_read(read)

        await asyncio.gather(*(read_some() for _ in range(READERS)))
        slots = SlotCounts(expected=load.submitted, run=ran, skipped=skipped)
        self.expect(not slots.missing, f"{slots.missing} slots are not accounted for")
        return slots

    async def _slot_outcomes(self, job: Job, seconds: int) -> Counter[State]:
        """Judge the ledger of a job, and return how its slots in the time ended."""
        assert isinstance(job.schedule, Every)
        start, last = job.schedule.anchor, job.schedule.anchor + timedelta(seconds=seconds) - _TICK
        ledger = await self._store.ledger(job.id, start=job.created_at, end=last, limit=seconds + 1)
        self.expect(not ledger.backfills, f"job_{job.id} still has slots to catch up with")
        await self._judge(
            History(now=last, jobs=[job], runs=ledger.runs, skips=ledger.skips, backfills=ledger.backfills)
        )
        outcomes = Counter(run.state for run in ledger.runs)
        for skipped in ledger.skips:
            inside = max(skipped.start, start), min(skipped.end, last) + _TICK
            outcomes[State.SKIPPED] += count_between(job.schedule, *inside)
        return outcomes

    async def _judge(self, history: History) -> None:
        """Judge runs by every guarantee, except that dead letters are listed."""
        failed = frozenset(run.id for run in history.runs if run.state is State.FAILED)
        attempts = await self._store.attempts([run.id for run in history.runs])
        self.expect(not attempts, f"{len(attempts)} runs have attempts that did not succeed")
        for found in violations(replace(history, attempts=attempts, dead_letters=failed), self._tolerance):
            self.expect(False, f"{found.code}: {found.subject}: {found.detail}")

    async def _expect_no_live_runs(self, task: str, *, before: datetime) -> None:
        alive = await _live_runs(self._store, task, before)
        self.expect(not alive.items, "some runs have not ended")

    def _mark(self, seen: bytearray, number: int) -> None:
        if number < len(seen):
            seen[number] = min(seen[number] + 1, 255)
        else:
            self.expect(False, "a job of the backlog has ended")


async def _recurring(store: Store, job_ids: Sequence[JobId]) -> AsyncIterator[Job]:
    for start in range(0, len(job_ids), PAGE):
        found = await store.jobs(job_ids[start : start + PAGE])
        for job in found.values():
            if job.recurring:
                yield job


async def _live_runs(store: Store, task: str, before: datetime) -> Listing[Run]:
    return await store.list_runs(RunFilter(states=_LIVE, task=task, end_at=before), cursor=None, limit=1)


def _counted(states: Counter[State]) -> str:
    return ", ".join(f"{count} {state}" for state, count in states.most_common())
