"""Attempts of coroutine functions, on the event loop of the worker."""

import asyncio

from horae.engine.execution.attempt import RunningAttempt
from horae.engine.execution.outcome import AttemptResult, Stopped, failure, failure_of, success, trace
from horae.run import current_run
from horae.tasks.binding import Arguments


class AsyncAttempt(RunningAttempt):
    """An attempt of a coroutine, with a context of its own."""

    def start(self, params: str) -> None:
        self._arguments = params
        self.env.shared_task.run(self.task.name, self._run_task)

    async def _run_task(self, task: asyncio.Task[None]) -> None:
        if self.ended:
            return  # withdrawn before its first step
        self._begun = True
        self._asyncio_task = task
        if self.run.spec.policy.timeout is not None:
            self.arm_timeout()
        result: AttemptResult
        outside = current_run.set(self)
        try:
            if self.task.hooks.around_tasks:
                result = await self.task.hooks.run_around(self.context(), self._perform, self.hook_error)
            else:
                result = success(await self.task.function(**self._bound_arguments()))
        except BaseException as exc:  # a task that raises SystemExit must not end the worker
            if isinstance(exc, GeneratorExit) and asyncio.current_task(self.env.loop) is not task:
                raise  # not raised by the task: the coroutine is discarded together with its event loop
            result = self._failed(exc)
        self.end_if_forked()
        current_run.reset(outside)
        if self._abandoned:
            self.let_go()
        self.finish(Stopped() if self.stopping else result)

    async def _perform(self) -> AttemptResult:
        """Call the task between its hooks, which a child that it forked must not run."""
        try:
            return success(await self.task.function(**self._bound_arguments()))
        finally:
            self.end_if_forked()

    def _bound_arguments(self) -> Arguments:
        arguments = self.task.bind(self._arguments)
        return {**arguments, **self.injected()} if self.task.injected else arguments

    def _failed(self, exc: BaseException) -> AttemptResult:
        if isinstance(exc, asyncio.CancelledError):
            return failure("CancelledError", "the task was cancelled, but not by Horae")
        if (text := trace(exc)) is not None:
            self.log.write("ERROR", text)
        return failure_of(exc)

    @property
    def _stop_grace(self) -> float:
        return self.env.grace * 1.5  # the task may itself be waiting for the grace of a program

    def _ask_to_stop(self) -> None:
        self._asyncio_task.cancel()

    def _end_by_force(self) -> None:
        """Cancel a second time, which also interrupts `finally` clauses, and abandon the task."""
        self._asyncio_task.cancel()
        self.env.loop.call_soon(self._asyncio_task.cancel)
        self.env.leftovers.add(self._asyncio_task)
        self._asyncio_task.add_done_callback(self.env.leftovers.discard)
        self.abandon()
