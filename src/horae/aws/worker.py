"""Runs the tickets of one event: claims their runs, runs them while there is time, and says which must come again."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import structlog

from horae.adapters import taken_from_event
from horae.aws.environment import Environment, Membership, WarmParts
from horae.aws.event_queue import EventQueue
from horae.core.decisions.results import Failure
from horae.core.errors import InternalError, Unavailable
from horae.core.model import JobError, Outcome, Run
from horae.engine.execution.attempt import Done, Progressed, RunningAttempt
from horae.engine.execution.executor import Executor
from horae.engine.execution.outcome import AttemptResult, Stopped
from horae.loop import Loop
from horae.runtime.wiring import Parts, worker_of

if TYPE_CHECKING:
    from horae.ports.queue import Taken
    from horae.queues.sqs.events import EventMessage

log = structlog.get_logger(__name__)

LOOK = 0.02  # seconds between two looks at whether everything is done
SETTLED_WITHIN = timedelta(seconds=3)
WHOLE_TIME = 0.8  # an attempt that had this part of the function's time and was not done has timed out


async def work_off(environment: Environment, messages: "Sequence[EventMessage]", *, within: timedelta) -> list[str]:
    """Run what the messages are tickets for; returns the ids of those that must come again."""
    again = {message.id for message in messages}
    try:
        opened = await environment.opened()
        taken = await taken_from_event(opened.parts.queue, messages)
        again = await _work_off(opened, taken, within=within)
    except Unavailable as exc:
        log.warning("event_not_worked_off", reason=str(exc), messages=len(messages))
    return [message.id for message in messages if message.id in again]


async def _work_off(opened: WarmParts, taken: "dict[str, Taken]", *, within: timedelta) -> set[str]:
    parts, clock = opened.parts, opened.parts.clock
    assert parts.queue is not None
    assert opened.executor is not None, "the environment is not a worker's"
    queue = EventQueue(parts.queue, list(taken.values()), now=clock.now(), lead=parts.timing.lead)
    try:
        member = Membership(parts)
        async with member.joined():
            runner = TimedRunner(opened.executor, within=within)
            await Invocation(replace(parts, queue=queue), member, runner, queue).run(clock.now() + within)
    except Unavailable as exc:
        log.warning("event_not_worked_off", reason=str(exc))
    queue.return_all(clock.now())
    await queue.hide_returned(clock.now())
    return {message_id for message_id, each in taken.items() if each.receipt in queue.again}


class TimedRunner:
    """Runs attempts, and fails those that are not done when the function's time is over although they had nearly all.

    Without that they would be given back and begun again for ever. Those that had less are given back.
    """

    def __init__(self, executor: Executor, *, within: timedelta) -> None:
        self._executor = executor
        self._within = within
        self._elapsed = asyncio.get_running_loop().time
        self._began = self._elapsed()
        self.is_over = False

    @property
    def abandoned(self) -> int:
        """Threads that do not stop."""
        return self._executor.abandoned

    @property
    def lent(self) -> int:
        """Attempts that wait for others."""
        return self._executor.lent

    def when_lent(self, call: Callable[[], None]) -> None:
        """Call a function when a slot is lent."""
        self._executor.when_lent(call)

    def begin(self, run: Run, done: Done, progressed: Progressed) -> RunningAttempt:
        """Start an attempt."""
        had = 1 - (self._elapsed() - self._began) / self._within.total_seconds()

        def ended(run: Run, result: AttemptResult) -> None:
            if isinstance(result, Stopped) and self.is_over and had >= WHOLE_TIME:
                done(run, _out_of_time(self._within))
            else:
                done(run, result)

        return self._executor.begin(run, ended, progressed)


class Invocation:
    """A worker that lives as long as there are tickets of one event, and time."""

    def __init__(self, parts: Parts, member: Membership, runner: TimedRunner, queue: EventQueue) -> None:
        self._clock = parts.clock
        self._member = member
        self._runner = runner
        self._queue = queue
        self._worker = worker = worker_of(parts, runner, member.lease, node_id=lambda: member.heartbeat.node.id)
        member.running = lambda: worker.busy
        member.after_beat = self._after_beat
        timing, clock = parts.timing, parts.clock
        self._loops = [
            Loop("tickets", worker.take_tickets, clock, idle=timing.lead, wakeup=worker.tickets_wakeup),
            Loop("claims", worker.claim, clock, idle=timing.lead, wakeup=worker.claim_wakeup),
            Loop("stops", worker.apply_stops, clock, idle=timing.heartbeat),
            Loop("results", worker.settler.tick, clock, idle=timing.heartbeat, wakeup=worker.settle_wakeup),
            Loop("lease", worker.withdrawer.check_lease, clock, idle=timing.lead / 2),
        ]

    async def run(self, until: datetime) -> None:
        """Run the tickets; what is not done at that time is stopped and given back."""
        await self._worker.take_tickets()  # before anything is claimed: from then on claims look at tickets alone
        tasks = [asyncio.create_task(loop.run(), name=loop.name) for loop in self._loops]
        try:
            await self._until(lambda: self._is_done() or self._member.lease.lost, until, tasks)
            await self._leave(tasks)
        finally:
            for loop in self._loops:
                loop.stop()
            tasks[0].cancel()  # it may wait for a ticket that wakes later
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _leave(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        """Stop what runs, give back what has not started, and wait until all is written."""
        worker = self._worker
        if self._member.lease.lost:
            worker.withdrawer.abandon_all()
            return
        self._runner.is_over = True
        worker.withdrawer.begin_drain()
        worker.withdrawer.end_drain()
        worker.settle_wakeup.wake()
        settled_by = self._clock.now() + SETTLED_WITHIN
        await self._until(lambda: not worker.running and not worker.settler.unsettled, settled_by, tasks)
        worker.failures.close()
        if worker.tickets is not None:
            with suppress(Unavailable):
                await worker.tickets.leave()

    def _is_done(self) -> bool:
        worker = self._worker
        return self._queue.is_empty and not (worker.running or worker.holding or worker.settler.unsettled)

    def _after_beat(self) -> None:
        if self._worker.suspended:
            self._worker.claim_wakeup.wake()

    async def _until(self, condition: Callable[[], bool], until: datetime, tasks: Sequence[asyncio.Task[None]]) -> None:
        while not condition() and self._clock.now() < until:
            done, _ = await asyncio.wait(tasks, timeout=LOOK, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
                raise InternalError(f"the duty {task.get_name()} ended by itself")


def _out_of_time(within: timedelta) -> Failure:
    message = f"it was not done in the {within.total_seconds():.0f} s that the Lambda function gives it"
    return Failure(error=JobError(type="timeout", message=message), outcome=Outcome.TIMEOUT)
