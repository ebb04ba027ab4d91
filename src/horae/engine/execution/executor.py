"""Runs the tasks: coroutines in the event loop, functions in threads or processes."""

import asyncio
from typing import Any

import structlog

from horae.core.errors import Fatal
from horae.core.model import Run
from horae.engine.execution.attempt import AttemptEnvironment, Done, Progressed, RunningAttempt
from horae.engine.execution.outcome import AttemptResult, Stopped, failure, failure_of, success, trace
from horae.engine.execution.process_attempt import ProcessAttempt, ProcessPool
from horae.engine.execution.shared_task import SharedTask
from horae.engine.execution.thread_attempt import ThreadAttempt, ThreadPool
from horae.ports.blobs import Blobs
from horae.ports.clock import Clock
from horae.run_logs import LIMIT, LogWriter
from horae.secrets.sealer import Sealer, SecretsLocked
from horae.tasks.process_groups import ProcessGroups
from horae.tasks.registry import AnyTask, Registry, TaskFunction, TaskKind
from horae.tasks.tools import Tools

log = structlog.get_logger(__name__)


class NoSuchTask(Fatal):
    """The run names a task that this node does not have."""


class AsyncAttempt(RunningAttempt):
    """An attempt of a coroutine, in the event loop with a context of its own."""

    def start(self, params: str) -> None:
        self._params = params
        self.around.carrier.carry(self.task.name, self._handle)

    async def _handle(self, handler: asyncio.Task[None]) -> None:
        if self.ended:
            return  # withdrawn before its first step
        self._begun = True
        self._handler = handler
        if self.run.spec.policy.timeout is not None:
            self.arm_timeout()
        result: AttemptResult
        try:
            arguments = self.task.bind(self._params)
            if self.task.injected:
                arguments = {**arguments, **self.injected()}
            result = success(await self.task.function(**arguments))
        except BaseException as exc:  # a task that raises SystemExit must not end the worker
            if isinstance(exc, GeneratorExit) and asyncio.current_task(self.around.loop) is not handler:
                raise  # not the task's: it is thrown away together with its event loop
            result = self._judged(exc)
        self.end_if_forked()
        if self._abandoned:
            self.let_go()
        self.finish(Stopped() if self.stopping else result)

    def _judged(self, exc: BaseException) -> AttemptResult:
        if isinstance(exc, asyncio.CancelledError):
            return failure("CancelledError", "the task was cancelled, but not by Horae")
        if (text := trace(exc)) is not None:
            self.log.write("ERROR", text)
        return failure_of(exc)

    @property
    def _patience(self) -> float:
        return self.around.grace * 1.5  # it may itself be waiting out the grace of a program

    def _ask_to_stop(self) -> None:
        self._handler.cancel()

    def _end_by_force(self) -> None:
        """A second cancel interrupts whatever the task does on its way out."""
        self._handler.cancel()
        self.around.loop.call_soon(self._handler.cancel)
        self.around.leftovers.add(self._handler)
        self._handler.add_done_callback(self.around.leftovers.discard)
        self.abandon()


class Executor:
    """Begins attempts and sees each through to its result."""

    def __init__(
        self,
        registry: Registry,
        blobs: Blobs,
        clock: Clock,
        *,
        threads: int,
        allow_shell: bool,
        pool: ThreadPool | None = None,
        processes: int | None = None,
        http_allow: tuple[str, ...] = (),
        sealer: Sealer | None = None,
        log_limit: int = LIMIT,
        grace: float = 1.0,
    ) -> None:
        """To be made on the event loop. `processes` None means one per core; `grace` is in seconds.

        Without a `sealer` only secrets that were kept without a key can be read.
        """
        self.registry = registry
        self._sealer = sealer or Sealer()
        self._blobs = blobs
        self._groups = ProcessGroups()
        loop = asyncio.get_running_loop()
        self._around = AttemptEnvironment(
            loop=loop,
            carrier=SharedTask(loop),
            logs=LogWriter(blobs, clock, limit=log_limit),
            tools=Tools(processes=self._groups, allow_shell=allow_shell, http_allow=http_allow, grace=grace),
            grace=grace,
        )
        self._threads = pool or ThreadPool(threads)
        self._processes = ProcessPool(self._groups, self._around, limit=processes)
        self._loading: set[asyncio.Task[None]] = set()

    @property
    def abandoned(self) -> int:
        """Attempts that are over while their code still runs: each holds a slot until it ends."""
        return self._around.abandoned

    def begin(self, run: Run, done: Done, progressed: Progressed) -> RunningAttempt:
        """Start an attempt; `done` is called once, on the event loop and never before this returns."""
        spec = run.spec
        execution = self._execution(self.registry.get(spec.task) or _missing(spec.task), run, done, progressed)
        if spec.secrets is not None and not self._open_secrets(execution, spec.secrets):
            return execution
        if spec.params_blob is None:
            execution.start_with(spec.params)
        else:
            loading = self._around.loop.create_task(self._load_and_start(execution, spec.params_blob))
            self._loading.add(loading)
            loading.add_done_callback(self._loading.discard)
        return execution

    def _open_secrets(self, execution: RunningAttempt, sealed: str) -> bool:
        """Give the attempt its secrets; False when it fails because they cannot be read here."""
        try:
            execution.hide(self._sealer.open(sealed))
        except SecretsLocked as exc:
            self._around.loop.call_soon(execution.finish, failure("secrets", str(exc)))  # another node may have the key
            return False
        return True

    def _execution(self, task: AnyTask, run: Run, done: Done, progressed: Progressed) -> RunningAttempt:
        match task.kind:
            case TaskKind.ASYNC:
                return AsyncAttempt(run, task, self._around, done, progressed)
            case TaskKind.THREAD:
                return ThreadAttempt(run, task, self._around, done, progressed, self._threads)
            case TaskKind.PROCESS:
                return ProcessAttempt(run, task, self._around, done, progressed, self._processes)

    async def _load_and_start(self, execution: RunningAttempt, key: str) -> None:
        try:
            data = await self._blobs.get(key)
            params = None if data is None else data.decode()
        except Exception as exc:  # noqa: BLE001 - whatever ails the blobs, it is this attempt that fails
            execution.finish(failure_of(exc))
            return
        if params is None:
            execution.finish(failure("ParamsLost", f"the parameters are not in the blobs any more ({key})", fatal=True))
        else:
            execution.start_with(params)

    def flush_logs(self) -> None:
        """Write what tasks have logged so far, rather than within a second."""
        self._around.logs.schedule_flush(0)

    async def close(self) -> None:
        """End everything that still runs, by force, and write the logs."""
        for execution in list(self._around.live):
            execution.kill()
        if self._loading:
            for loading in self._loading:
                loading.cancel()
            await asyncio.wait(self._loading)
        await self._processes.close()
        await self._groups.close()
        self._threads.close()
        if self._around.leftovers:
            await asyncio.wait(self._around.leftovers, timeout=self._around.grace)
        if self.abandoned:
            log.warning("tasks_left_running", count=self.abandoned)
        await self._around.logs.close()


def _missing(name: str) -> AnyTask:
    """Stands for a task that is not there."""

    async def missing(**params: object) -> None:
        raise NoSuchTask(f"this node has no task {name!r}")

    return TaskFunction[Any, Any](missing)
