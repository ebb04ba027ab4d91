"""Attempts of `cpu=True` tasks, in a pool of processes that are started when needed and never outlive the worker."""

import asyncio
import os
import signal
import sys
from collections import deque

import msgspec
import structlog

from horae.core.model import Run
from horae.engine.execution.attempt import AttemptEnvironment, Done, Progressed, RunningAttempt
from horae.engine.execution.outcome import Stopped, Success, crashed, failure, failure_of
from horae.engine.execution.process_child import (
    HEADER,
    MAX_MESSAGE,
    Began,
    Failed,
    Line,
    Message,
    Progress,
    Succeeded,
    Work,
    decode_message,
    framed,
)
from horae.tasks.process_groups import ProcessGroup, ProcessGroups
from horae.tasks.registry import AnyTask

log = structlog.get_logger(__name__)

_REST = 0.5  # seconds for the last words of a process that has died
_COMMAND = (sys.executable, "-m", "horae.engine.execution.process_child")


class Child:
    """One process of the pool."""

    def __init__(self, group: ProcessGroup) -> None:
        self.group = group
        self.execution: ProcessAttempt | None = None
        self.doomed = False  # told to end: gets no further work

    def give(self, execution: "ProcessAttempt", work: Work) -> None:
        self.execution = execution
        self.group.write(framed(work))

    def end(self, number: signal.Signals) -> None:
        self.doomed = True
        self.group.signal(number)


class ProcessPool:
    """Processes for tasks, as many as there is work for, up to a limit; more work waits its turn."""

    def __init__(self, groups: ProcessGroups, around: AttemptEnvironment, *, limit: int | None = None) -> None:
        self._groups = groups
        self._around = around
        self._limit = limit or os.cpu_count() or 1
        self._waiting: deque[tuple[ProcessAttempt, str]] = deque()
        self._idle: list[Child] = []
        self._lives: set[asyncio.Task[None]] = set()
        self._starting = 0
        self._closed = False

    def submit(self, execution: "ProcessAttempt", params: str) -> None:
        """Run it as soon as a process is free."""
        self._waiting.append((execution, params))
        self._dispatch()

    def _dispatch(self) -> None:
        while self._waiting and self._idle:
            execution, params = self._waiting.popleft()
            if execution.enter():
                execution.send_to(self._idle.pop(), params)
        wanted = min(len(self._waiting) - self._starting, self._limit - len(self._lives))
        for _ in range(wanted if not self._closed else 0):
            self._starting += 1
            life = self._around.loop.create_task(self._live())
            self._lives.add(life)
            life.add_done_callback(self._ended)

    def _ended(self, life: asyncio.Task[None]) -> None:
        self._lives.discard(life)
        self._dispatch()

    async def _live(self) -> None:
        """The life of one process, from its start to its end."""
        try:
            group = await self._groups.spawn([*_COMMAND, str(os.getpid())])
        except OSError as exc:
            self._starting -= 1
            log.warning("process_not_started", error=str(exc))
            if self._waiting:
                self._waiting.popleft()[0].finish(failure_of(exc))
            return
        self._starting -= 1
        child = Child(group)
        listening = self._around.loop.create_task(self._listen(child))
        self._rest(child)
        exit_code = await group.wait()
        child.end(signal.SIGKILL)  # its own children
        await asyncio.wait([listening], timeout=_REST)
        listening.cancel()
        group.end()
        if child in self._idle:
            self._idle.remove(child)
        if child.execution is not None:
            child.execution.died(exit_code)

    def _rest(self, child: Child) -> None:
        child.execution = None
        if not child.doomed:
            self._idle.append(child)
            self._dispatch()

    async def _listen(self, child: Child) -> None:
        output = child.group.output
        try:
            while True:
                (size,) = HEADER.unpack(await output.readexactly(HEADER.size))
                if size > MAX_MESSAGE:
                    raise msgspec.DecodeError(f"a message of {size} bytes")
                self._heard(child, decode_message(await output.readexactly(size)))
        except asyncio.IncompleteReadError:
            return
        except (msgspec.DecodeError, UnicodeDecodeError) as exc:
            self._garbled(child, exc)

    def _garbled(self, child: Child, exc: Exception) -> None:
        """Something else than our own code wrote to the pipe: nothing that follows can be trusted."""
        log.warning("process_garbled", pid=child.group.pid, error=str(exc))
        child.end(signal.SIGKILL)
        if child in self._idle:
            self._idle.remove(child)
        execution, child.execution = child.execution, None
        if execution is not None:
            execution.finish(failure("crash", f"the task wrote to the pipe of its process ({exc}), which was ended"))

    def _heard(self, child: Child, message: Message) -> None:
        execution = child.execution
        if execution is None:
            return  # the last words of a task whose result is already told
        match message:
            case Began():
                execution.arm_timeout()
            case Line():
                execution.log.write(message.level, message.text)
            case Progress():
                execution.progressed(message.fraction)
            case Succeeded():
                self._rest(child)
                execution.finish(Success(message.result))
            case Failed():
                self._rest(child)
                execution.finish(message.failure)

    async def close(self) -> None:
        """Kill every process; nothing is started any more."""
        self._closed = True
        await self._groups.close()
        if self._lives:
            await asyncio.wait(self._lives, timeout=2 * _REST)


class ProcessAttempt(RunningAttempt):
    """An attempt of a function in a process, which can always be ended by force."""

    def __init__(
        self, run: Run, task: AnyTask, around: AttemptEnvironment, done: Done, progressed: Progressed, pool: ProcessPool
    ) -> None:
        super().__init__(run, task, around, done, progressed)
        self._pool = pool
        self._child: Child | None = None

    def start(self, params: str) -> None:
        self._pool.submit(self, params)

    def send_to(self, child: Child, params: str) -> None:
        """Begin, now that there is a process for it."""
        self._child = child
        child.give(self, self._work(params))

    def died(self, exit_code: int) -> None:
        """The process is gone, and has told no result."""
        self.finish(Stopped() if self.stopping else crashed(exit_code))

    def _ask_to_stop(self) -> None:
        assert self._child is not None
        self._child.end(signal.SIGTERM)

    def _end_by_force(self) -> None:
        assert self._child is not None
        self._child.end(signal.SIGKILL)

    def _work(self, params: str) -> Work:
        run, function = self.run, self.task.function
        script = function.__module__ == "__main__"
        return Work(
            path=sys.path,
            module=function.__module__,
            file=str(sys.modules["__main__"].__file__) if script else None,
            function=function.__qualname__,
            params=params,
            run_id=f"run_{run.id}",
            job_id=f"job_{run.job_id}",
            due_at=run.due_at,
            attempt=run.attempt,
            fence=run.fence,
            log_limit=self.around.logs.limit,
        )
