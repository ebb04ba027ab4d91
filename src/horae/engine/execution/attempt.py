"""One attempt of a run under way: it ends in exactly one result, reported on the event loop."""

import asyncio
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import structlog

from horae.core.decisions.results import Failure
from horae.core.errors import WaitRefused
from horae.core.model import Run
from horae.engine.execution.computations import Computations
from horae.engine.execution.outcome import AttemptResult, Stopped, redacted, size_of, timed_out
from horae.engine.execution.shared_task import SharedTask
from horae.run import Run as Context
from horae.run_logs import AttemptLog, LogWriter
from horae.secrets.redaction import SMALL, Redactor
from horae.secrets.sealer import merged
from horae.tasks.registry import AnyTask
from horae.tasks.tools import Tools

if TYPE_CHECKING:  # each pool runs attempts of its own kind
    from horae.engine.execution.process_attempt import ProcessPool
    from horae.engine.execution.thread_attempt import ThreadPool

log = structlog.get_logger(__name__)

Done = Callable[[Run, AttemptResult], None]
Progressed = Callable[[Run, float], None]

WAITING_PER_SLOT = 10  # tasks that may wait for other runs, for each slot of a worker


@dataclass(slots=True)
class AttemptEnvironment:
    """What the attempts of one executor share."""

    loop: asyncio.AbstractEventLoop
    shared_task: SharedTask
    logs: LogWriter
    tools: Tools
    threads: "ThreadPool"
    processes: "ProcessPool"
    computations: Computations
    grace: float  # seconds between the request to stop and the end by force
    live: "set[RunningAttempt]" = field(default_factory=set)
    leftovers: set[asyncio.Task[None]] = field(default_factory=set)  # cancelled coroutines that have not ended yet
    lock: threading.Lock = field(default_factory=threading.Lock)  # between the loop and threads, never held for long
    abandoned: int = 0  # attempts that are over although their code is still running
    lent: int = 0  # attempts whose slots others may use, because their tasks wait for other runs
    most_lent: int = 0
    when_lent: Callable[[], None] = lambda: None
    process: int = field(default_factory=os.getpid)  # id of the process that the attempts belong to


class RunningAttempt(ABC):
    """A running attempt, which can be stopped on request or by force; its `run` changes with its progress."""

    # Defaults that most attempts never change are on the class, so that starting an attempt is cheap.
    _timer: asyncio.TimerHandle | None = None
    _log: AttemptLog | None = None
    _secrets: str | None = None
    _params = "{}"
    _waits = 0  # for other runs, under way
    _in_thread = False
    _redactor: Redactor | None = None
    stopping = False  # asked to stop, or timed out
    noticed_stop = False  # the task has read that it should stop
    cancelled = False  # by a user, so that the run ends with it
    _timed_out = False
    _begun = False
    _withdrawn = False
    _abandoned = False
    ended = False

    def __init__(self, run: Run, task: AnyTask, env: AttemptEnvironment, done: Done, progressed: Progressed) -> None:
        self.run = run
        self.task = task
        self.env = env
        self._done = done
        self._progressed = progressed
        env.live.add(self)

    # --- for the worker

    def stop(self) -> None:
        """Ask the task to stop; after the grace it is stopped by force, or abandoned."""
        if self.ended or self.stopping:
            return
        self.stopping = True
        if self._withdraw():
            self.finish(Stopped())
            return
        self._ask_to_stop()
        self._set_timer(self._stop_grace, self._force)

    def kill(self) -> None:
        """Stop the task at once by force, or abandon it."""
        if self.ended:
            return
        self.stopping = True
        if not self._withdraw():
            self._end_by_force()
        self.finish(Stopped())

    # --- for the executor

    def hide(self, secrets: str) -> None:
        """Merge secrets into the parameters, and redact them in logs and results."""
        self._secrets = secrets
        self._redactor = Redactor(secrets)

    def start_with(self, params: str) -> None:
        """Start the task with its parameters and secrets."""
        self._params = params
        self.start(params if self._secrets is None else merged(params, self._secrets))

    # --- what each kind of attempt does in its own way

    @abstractmethod
    def start(self, params: str) -> None:
        """Start the task with parameters as JSON text; a kind that may wait for a thread or process calls `enter`."""

    @abstractmethod
    def _ask_to_stop(self) -> None:
        """Request the task to end; it may ignore that."""

    @abstractmethod
    def _end_by_force(self) -> None:
        """End the task if that is possible, and else count it as abandoned."""

    @property
    def _stop_grace(self) -> float:
        """Seconds from the request to stop to the end by force."""
        return self.env.grace

    # --- for the kinds

    def enter(self) -> bool:
        """Note on any thread that the task's code is about to run; False when the attempt was withdrawn before."""
        with self.env.lock:
            self._begun = not self._withdrawn
            return self._begun

    @property
    def log(self) -> AttemptLog:
        """The log, opened on first use on any thread, because most attempts log nothing."""
        with self.env.lock:
            if self._log is not None:
                return self._log
            redact = None if self._redactor is None else self._redactor.text
            opened = self._log = self.env.logs.open(self.run.id, self.run.fence, redact)
        if self.ended:  # checked after `_log` is set, as `finish` checks `_log` after `ended` is set
            opened.close()
        return opened

    def write_log(self, level: str, text: str) -> bool:
        """Write to the log; opens it on first use."""
        return self.log.write(level, text)

    def finish(self, result: AttemptResult) -> None:
        """Report the result once; later ones are void."""
        if self.ended:
            return
        self.ended = True
        if self._timer is not None:
            self._timer.cancel()
        if self._timed_out:
            result = self._overdue
        if self._log is not None:
            self._log.close()
        if self._waits:
            self._end_waits()
        self.env.live.discard(self)
        redactor = self._redactor
        if redactor is None:
            self._done(self.run, result)
        elif size_of(result) <= SMALL:
            self._done(self.run, redacted(result, redactor))
        else:
            self.env.computations.run(lambda: redacted(result, redactor), lambda safe: self._done(self.run, safe))

    def lend_slot(self) -> Run | None:
        """Let others use the slot while the task waits, and return the run; None in another event loop.

        Raises WaitRefused when too many wait already.
        """
        if self.ended or asyncio.get_running_loop() is not self.env.loop:
            return None
        if self._waits == 0:
            self._lend()
        self._waits += 1
        return self.run

    def take_slot_back(self) -> None:
        """End one wait; the attempt may run beyond the number of slots until others end."""
        if self._waits == 1:
            self._end_waits()
        elif self._waits:
            self._waits -= 1

    def _lend(self) -> None:
        env = self.env
        if env.lent >= env.most_lent:
            raise WaitRefused(
                f"{env.lent} tasks of this worker already wait for other runs, and more might stand still; submit fewer"
                " at a time, let the last child do what follows, or raise --concurrency"
            )
        env.lent += 1
        if self._in_thread:
            env.threads.add_thread()
        env.loop.call_soon(env.when_lent)

    def _end_waits(self) -> None:
        self._waits = 0
        self.env.lent -= 1
        if self._in_thread:
            self.env.threads.remove_thread()

    def arm_timeout(self) -> None:
        """Count the timeout from now, when the task's code begins."""
        timeout = self.run.spec.policy.timeout
        if timeout is not None and not self.ended and not self.stopping:
            self._set_timer(timeout.total_seconds(), self._time_out)

    def context(self) -> Context:
        """Return what the task sees of its run."""
        run = self.run
        return Context(
            id=f"run_{run.id}",
            job_id=f"job_{run.job_id}",
            owner=run.owner,
            params=self._params,
            task=self.task.name,
            due_at=run.due_at,
            attempt=run.attempt,
            fence=run.fence,
            log=self.write_log,
            progress=self._report_progress,
            cancelled=self._notice_stop,
        )

    def hook_error(self, exc: BaseException) -> BaseException | None:
        """Return what hooks of `task_failed` are told; None if the task was stopped on request."""
        if self._timed_out:
            return TimeoutError(self._overdue.error.message)
        return None if self.stopping else exc

    @property
    def _overdue(self) -> Failure:
        assert self.run.spec.policy.timeout is not None
        return timed_out(self.run.spec.policy.timeout)

    def injected(self) -> dict[str, object]:
        """Return the arguments that do not come from the caller."""
        return {name: self.context() if what == "run" else self._tools() for name, what in self.task.injected.items()}

    def _tools(self) -> Tools:
        tools = replace(self.env.tools, owner=self.run.owner)
        return tools if self._redactor is None else replace(tools, contains_secret=self._redactor.contains)

    def progressed(self, fraction: float) -> None:
        """Report progress; on the event loop."""
        if not self.ended:
            self._progressed(self.run, fraction)

    def abandon(self) -> None:
        """Count the task as still running although its attempt is over, until `let_go` is called."""
        if not self._abandoned:
            self._abandoned = True
            self.env.abandoned += 1

    def let_go(self) -> None:
        """Note that the task's code has ended."""
        if self._abandoned:
            self._abandoned = False
            self.env.abandoned -= 1

    def end_if_forked(self) -> None:
        """End this process if it is a child that the task forked: it shares the worker's connections."""
        if os.getpid() != self.env.process:
            os._exit(0)

    def _report_progress(self, fraction: float) -> None:
        self.progressed(fraction)

    def _notice_stop(self) -> bool:
        self.noticed_stop = self.stopping
        return self.noticed_stop

    def _withdraw(self) -> bool:
        """Prevent the task's code from running; False when it has already begun."""
        with self.env.lock:
            self._withdrawn = not self._begun
            return self._withdrawn

    def _time_out(self) -> None:
        self._timed_out = self.stopping = True
        self._ask_to_stop()
        self._set_timer(self._stop_grace, self._force)

    def _force(self) -> None:
        log.warning("task_ignores_stop", run=f"run_{self.run.id}", task=self.task.name, fence=self.run.fence)
        self._end_by_force()
        self.finish(Stopped())

    def _set_timer(self, seconds: float, act: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.env.loop.call_later(seconds, act)
