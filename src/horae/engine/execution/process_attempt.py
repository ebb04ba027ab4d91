"""Attempts of `cpu=True` tasks, in a pool of child processes that are started when needed and die with the worker."""

import asyncio
import logging
import os
import signal
import sys
from collections import deque

import msgspec
import structlog

from horae.engine.execution import process_messages as messages
from horae.engine.execution.attempt import RunningAttempt
from horae.engine.execution.outcome import Stopped, Success, crashed, failure, failure_of
from horae.tasks.process_groups import ProcessGroup, ProcessGroups

log = structlog.get_logger(__name__)

_LAST_MESSAGES = 0.5  # seconds to read what a process wrote before it died
_COMMAND = (sys.executable, "-m", "horae.engine.execution.process_child")


class ChildProcess:
    """One process of the pool."""

    def __init__(self, group: ProcessGroup) -> None:
        self.group = group
        self.attempt: ProcessAttempt | None = None
        self.ending = False  # it was signalled to end, and gets no further work

    def give(self, attempt: "ProcessAttempt", call: messages.TaskCall) -> None:
        """Run an attempt in this process."""
        self.attempt = attempt
        self.group.write(messages.framed(call))

    def end(self, number: signal.Signals) -> None:
        """Signal the process to end."""
        self.ending = True
        self.group.signal(number)


class ProcessPool:
    """Child processes up to a limit, each started when there is work and none is idle; more work waits."""

    def __init__(self, groups: ProcessGroups, loop: asyncio.AbstractEventLoop, *, limit: int | None = None) -> None:
        self._groups = groups
        self._loop = loop
        self._limit = limit or os.cpu_count() or 1
        self._waiting: deque[tuple[ProcessAttempt, str]] = deque()
        self._idle: list[ChildProcess] = []
        self._children: set[asyncio.Task[None]] = set()
        self._starting = 0
        self._closed = False

    def submit(self, attempt: "ProcessAttempt", params: str) -> None:
        """Run an attempt as soon as a process is free."""
        self._waiting.append((attempt, params))
        self._dispatch()

    def _dispatch(self) -> None:
        while self._waiting and self._idle:
            attempt, params = self._waiting.popleft()
            if attempt.enter():
                attempt.send_to(self._idle.pop(), params)
        wanted = min(len(self._waiting) - self._starting, self._limit - len(self._children))
        for _ in range(wanted if not self._closed else 0):
            self._starting += 1
            child = self._loop.create_task(self._run_child())
            self._children.add(child)
            child.add_done_callback(self._child_ended)

    def _child_ended(self, child: asyncio.Task[None]) -> None:
        self._children.discard(child)
        self._dispatch()

    async def _run_child(self) -> None:
        """Start a process and serve it until it ends."""
        try:
            group = await self._groups.spawn([*_COMMAND, str(os.getpid())])
        except OSError as exc:
            self._starting -= 1
            log.warning("process_start_failed", error=str(exc))
            if self._waiting:
                self._waiting.popleft()[0].finish(failure_of(exc))
            return
        self._starting -= 1
        child = ChildProcess(group)
        reading = self._loop.create_task(self._read(child))
        self._make_idle(child)
        exit_code = await group.wait()
        child.end(signal.SIGKILL)  # its own children
        await asyncio.wait([reading], timeout=_LAST_MESSAGES)
        reading.cancel()
        group.end()
        if child in self._idle:
            self._idle.remove(child)
        if child.attempt is not None:
            child.attempt.died(exit_code)

    def _make_idle(self, child: ChildProcess) -> None:
        child.attempt = None
        if not child.ending:
            self._idle.append(child)
            self._dispatch()

    async def _read(self, child: ChildProcess) -> None:
        output = child.group.output
        try:
            while True:
                (size,) = messages.HEADER.unpack(await output.readexactly(messages.HEADER.size))
                if size > messages.MAX_MESSAGE:
                    raise msgspec.DecodeError(f"a message of {size} bytes")
                self._received(child, messages.decode_message(await output.readexactly(size)))
        except asyncio.IncompleteReadError:
            return
        except (msgspec.DecodeError, UnicodeDecodeError) as exc:
            self._corrupted(child, exc)

    def _corrupted(self, child: ChildProcess, exc: Exception) -> None:
        """Kill a process on whose pipe something else than our code wrote: nothing that follows can be trusted."""
        log.warning("process_pipe_corrupted", pid=child.group.pid, error=str(exc))
        child.end(signal.SIGKILL)
        if child in self._idle:
            self._idle.remove(child)
        attempt, child.attempt = child.attempt, None
        if attempt is not None:
            attempt.finish(failure("crash", f"the task wrote to the pipe of its process ({exc}), which was ended"))

    def _received(self, child: ChildProcess, message: messages.ChildMessage) -> None:
        attempt = child.attempt
        if attempt is None:
            return  # sent by a task whose result is already known
        match message:
            case messages.TaskBegan():
                attempt.arm_timeout()
            case messages.LogLine():
                attempt.log.write(message.level, message.text)
            case messages.TaskProgress():
                attempt.progressed(message.fraction)
            case messages.TaskReturned():
                self._make_idle(child)
                attempt.finish(Success(message.result))
            case messages.TaskRaised():
                self._make_idle(child)
                attempt.finish(message.failure)

    async def close(self) -> None:
        """Kill every process and start no more."""
        self._closed = True
        await self._groups.close()
        if self._children:
            await asyncio.wait(self._children, timeout=2 * _LAST_MESSAGES)


class ProcessAttempt(RunningAttempt):
    """An attempt of a function in a process, which can always be ended by force."""

    _child: ChildProcess | None = None

    def start(self, params: str) -> None:
        self.env.processes.submit(self, params)

    def send_to(self, child: ChildProcess, params: str) -> None:
        """Start the task in a process of the pool."""
        self._child = child
        child.give(self, self._call(params))

    def died(self, exit_code: int) -> None:
        """Finish after the process ended without a result."""
        self.finish(Stopped() if self.stopping else crashed(exit_code))

    def _ask_to_stop(self) -> None:
        assert self._child is not None
        self._child.end(signal.SIGTERM)

    def _end_by_force(self) -> None:
        assert self._child is not None
        self._child.end(signal.SIGKILL)

    def _call(self, params: str) -> messages.TaskCall:
        run, function = self.run, self.task.function
        script = function.__module__ == "__main__"
        return messages.TaskCall(
            path=sys.path,
            imported_first=self.task.imported_first,
            module=function.__module__,
            file=str(sys.modules["__main__"].__file__) if script else None,
            function=function.__qualname__,
            params=params,
            run_id=f"run_{run.id}",
            job_id=f"job_{run.job_id}",
            owner=run.owner,
            shown_params=None if self._secrets is None else self._params,
            due_at=run.due_at,
            attempt=run.attempt,
            fence=run.fence,
            log_limit=self.env.logs.limit,
            log_level=logging.getLogger().level,
        )
