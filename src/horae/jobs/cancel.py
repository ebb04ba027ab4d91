"""Cancels jobs and runs, one by one or many: waiting runs at once, held runs through their worker."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence

from horae.core.decisions.results import cancel
from horae.core.effects import request_stop
from horae.core.errors import Conflict
from horae.core.events import EventKind
from horae.core.lifecycle import FINAL, HELD, WAITING
from horae.core.model import Job, JobId, JobStatus, Reason, Run, RunId, State
from horae.core.values import replace
from horae.jobs.bulk.together import count_changed, side_by_side
from horae.jobs.catch_up import CatchUp
from horae.jobs.optimistic import (
    TRIES,
    always_changing,
    next_revision,
    refuse_ended,
    update,
    write_change,
)
from horae.lookup import get_job, get_run
from horae.metrics import Metrics
from horae.ports.clock import Clock
from horae.ports.reader import RunFilter
from horae.ports.store import Store

CONFIRM_SECONDS = 1.0  # how long a cancel waits for the worker's confirmation
POLL_SECONDS = 0.025
PAGE = 500

_ENDS = {State.SUCCEEDED: "succeeded", State.FAILED: "failed", State.SKIPPED: "been skipped"}


class Canceller:
    """Cancels jobs and runs, and waits a moment for workers to confirm."""

    def __init__(self, *, store: Store, clock: Clock, catch_up: CatchUp, metrics: Metrics) -> None:
        self._store = store
        self._clock = clock
        self._catch_up = catch_up
        self._metrics = metrics

    # --- jobs

    async def cancel(self, job_id: JobId, *, keep_running: bool, owner: str | None, wait: bool = True) -> Job:
        """Cancel the job with its waiting runs and, unless `keep_running`, its running ones.

        Unless `wait` is False, it waits a moment for workers to confirm.
        """

        async def change(job: Job) -> Job | None:
            if job.status is JobStatus.CANCELLED:
                await self._cancel_rest(job, keep_running=keep_running, wait=wait)  # what an earlier cancel left undone
            refuse_ended(job)
            return await self._cancel_recurring(job) if job.recurring else job

        job = await update(self._store, job_id, owner, change)
        await self._cancel_rest(job, keep_running=keep_running, wait=wait)
        return job if job.recurring else await get_job(self._store, job_id, owner=owner)

    async def _cancel_recurring(self, job: Job) -> Job | None:
        now = self._clock.now()
        up_to_date = await self._catch_up.until(job, now, schedule_ends=True)
        if up_to_date is None:
            return None
        return await write_change(
            self._store,
            self._clock,
            up_to_date,
            replace(next_revision(up_to_date, now), status=JobStatus.CANCELLED, next_fire_at=None, plan_at=None),
            retract_after=now,
            stop=Reason.CANCELLED,
            event=EventKind.JOB_CANCELLED,
        )

    async def _cancel_rest(self, job: Job, *, keep_running: bool, wait: bool) -> None:
        """Cancel the backfills of an ended job, then its runs, so that no new runs can follow."""
        if job.recurring:
            await self._catch_up.cancel_backfills(job)
        was_alive = await self._stop_live(job.id, keep_running=keep_running)
        if was_alive:  # a one-shot could be run by hand until now; from here on it is cancelled, and no run can follow
            await self._stop_live(job.id, keep_running=keep_running)
        if wait and not keep_running:
            await _wait_until(lambda: self._nothing_held(job.id))

    async def _stop_live(self, job_id: JobId, *, keep_running: bool) -> bool:
        """Stop the live runs of a job, and return whether the run of a one-shot itself was among them."""
        live = RunFilter(job_id=job_id, states=WAITING | HELD)
        cursor, was_alive = None, False
        while True:
            page = await self._store.list_runs(live, cursor=cursor, limit=PAGE)
            await self._stop(page.items, keep_running=keep_running)
            was_alive = was_alive or any(run.one_shot for run in page.items)
            cursor = page.cursor
            if cursor is None:
                return was_alive

    async def _nothing_held(self, job_id: JobId) -> bool:
        held = await self._store.list_runs(RunFilter(job_id=job_id, states=HELD), cursor=None, limit=1)
        return not held.items

    async def cancel_many(self, jobs: Sequence[Job]) -> int:
        """Cancel jobs without waiting for workers to confirm, and return how many of them this cancelled."""

        async def cancel_one(job_id: JobId) -> Job:
            return await self.cancel(job_id, keep_running=False, owner=None, wait=False)

        return await self._cancel_one_shots(jobs) + await count_changed(jobs, cancel_one)

    async def _cancel_one_shots(self, jobs: Sequence[Job]) -> int:
        mine = {job.id: job.run for job in jobs if job.run is not None and job.status is not JobStatus.FINISHED}
        left = await self._stop_all([run for run in mine.values() if _is_to_stop(run)])
        # From here on none of them can be run by hand: what is live was there before.
        others = [run for runs in await side_by_side([*mine], self._live_runs) for run in runs if _is_to_stop(run)]
        left += await self._stop_all(others)
        before = {job.id for job in jobs if job.status is JobStatus.CANCELLED} | {run.job_id for run in left}
        found = await self._store.jobs([job_id for job_id in mine if job_id not in before])
        return sum(job.status is JobStatus.CANCELLED for job in found.values())

    async def _live_runs(self, job_id: JobId) -> list[Run]:
        live = RunFilter(job_id=job_id, states=WAITING | HELD)
        page = await self._store.list_runs(live, cursor=None, limit=PAGE)
        runs = [*page.items]
        while page.cursor is not None:
            page = await self._store.list_runs(live, cursor=page.cursor, limit=PAGE)
            runs += page.items
        return runs

    # --- runs

    async def cancel_runs(self, runs: Sequence[Run]) -> int:
        """Cancel runs without waiting for workers, and return how many are cancelled, or are going to be."""
        await self._stop_all([run for run in runs if _is_to_stop(run)])
        found = (await self._store.runs([run.id for run in runs])).values()
        return sum(run.state is State.CANCELLED or _is_cancelling(run) for run in found)

    async def cancel_run(self, run_id: RunId, *, owner: str | None) -> Run:
        """Cancel one run; one whose worker has not confirmed yet is returned as `cancelling`.

        Raises Conflict when the run has already ended in another way.
        """
        run = await get_run(self._store, run_id, owner=owner)

        async def ended() -> bool:
            nonlocal run
            run = await get_run(self._store, run_id, owner=owner)
            if run.state in WAITING or (run.state in HELD and run.stop is not Reason.CANCELLED):
                await self._stop([run], keep_running=False)
                run = await get_run(self._store, run_id, owner=owner)
            return run.state in FINAL

        await _wait_until(ended)
        if run.state in FINAL and run.state is not State.CANCELLED:
            raise Conflict(f"run_{run_id} has already {_ENDS[run.state]}")
        return run

    async def _stop(self, runs: Sequence[Run], *, keep_running: bool) -> None:
        """Stop the runs; retry those that changed between the read and the write."""
        if left := await self._stop_all(runs, keep_running=keep_running):
            raise always_changing(f"run_{left[0].id}")

    async def _stop_all(self, runs: Sequence[Run], *, keep_running: bool = False) -> list[Run]:
        """Stop the runs like `_stop`, and return those that others keep changing."""
        left = [*runs]
        for _ in range(TRIES):
            if not left:
                break
            left = await self._stop_once(left, keep_running=keep_running)
        return left

    async def _stop_once(self, runs: Sequence[Run], *, keep_running: bool) -> list[Run]:
        """Cancel waiting runs, send stop requests for held ones, and return the live runs that changed meanwhile."""
        now = self._clock.now()
        waiting = [cancel(run, now) for run in runs if run.state in WAITING]
        held = [run.id for run in runs if run.state is State.CLAIMED or (run.state in HELD and not keep_running)]
        if waiting:
            ended = await self._store.settle(waiting)
            self._metrics.ended(settled.run for settled in itertools.compress(waiting, ended))
            held += [settled.run.id for settled, done in zip(waiting, ended, strict=True) if not done]  # just claimed
        if not held:
            return []
        # A start is written a moment late, so a claimed run may be running already; `paused` lets it run.
        reason = Reason.PAUSED if keep_running else Reason.CANCELLED
        found = [run for run in (await self._store.runs(held)).values() if run.state not in FINAL]
        requested = [run for run in found if run.state in HELD]
        refusals = await self._store.apply([request_stop(run, reason) for run in requested])
        moved = {run.id for run, refusal in zip(requested, refusals, strict=True) if refusal is not None}
        again = [run for run in found if run.state not in HELD or run.id in moved]  # by now it may wait again
        return [run for run in (await self._store.runs([run.id for run in again])).values() if run.state not in FINAL]


def _is_to_stop(run: Run) -> bool:
    return run.state not in FINAL and not _is_cancelling(run)


def _is_cancelling(run: Run) -> bool:
    return run.state in HELD and run.stop is Reason.CANCELLED


async def _wait_until(true: Callable[[], Awaitable[bool]]) -> None:
    """Poll until the condition is true, or CONFIRM_SECONDS are over."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + CONFIRM_SECONDS
    while not await true() and loop.time() < deadline:  # noqa: ASYNC110 - a store has no event to wait for
        await asyncio.sleep(POLL_SECONDS)
