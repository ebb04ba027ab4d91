"""Reads and judges a whole store in bounded memory, also while its nodes are running.

Rows that change between two reads can look wrong for a moment. So each violation is read again, twice, and reported
only if it is still there.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from horae.core.lifecycle import FINAL
from horae.core.model import Job, JobId, Run, RunId, State
from horae.core.records import KeyHolder, ScheduleTrail
from horae.lookup import find_job, find_run
from horae.ports.events import EventLog
from horae.ports.reader import Reader, RunFilter
from horae.proof.checking.findings import Code, Tolerance, Violation, of_run, run_name
from horae.proof.checking.listing import PAGE, all_runs, recurring_jobs
from horae.proof.checking.store.belonging import (
    judge_belonging,
    judge_has_job,
    judge_key_of_job,
    judge_key_of_run,
    judge_revision,
)
from horae.proof.checking.store.dead_letters import judge_listing, judge_resolution, refers_to
from horae.proof.checking.store.end_events import end_events
from horae.proof.checking.store.gates import GatedRun, GateJudge, judge_pair
from horae.proof.checking.store.runs import judge_run
from horae.proof.checking.store.slots import (
    SlotJudge,
    end_was_unknown,
    had_started,
    skipped_without_overlap,
    was_running,
)

AHEAD = timedelta(hours=1)  # how far ahead of now runs are read; planners create them much later
REREADS = 2
_TICK = timedelta(microseconds=1)
_LIVE = frozenset(State) - FINAL

JudgeAgain = Callable[[Sequence[Violation]], Awaitable[list[Violation]]]


class CheckedStore(Reader, Protocol):
    """The part of a store that the checker uses; it never writes."""

    @property
    def events(self) -> EventLog: ...

    async def time(self) -> datetime: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckCounts:
    """What was read and found so far."""

    jobs: int = 0  # only the recurring ones
    runs: int = 0
    violations: int = 0


class Checker:
    """Checks a store once."""

    def __init__(
        self,
        store: CheckedStore,
        *,
        since: datetime | None = None,
        tolerance: Tolerance | None = None,
        pause: float = 0.3,
        progress: Callable[[CheckCounts], None] = lambda counts: None,
        now: Callable[[], Awaitable[datetime]] | None = None,
    ) -> None:
        """Set up a check; nothing before `since` is judged.

        `pause` is the number of seconds before a violation is read again. `now` defaults to the time of the store.
        """
        self._store = store
        self._now = now or store.time
        self._since = since
        self._tolerance = tolerance or Tolerance()
        self._pause = pause
        self._progress = progress
        self._last: RunId | None = None
        self.counts = CheckCounts()

    async def violations(self) -> AsyncIterator[Violation]:
        """Yield every violation as it is found: first those of jobs and their slots, then those of runs."""
        async for violation in self._all():
            self._count(violations=1)
            yield violation

    async def _all(self) -> AsyncIterator[Violation]:
        async for job in recurring_jobs(self._store):
            for violation in await self._check_job(job):
                yield violation
            self._count(jobs=1)
        gates = GateJudge(self._tolerance)
        async for page in self._pages():
            for violation in await self._check_page(page, gates):
                yield violation
            self._count(runs=len(page))

    def _count(self, jobs: int = 0, runs: int = 0, violations: int = 0) -> None:
        old = self.counts
        self.counts = replace(old, jobs=old.jobs + jobs, runs=old.runs + runs, violations=old.violations + violations)
        self._progress(self.counts)

    # --- jobs and their slots

    async def _check_job(self, job: Job) -> list[Violation]:
        async def judge_again(_: Sequence[Violation]) -> list[Violation]:
            again = await find_job(self._store, job.id, owner=None)
            return await self._judge_job(again) if again is not None else []

        return await self._confirmed(await self._judge_job(job), judge_again)

    async def _judge_job(self, job: Job) -> list[Violation]:
        trail = next(iter(await self._store.records(ScheduleTrail, owner=job.owner, key=job.id)), None)
        found = [*await self._slots(job, trail), *judge_revision(job, trail)]
        if job.spec.key is not None:
            found += judge_key_of_job(job, await self._holder_of(job.owner, job.spec.key))
        return found

    async def _holder_of(self, owner: str, key: str) -> JobId | None:
        """The job that holds a key."""
        holders = await self._store.records(KeyHolder, owner=owner, key=key)
        return holders[0].job_id if holders else None

    async def _slots(self, job: Job, trail: ScheduleTrail | None) -> list[Violation]:
        now = await self._now()
        judge = SlotJudge(job, trail, now=now, since=self._since, tolerance=self._tolerance)
        start, end = max(job.created_at, self._since or job.created_at), now + AHEAD
        found: list[Violation] = []
        while start <= end:
            page = await self._store.ledger(job.id, start=start, end=end, limit=PAGE)
            known_to = end
            if len(page.runs) >= PAGE and (last := page.runs[-1].slot) is not None:
                # The last slot may have more runs than fit, unless it fills the page alone.
                known_to = last - _TICK if page.runs[0].slot != last else last
            found += judge.read(page, end=known_to)
            start = known_to + _TICK
        found += judge.end()
        return [violation for violation in found if not await self._is_explained(violation)]

    async def _is_explained(self, violation: Violation) -> bool:
        """Whether a skipped slot overlapped a run that is not in the ledger, or whose result reached the store late."""
        if violation.code is not Code.SKIPPED_WITHOUT_CAUSE:
            return False
        run = await find_run(self._store, _run_id(violation), owner=None)
        if run is None or violation != skipped_without_overlap(run):
            return False
        others = await self._others(run, frozenset(State) - {State.SKIPPED})
        # A run may have started before it was skipped: on a node that died before it could write that, and on any node
        # of an earlier release.
        skipped = await self._others(run, frozenset({State.SKIPPED}))
        others += [other for other in skipped if other.crashes or other.first_started_at is not None]
        if any(was_running(other, run, self._tolerance) for other in others):
            return True
        started = [other for other in others if had_started(other, run, self._tolerance)]
        events = await end_events(self._store.events, [run.id, *(other.id for other in started)], owner=run.owner)
        if run.id not in events:
            return bool(started)  # the store no longer has the events of that time
        return any(end_was_unknown(other, run, events, self._tolerance) for other in started)

    async def _others(self, run: Run, states: frozenset[State]) -> list[Run]:
        """Runs of the same job that were due no later than this one, latest first."""
        which = RunFilter(job_id=run.job_id, states=states, end_at=run.due_at + _TICK)
        return list((await self._store.list_runs(which, cursor=None, limit=PAGE)).items)

    # --- runs

    async def _pages(self) -> AsyncIterator[list[Run]]:
        """All runs by due time, latest first; live and ended ones are read separately, so that duplicates show."""
        live, ended = (
            all_runs(self._store, RunFilter(states=states, start_at=self._since)) for states in (_LIVE, FINAL)
        )
        page: list[Run] = []
        async for run in _merged(live, ended):
            page.append(run)
            if len(page) >= PAGE:
                yield page
                page = []
        if page:
            yield page

    async def _check_page(self, page: Sequence[Run], gates: GateJudge) -> list[Violation]:
        return [
            *await self._check_runs(page),
            *await self._check_copies(page),
            *await self._check_order(page, gates),
        ]

    async def _check_runs(self, page: Sequence[Run]) -> list[Violation]:
        async def judge_again(found: Sequence[Violation]) -> list[Violation]:
            again = [await find_run(self._store, run_id, owner=None) for run_id in sorted(set(map(_run_id, found)))]
            return await self._judge_runs([run for run in again if run is not None])

        return await self._confirmed(await self._judge_runs(page), judge_again)

    async def _judge_runs(self, runs: Sequence[Run]) -> list[Violation]:
        if not runs:
            return []
        attempts = await self._store.attempts([run.id for run in runs])
        letters = await self._letters_among(runs)
        jobs = await self._store.jobs(list({run.job_id for run in runs if not run.one_shot}))
        found: list[Violation] = []
        for run in runs:
            found += judge_run(run, attempts.get(run.id, ()), self._tolerance, since=self._since)
            found += judge_listing(run, letters)
            found += judge_has_job(run, jobs.get(run.job_id))
            found += judge_belonging(run, jobs.get(run.job_id))
            if run.one_shot and run.spec.key is not None:
                found += judge_key_of_run(run, await self._holder_of(run.owner, run.spec.key))
            if (other := refers_to(run)) is not None:
                found += judge_resolution(run, await find_run(self._store, other, owner=None), since=self._since)
        return found

    async def _letters_among(self, runs: Sequence[Run]) -> set[RunId]:
        """The ids that the store lists as dead letters among runs due at the same time as these."""
        times = [run.due_at for run in runs]
        which = RunFilter(dead_letters=True, start_at=min(times), end_at=max(times) + _TICK)
        return {run.id async for run in all_runs(self._store, which)}

    async def _check_copies(self, page: Sequence[Run]) -> list[Violation]:
        """Check that no run is both live and ended; its two rows would come one after the other."""
        found = []
        for run in page:
            is_copy, self._last = run.id == self._last, run.id
            if is_copy and await self._is_listed_twice(run):
                found.append(of_run(Code.COMMITTED_TWICE, run, "it is listed as ended and as live"))
        return found

    async def _is_listed_twice(self, run: Run) -> bool:
        for _ in range(REREADS):
            await asyncio.sleep(self._pause)
            if not (await self._is_listed(run, _LIVE) and await self._is_listed(run, FINAL)):
                return False
        return True

    async def _is_listed(self, run: Run, states: frozenset[State]) -> bool:
        which = RunFilter(job_id=run.job_id, states=states, start_at=run.due_at, end_at=run.due_at + _TICK)
        return any(other.id == run.id for other in (await self._store.list_runs(which, cursor=None, limit=PAGE)).items)

    async def _check_order(self, page: Sequence[Run], gates: GateJudge) -> list[Violation]:
        suspects = [(one, other) for run in page for _, one, other in gates.add(run)]
        return [violation for pair in suspects for violation in await self._check_pair(*pair)]

    async def _check_pair(self, one: RunId, other: RunId) -> list[Violation]:
        return await self._confirmed(await self._judge_pair(one, other), lambda _: self._judge_pair(one, other))

    async def _judge_pair(self, one: RunId, other: RunId) -> list[Violation]:
        runs = [await find_run(self._store, run_id, owner=None) for run_id in (one, other)]
        gated = [GatedRun.of(run) for run in runs if run is not None]
        first, second = gated if len(gated) == 2 else (None, None)
        if first is None or second is None or first.gate != second.gate:
            return []
        violation = judge_pair(first, second, self._tolerance)
        return [] if violation is None else [violation]

    async def _confirmed(self, found: list[Violation], judge_again: JudgeAgain) -> list[Violation]:
        """Return the violations that are found again each time; numbers in their details may have changed."""
        for _ in range(REREADS):
            if not found:
                break
            await asyncio.sleep(self._pause)
            before = {(violation.code, violation.subject) for violation in found}
            found = [again for again in await judge_again(found) if (again.code, again.subject) in before]
        return found


async def _merged(*streams: AsyncIterator[Run]) -> AsyncIterator[Run]:
    """Merge streams that are sorted by due time, latest first."""
    heads = [(stream, await anext(stream, None)) for stream in streams]
    waiting = [(stream, run) for stream, run in heads if run is not None]
    while waiting:
        place = max(range(len(waiting)), key=lambda i: (waiting[i][1].due_at, waiting[i][1].id))
        stream, run = waiting[place]
        yield run
        following = await anext(stream, None)
        if following is None:
            del waiting[place]
        else:
            waiting[place] = (stream, following)


def _run_id(violation: Violation) -> RunId:
    return RunId(violation.subject.removeprefix(run_name(RunId(""))))
