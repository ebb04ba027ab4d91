"""Reads a store through in bounded memory and judges it on the way, also while its nodes are at work.

What changes between two reads can look wrong for a moment. So whatever was found is read anew, twice, and only what is
still wrong then is told.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from horae.core.lifecycle import FINAL
from horae.core.model import Job, Run, RunId, State
from horae.ports.reader import JobFilter, Reader, RunFilter
from horae.proof.checking.findings import Code, Tolerance, Violation, of_run, run_name
from horae.proof.checking.store.dead_letters import judge_listing, judge_resolution, refers_to
from horae.proof.checking.store.end_events import told_ends
from horae.proof.checking.store.gates import GateJudge, Passage, judge_pair
from horae.proof.checking.store.run_lives import judge_life
from horae.proof.checking.store.slots import SlotJudge, had_begun, unexplained, was_going, was_untold

PAGE = 500  # runs or jobs that are looked at together
LATER = timedelta(hours=1)  # how far ahead of now runs are looked for; planners make them much later
SECOND_LOOKS = 2
_TICK = timedelta(microseconds=1)
_LIVE = frozenset(State) - FINAL


class Readable(Reader, Protocol):
    """What is needed of a store: nothing is written."""

    async def time(self) -> datetime: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """How much was looked at so far."""

    jobs: int = 0  # recurring ones
    runs: int = 0
    violations: int = 0


class Checker:
    """One pass through a store."""

    def __init__(
        self,
        store: Readable,
        *,
        since: datetime | None = None,
        tolerance: Tolerance | None = None,
        pause: float = 0.3,
        progress: Callable[[Seen], None] = lambda seen: None,
        now: Callable[[], Awaitable[datetime]] | None = None,
    ) -> None:
        """What lies before `since` is not judged. `pause` is how many seconds pass before a second look.

        `now` is the time of the store unless given.
        """
        self._store = store
        self._now = now or store.time
        self._since = since
        self._tolerance = tolerance or Tolerance()
        self._pause = pause
        self._progress = progress
        self._last: RunId | None = None
        self.seen = Seen()

    async def violations(self) -> AsyncIterator[Violation]:
        """Everything that is wrong, as it is found: first with the slots of jobs, then with runs."""
        async for violation in self._all():
            self._count(violations=1)
            yield violation

    async def _all(self) -> AsyncIterator[Violation]:
        async for job in self._recurring_jobs():
            for violation in await self._check_job(job):
                yield violation
            self._count(jobs=1)
        gates = GateJudge(self._tolerance)
        async for page in self._pages():
            for violation in await self._check_page(page, gates):
                yield violation
            self._count(runs=len(page))

    def _count(self, jobs: int = 0, runs: int = 0, violations: int = 0) -> None:
        seen = self.seen
        self.seen = replace(seen, jobs=seen.jobs + jobs, runs=seen.runs + runs, violations=seen.violations + violations)
        self._progress(self.seen)

    # --- jobs and their slots

    async def _recurring_jobs(self) -> AsyncIterator[Job]:
        cursor: str | None = None
        while True:
            page = await self._store.list_jobs(JobFilter(), cursor=cursor, limit=PAGE)
            for job in page.items:
                if job.recurring:
                    yield job
            if (cursor := page.cursor) is None:
                return

    async def _check_job(self, job: Job) -> list[Violation]:
        found = await self._slots(job)
        for _ in range(SECOND_LOOKS):
            if not found:
                break
            await asyncio.sleep(self._pause)
            again = await self._store.job(job.id, owner=None)
            found = _still(found, await self._slots(again) if again is not None else [])
        return found

    async def _slots(self, job: Job) -> list[Violation]:
        now = await self._now()
        judge = SlotJudge(job, now=now, since=self._since, tolerance=self._tolerance)
        start, end = max(job.created_at, self._since or job.created_at), now + LATER
        found: list[Violation] = []
        while start <= end:
            page = await self._store.ledger(job.id, start=start, end=end, limit=PAGE)
            known_to = end
            if len(page.runs) >= PAGE and (last := page.runs[-1].slot) is not None:
                # Of the last slot there may be more runs than fit; unless it fills the page by itself.
                known_to = last - _TICK if page.runs[0].slot != last else last
            found += judge.read(page, end=known_to)
            start = known_to + _TICK
        found += judge.end()
        return [violation for violation in found if not await self._is_explained(job, violation)]

    async def _is_explained(self, job: Job, violation: Violation) -> bool:
        """Whether a slot overlapped a run that its ledger does not show, or whose end the store heard of too late."""
        if violation.code is not Code.SKIPPED_WITHOUT_CAUSE:
            return False
        run = await self._store.run(_run_id(violation), owner=None)
        if run is None or violation != unexplained(run):
            return False
        others = await self._others(run, frozenset(State) - {State.SKIPPED})
        # One that had started on a node that died may have been skipped in the end, because it was too late by then.
        others += [other for other in await self._others(run, frozenset({State.SKIPPED})) if other.crashes]
        if any(was_going(other, run, self._tolerance) for other in others):
            return True
        begun = [other for other in others if had_begun(other, run, self._tolerance)]
        told = await told_ends(self._store, [run.id, *(other.id for other in begun)], owner=run.owner)
        if run.id not in told:
            return bool(begun)  # it is too long ago for the store to tell
        return any(was_untold(other, run, told, self._tolerance) for other in begun)

    async def _others(self, run: Run, states: frozenset[State]) -> list[Run]:
        """Runs of the same job that were due no later, the latest first."""
        which = RunFilter(job_id=run.job_id, states=states, end_at=run.due_at + _TICK)
        return list((await self._store.list_runs(which, cursor=None, limit=PAGE)).items)

    # --- runs

    async def _pages(self) -> AsyncIterator[list[Run]]:
        """All runs by due time, latest first; live and ended ones are listed apart, so that none hides another."""
        live, ended = self._runs(_LIVE), self._runs(FINAL)
        page: list[Run] = []
        async for run in _merged(live, ended):
            page.append(run)
            if len(page) >= PAGE:
                yield page
                page = []
        if page:
            yield page

    async def _runs(self, states: frozenset[State]) -> AsyncIterator[Run]:
        which, cursor = RunFilter(states=states, start_at=self._since), None
        while True:
            page = await self._store.list_runs(which, cursor=cursor, limit=PAGE)
            for run in page.items:
                yield run
            if (cursor := page.cursor) is None:
                return

    async def _check_page(self, page: Sequence[Run], gates: GateJudge) -> list[Violation]:
        return [
            *await self._check_lives(page),
            *await self._check_copies(page),
            *await self._check_order(page, gates),
        ]

    async def _check_lives(self, page: Sequence[Run]) -> list[Violation]:
        found = await self._lives(page)
        for _ in range(SECOND_LOOKS):
            if not found:
                break
            await asyncio.sleep(self._pause)
            again = [await self._store.run(run_id, owner=None) for run_id in sorted(set(map(_run_id, found)))]
            found = _still(found, await self._lives([run for run in again if run is not None]))
        return found

    async def _lives(self, runs: Sequence[Run]) -> list[Violation]:
        if not runs:
            return []
        attempts = await self._store.attempts_of([run.id for run in runs])
        letters = await self._letters_among(runs)
        found: list[Violation] = []
        for run in runs:
            found += judge_life(run, attempts.get(run.id, ()), self._tolerance, since=self._since)
            found += judge_listing(run, letters)
            if (other := refers_to(run)) is not None:
                found += judge_resolution(run, await self._store.run(other, owner=None), since=self._since)
        return found

    async def _letters_among(self, runs: Sequence[Run]) -> set[RunId]:
        """The ids that the store lists as dead letters, of the time of these runs."""
        times = [run.due_at for run in runs]
        which = RunFilter(dead_letters=True, start_at=min(times), end_at=max(times) + _TICK)
        found: set[RunId] = set()
        cursor: str | None = None
        while True:
            page = await self._store.list_runs(which, cursor=cursor, limit=PAGE)
            found |= {run.id for run in page.items}
            if (cursor := page.cursor) is None:
                return found

    async def _check_copies(self, page: Sequence[Run]) -> list[Violation]:
        """A run that has ended is not alive as well; if it were, both would come one after the other."""
        found = []
        for run in page:
            is_copy, self._last = run.id == self._last, run.id
            if is_copy and await self._is_twofold(run):
                found.append(of_run(Code.COMMITTED_TWICE, run, "it has ended, and is alive as well"))
        return found

    async def _is_twofold(self, run: Run) -> bool:
        for _ in range(SECOND_LOOKS):
            await asyncio.sleep(self._pause)
            if not (await self._is_listed(run, _LIVE) and await self._is_listed(run, FINAL)):
                return False
        return True

    async def _is_listed(self, run: Run, states: frozenset[State]) -> bool:
        which = RunFilter(job_id=run.job_id, states=states, start_at=run.due_at, end_at=run.due_at + _TICK)
        return any(other.id == run.id for other in (await self._store.list_runs(which, cursor=None, limit=PAGE)).items)

    async def _check_order(self, page: Sequence[Run], gates: GateJudge) -> list[Violation]:
        suspects = [pair for run in page for _, *pair in gates.see(run)]
        judged = [await self._judge_again(one, other) for one, other in suspects]
        return [violation for violation in judged if violation is not None]

    async def _judge_again(self, one: RunId, other: RunId) -> Violation | None:
        violation = await self._judge_pair(one, other)
        if violation is not None:
            await asyncio.sleep(self._pause)
            violation = await self._judge_pair(one, other)
        return violation

    async def _judge_pair(self, one: RunId, other: RunId) -> Violation | None:
        runs = [await self._store.run(run_id, owner=None) for run_id in (one, other)]
        passages = [Passage.of(run) for run in runs if run is not None]
        first, second = passages if len(passages) == 2 else (None, None)
        if first is None or second is None or first.gate != second.gate:
            return None
        return judge_pair(first, second, self._tolerance)


async def _merged(*streams: AsyncIterator[Run]) -> AsyncIterator[Run]:
    """Streams that come by due time, latest first, as one."""
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


def _still(found: Iterable[Violation], again: Iterable[Violation]) -> list[Violation]:
    """What was found before and is found again; its numbers may have changed."""
    before = {(violation.code, violation.subject) for violation in found}
    return [violation for violation in again if (violation.code, violation.subject) in before]


def _run_id(violation: Violation) -> RunId:
    return RunId(violation.subject.removeprefix(run_name(RunId(""))))
