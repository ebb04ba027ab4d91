"""Starts attempts: of coroutines on the event loop, of functions in threads or child processes."""

import asyncio
from collections.abc import Callable
from typing import Any

import structlog

from horae.core.errors import Fatal
from horae.core.model import Run, Spec
from horae.engine.execution.async_attempt import AsyncAttempt
from horae.engine.execution.attempt import WAITING_PER_SLOT, AttemptEnvironment, Done, Progressed, RunningAttempt
from horae.engine.execution.computations import Computations
from horae.engine.execution.outcome import failure, failure_of
from horae.engine.execution.process_attempt import ProcessAttempt, ProcessPool
from horae.engine.execution.shared_task import SharedTask
from horae.engine.execution.task_logging import begin_capture, end_capture
from horae.engine.execution.thread_attempt import ThreadAttempt, ThreadPool
from horae.ports.blobs import Blobs
from horae.ports.clock import Clock
from horae.run_logs import LIMIT, LogWriter
from horae.secrets.redaction import SMALL
from horae.secrets.sealer import Sealer, SecretsLocked
from horae.tasks.name_lookups import NameLookups
from horae.tasks.process_groups import ProcessGroups
from horae.tasks.registry import AnyTask, Registry, TaskFunction, TaskKind
from horae.tasks.tools import Tools

log = structlog.get_logger(__name__)


class NoSuchTask(Fatal):
    """The run names a task that this node does not have."""


class Executor:
    """Starts attempts, each of which reports exactly one result."""

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
        """Must be called on the event loop. `processes` None means one per core; `grace` is in seconds.

        Without a `sealer` only secrets that were stored without a key can be read.
        """
        self.registry = registry
        self._sealer = sealer or Sealer()
        self._blobs = blobs
        self._groups = ProcessGroups()
        loop = asyncio.get_running_loop()
        self._env = AttemptEnvironment(
            loop=loop,
            shared_task=SharedTask(loop),
            logs=LogWriter(blobs, clock, limit=log_limit),
            tools=Tools(
                processes=self._groups,
                lookups=NameLookups(),
                allow_shell=allow_shell,
                http_allow=http_allow,
                grace=grace,
            ),
            threads=pool or ThreadPool(threads),
            processes=ProcessPool(self._groups, loop, limit=processes),
            computations=Computations(loop),
            grace=grace,
            most_lent=WAITING_PER_SLOT * threads,
        )
        self._loading: set[asyncio.Task[None]] = set()
        begin_capture()

    @property
    def abandoned(self) -> int:
        """Attempts that are over while their code still runs: each occupies a slot until it ends."""
        return self._env.abandoned

    @property
    def lent(self) -> int:
        """Attempts whose tasks wait for other runs: they occupy no slot."""
        return self._env.lent

    def when_lent(self, call: Callable[[], None]) -> None:
        """Call a function whenever an attempt lends its slot."""
        self._env.when_lent = call

    def begin(self, run: Run, done: Done, progressed: Progressed) -> RunningAttempt:
        """Start an attempt; `done` is called once, on the event loop and never before this returns."""
        spec = run.spec
        attempt = self._attempt(self.registry.get(spec.task) or _missing(spec.task), run, done, progressed)
        if spec.params_blob is None and (spec.secrets is None or len(spec.secrets) <= SMALL):
            if spec.secrets is None or self._open_secrets(attempt, spec.secrets):
                attempt.start_with(spec.params)
        else:
            loading = self._env.loop.create_task(self._load_and_start(attempt, spec))
            self._loading.add(loading)
            loading.add_done_callback(self._loading.discard)
        return attempt

    def _open_secrets(self, attempt: RunningAttempt, sealed: str) -> bool:
        """Give the attempt its secrets; False when it fails because they cannot be read here."""
        try:
            attempt.hide(self._sealer.open(sealed))
        except SecretsLocked as exc:
            # a failure that another attempt may mend: another node may have the key
            self._env.loop.call_soon_threadsafe(attempt.finish, failure("secrets", str(exc)))
            return False
        return True

    def _attempt(self, task: AnyTask, run: Run, done: Done, progressed: Progressed) -> RunningAttempt:
        match task.kind:
            case TaskKind.ASYNC:
                return AsyncAttempt(run, task, self._env, done, progressed)
            case TaskKind.THREAD:
                return ThreadAttempt(run, task, self._env, done, progressed)
            case TaskKind.PROCESS:
                return ProcessAttempt(run, task, self._env, done, progressed)

    async def _load_and_start(self, attempt: RunningAttempt, spec: Spec) -> None:
        """Start an attempt whose parameters are in the blobs, or whose secrets are large."""
        sealed = spec.secrets
        if sealed is not None and not await self._env.computations.result(lambda: self._open_secrets(attempt, sealed)):
            return
        try:
            params = spec.params if spec.params_blob is None else await self._stored_params(spec.params_blob)
        except Exception as exc:  # noqa: BLE001 - whatever is wrong with the blobs, only this attempt fails
            attempt.finish(failure_of(exc))
            return
        if params is None:
            detail = f"the parameters are not in the blobs any more ({spec.params_blob})"
            attempt.finish(failure("ParamsLost", detail, fatal=True))
        else:
            attempt.start_with(params)

    async def _stored_params(self, key: str) -> str | None:
        data = await self._blobs.get(key)
        return None if data is None else data.decode()

    def flush_logs(self) -> None:
        """Write what tasks have logged so far now, rather than within a second."""
        self._env.logs.schedule_flush(0)

    async def close(self) -> None:
        """End everything that still runs, by force, and write the logs."""
        for attempt in list(self._env.live):
            attempt.kill()
        if self._loading:
            for loading in self._loading:
                loading.cancel()
            await asyncio.wait(self._loading)
        await self._env.processes.close()
        await self._groups.close()
        self._env.threads.close()
        if self._env.leftovers:
            await asyncio.wait(self._env.leftovers, timeout=self._env.grace)
        await self._env.computations.close()
        if self.abandoned:
            log.warning("tasks_left_running", count=self.abandoned)
        end_capture()
        await self._env.logs.close()


def _missing(name: str) -> AnyTask:
    """Return a task that fails because the node does not have it."""

    async def missing(**params: object) -> None:
        raise NoSuchTask(f"this node has no task {name!r}")

    return TaskFunction[Any, Any](missing)
