"""One try of a run under way: it ends in exactly one result, told on the event loop."""

import asyncio
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from horae.core.model import Run
from horae.engine.execution.outcome import AttemptResult, Stopped, redacted, timed_out
from horae.engine.execution.shared_task import SharedTask
from horae.run import Run as Context
from horae.run_logs import AttemptLog, LogWriter
from horae.secrets.redaction import Redactor
from horae.secrets.sealer import merged
from horae.tasks.registry import AnyTask
from horae.tasks.tools import Tools

log = structlog.get_logger(__name__)

Done = Callable[[Run, AttemptResult], None]
Progressed = Callable[[Run, float], None]


@dataclass(slots=True)
class AttemptEnvironment:
    """What the attempts of one executor share."""

    loop: asyncio.AbstractEventLoop
    carrier: SharedTask
    logs: LogWriter
    tools: Tools
    grace: float  # seconds between the request to stop and the end by force
    live: "set[RunningAttempt]" = field(default_factory=set)
    leftovers: set[asyncio.Task[None]] = field(default_factory=set)  # cancelled coroutines that have not ended yet
    lock: threading.Lock = field(default_factory=threading.Lock)  # between the loop and threads, never held for long
    abandoned: int = 0  # attempts whose result is given up, but whose code is still running
    process: int = field(default_factory=os.getpid)  # that the attempts belong to


class RunningAttempt(ABC):
    """An attempt that can be asked, or made, to stop; what it says of its run may change on the way."""

    # What most attempts never change stands here, so that to begin one is cheap.
    _timer: asyncio.TimerHandle | None = None
    _log: AttemptLog | None = None
    _secrets: str | None = None
    _redactor: Redactor | None = None
    stopping = False  # asked to stop, or out of time
    told = False  # the task has seen that it should stop
    cancelled = False  # somebody asked for it, so that the run ends with it
    _timed_out = False
    _begun = False
    _withdrawn = False
    _abandoned = False
    ended = False

    def __init__(self, run: Run, task: AnyTask, around: AttemptEnvironment, done: Done, progressed: Progressed) -> None:
        self.run = run
        self.task = task
        self.around = around
        self._done = done
        self._progressed = progressed
        around.live.add(self)

    # --- what the worker may ask

    def stop(self) -> None:
        """Ask the task to stop; after the grace it is stopped, or left behind."""
        if self.ended or self.stopping:
            return
        self.stopping = True
        if self._withdraw():
            self.finish(Stopped())
            return
        self._ask_to_stop()
        self._set_timer(self._patience, self._force)

    def kill(self) -> None:
        """Stop the task at once, or leave it behind."""
        if self.ended:
            return
        self.stopping = True
        if not self._withdraw():
            self._end_by_force()
        self.finish(Stopped())

    # --- for the executor

    def hide(self, secrets: str) -> None:
        """Let the task have these parameters, too, and nobody else see them in what it says."""
        self._secrets = secrets
        self._redactor = Redactor(secrets)
        self.log.redact = self._redactor.text

    def start_with(self, params: str) -> None:
        """Begin, with the parameters and what was hidden."""
        self.start(params if self._secrets is None else merged(params, self._secrets))

    # --- the way through an attempt, by kinds

    @abstractmethod
    def start(self, params: str) -> None:
        """Begin, with the parameters as JSON text; where that may wait for room, `enter` says when it comes."""

    @abstractmethod
    def _ask_to_stop(self) -> None:
        """Tell the task, which may end or not."""

    @abstractmethod
    def _end_by_force(self) -> None:
        """End the task as far as that is possible, and count it as abandoned where it is not."""

    @property
    def _patience(self) -> float:
        """Seconds from the request to stop to the end by force."""
        return self.around.grace

    # --- for the kinds

    def enter(self) -> bool:
        """The task's code is about to run, on any thread; False when the attempt was withdrawn before."""
        with self.around.lock:
            self._begun = not self._withdrawn
            return self._begun

    @property
    def log(self) -> AttemptLog:
        """Most attempts log nothing, so it is opened when it is first asked for, on any thread."""
        with self.around.lock:
            if self._log is not None:
                return self._log
            opened = self._log = self.around.logs.open(self.run.id, self.run.fence)
        if self.ended:  # looked at after the log is known, as `finish` looks at the log after it has ended
            opened.close()
        return opened

    def finish(self, result: AttemptResult) -> None:
        """Tell the result, once; later ones are void."""
        if self.ended:
            return
        self.ended = True
        if self._timer is not None:
            self._timer.cancel()
        if self._timed_out:
            assert self.run.spec.policy.timeout is not None
            result = timed_out(self.run.spec.policy.timeout)
        if self._redactor is not None:
            result = redacted(result, self._redactor)
        if self._log is not None:
            self._log.close()
        self.around.live.discard(self)
        self._done(self.run, result)

    def arm_timeout(self) -> None:
        """The task begins now: its time is running."""
        timeout = self.run.spec.policy.timeout
        if timeout is not None and not self.ended and not self.stopping:
            self._set_timer(timeout.total_seconds(), self._time_out)

    def context(self) -> Context:
        """What the task sees of its run."""
        run = self.run
        return Context(
            id=f"run_{run.id}",
            job_id=f"job_{run.job_id}",
            due_at=run.due_at,
            attempt=run.attempt,
            fence=run.fence,
            log=self.log.write,
            progress=self._report_progress,
            cancelled=self._tell_cancelled,
        )

    def injected(self) -> dict[str, object]:
        """The arguments that are not the caller's."""
        return {
            name: self.context() if what == "run" else self.around.tools for name, what in self.task.injected.items()
        }

    def progressed(self, fraction: float) -> None:
        """Pass progress on; on the event loop."""
        if not self.ended:
            self._progressed(self.run, fraction)

    def abandon(self) -> None:
        """Count the task as still running although its attempt is over; `let_go` is called when it ends."""
        if not self._abandoned:
            self._abandoned = True
            self.around.abandoned += 1

    def end_if_forked(self) -> None:
        """End this process if it is a child that the task forked: it has the worker's connections, but is not it."""
        if os.getpid() != self.around.process:
            os._exit(0)

    def let_go(self) -> None:
        """The task's code has ended."""
        if self._abandoned:
            self._abandoned = False
            self.around.abandoned -= 1

    def _report_progress(self, fraction: float) -> None:
        self.progressed(fraction)

    def _tell_cancelled(self) -> bool:
        self.told = self.stopping
        return self.told

    def _withdraw(self) -> bool:
        """Take the attempt back before its code has begun; False when it is too late for that."""
        with self.around.lock:
            self._withdrawn = not self._begun
            return self._withdrawn

    def _time_out(self) -> None:
        self._timed_out = self.stopping = True
        self._ask_to_stop()
        self._set_timer(self._patience, self._force)

    def _force(self) -> None:
        log.warning("task_ignores_stop", run_id=self.run.id, task=self.task.name, fence=self.run.fence)
        self._end_by_force()
        self.finish(Stopped())

    def _set_timer(self, seconds: float, act: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.around.loop.call_later(seconds, act)
