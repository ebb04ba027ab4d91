"""Ending runs that somebody no longer wants: at once while they wait, through their worker when it holds them."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from horae.core.decisions.results import cancel
from horae.core.effects import request_stop
from horae.core.errors import Conflict, NotFound
from horae.core.lifecycle import FINAL, HELD, WAITING
from horae.core.model import JobId, Reason, Run, RunId, State
from horae.jobs.lookup import find_run
from horae.jobs.optimistic import TRIES, always_changing
from horae.metrics import Metrics
from horae.ports.clock import Clock
from horae.ports.reader import RunFilter
from horae.ports.store import Store

CONFIRM_SECONDS = 1.0  # how long an answer waits for the worker's confirmation
LOOK_EVERY_SECONDS = 0.025
PAGE = 500


class Stopper:
    """Cancels runs, and waits a moment for workers to confirm it."""

    def __init__(self, store: Store, clock: Clock, metrics: Metrics) -> None:
        self._store = store
        self._clock = clock
        self._metrics = metrics

    async def cancel(self, run_id: RunId, *, owner: str | None) -> Run:
        """The run as cancelled, or as held by a worker that has not confirmed; raises Conflict when it ended before."""
        run = await self._find(run_id, owner)

        async def ended() -> bool:
            nonlocal run
            run = await self._find(run_id, owner)
            if run.state in WAITING or (run.state in HELD and run.stop is not Reason.CANCELLED):
                await self._stop([run], keep_running=False)
                run = await self._find(run_id, owner)
            return run.state in FINAL

        await _until(ended)
        if run.state in FINAL and run.state is not State.CANCELLED:
            raise Conflict(f"run_{run_id} has already {_ENDS[run.state]}")
        return run

    async def stop_job(self, job_id: JobId, *, keep_running: bool) -> None:
        """Cancel the waiting runs of a job and, unless they are kept, the running ones; waits for confirmation."""
        was_alive = await self._stop_live(job_id, keep_running=keep_running)
        if was_alive:  # and could be run by hand until just now; from here on it is over, and nothing more comes
            await self._stop_live(job_id, keep_running=keep_running)
        if not keep_running:
            await _until(lambda: self._nothing_held(job_id))

    async def _stop_live(self, job_id: JobId, *, keep_running: bool) -> bool:
        """Stop what is alive of a job; answers whether a one-shot itself was among it."""
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

    async def _stop(self, runs: Sequence[Run], *, keep_running: bool) -> None:
        """See to the end of all that has not ended: what moved on before it was reached is looked at again."""
        for _ in range(TRIES):
            runs = await self._stop_once(runs, keep_running=keep_running)
            if not runs:
                return
        raise always_changing(f"run_{runs[0].id}")

    async def _stop_once(self, runs: Sequence[Run], *, keep_running: bool) -> list[Run]:
        """End what waits, ask for the end of what is held; answers those that were not as they were said to be."""
        now = self._clock.now()
        waiting = [cancel(run, now) for run in runs if run.state in WAITING]
        held = [run.id for run in runs if run.state is State.CLAIMED or (run.state in HELD and not keep_running)]
        if waiting:
            ended = await self._store.settle(waiting)
            self._metrics.ended(State.CANCELLED, sum(ended))
            held += [settled.run.id for settled, done in zip(waiting, ended, strict=True) if not done]  # just claimed
        if not held:
            return []
        # A start is written a moment late, so what looks unstarted may run already. `paused` spares what runs.
        reason = Reason.PAUSED if keep_running else Reason.CANCELLED
        found = [run for run in (await self._store.runs(held)).values() if run.state not in FINAL]
        asked = [run for run in found if run.state in HELD]
        refusals = await self._store.apply([request_stop(run, reason) for run in asked])
        moved = {run.id for run, refusal in zip(asked, refusals, strict=True) if refusal is not None}
        again = [run for run in found if run.state not in HELD or run.id in moved]  # by now it may wait again
        return [run for run in (await self._store.runs([run.id for run in again])).values() if run.state not in FINAL]

    async def _find(self, run_id: RunId, owner: str | None) -> Run:
        run = await find_run(self._store, run_id, owner=owner)
        if run is None:
            raise NotFound("run", f"run_{run_id}")
        return run


_ENDS = {State.SUCCEEDED: "succeeded", State.FAILED: "failed", State.SKIPPED: "been skipped"}


async def _until(true: Callable[[], Awaitable[bool]]) -> None:
    """Look again and again until it is true, or the time of a patient answer is over."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + CONFIRM_SECONDS
    while not await true() and loop.time() < deadline:  # noqa: ASYNC110 - no event tells of a store
        await asyncio.sleep(LOOK_EVERY_SECONDS)
