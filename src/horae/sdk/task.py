"""Tasks of an application: `await task(...)` runs one here, `await task.submit(...)` has a worker run it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack

from horae.core.errors import NotFound
from horae.core.ids import is_id
from horae.sdk.arguments import ArgumentEncoder
from horae.sdk.handle import Handle
from horae.sdk.options import SubmitOptions, UsingOptions, with_options
from horae.sdk.results import ResultDecoder
from horae.tasks.registry import TaskFunction

if TYPE_CHECKING:
    from horae.sdk.event_loop import LoopBridge
    from horae.sdk.submit import JobCreator

P = ParamSpec("P")
R = TypeVar("R", covariant=True)
T = TypeVar("T", covariant=True)

Calls = Iterable[Mapping[str, Any]]


class Submission(Generic[P, T]):
    """A task with options for its submission; can be kept and used again."""

    __slots__ = ("_options", "_task")

    def __init__(self, task: "Task[P, Any, T]", options: SubmitOptions) -> None:
        self._task = task
        self._options = options

    def using(self, **options: Unpack[UsingOptions]) -> "Submission[P, T]":
        """Set options for a submission: `await task.using(delay=60, queue="mail").submit(...)`.

        `at` (an aware datetime) or `delay` set the due time; durations are seconds or timedeltas. `tx` is your own
        connection to the PostgreSQL database of the store (asyncpg, psycopg 3, SQLAlchemy, Django): the job exists once
        its transaction commits. `owner` is whose job it is, if not the application's; `retry` is a Retry(...). The rest
        is as in the REST API: `queue`, `priority`, `ordering_key`, `on_failure`, `key`, `name`, `labels`,
        `max_retries`, `timeout`, `start_within`, `secrets`, `idempotency_key`.
        """
        return Submission(self._task, with_options(self._options, options))

    async def submit(self, *args: P.args, **kwargs: P.kwargs) -> Handle[T]:
        """Have a worker run the task; returns once the job is durable or, with `tx`, part of the transaction."""
        params = self._encode(args, kwargs)
        if self._options.tx is not None:
            return (await self._enlist([params]))[0]
        return self._handle(await self._task.bridge.call(partial(self._creator.create, params)))

    def submit_sync(self, *args: P.args, **kwargs: P.kwargs) -> Handle[T]:
        """The same from code without an event loop: scripts, Flask, Django."""
        params = self._encode(args, kwargs)
        if self._options.tx is not None:
            return self._enlist_sync([params], "submit")[0]
        return self._handle(self._task.bridge.call_sync(partial(self._creator.create, params), "submit"))

    async def submit_many(self, calls: Calls) -> list[Handle[T]]:
        """Submit the task once for each dict of arguments, in large batches.

        All are checked before the first is written, so an error in one means that none is submitted.
        """
        params = self._encode_all(calls)
        if self._options.tx is not None:
            return await self._enlist(params)
        return self._handles(await self._task.bridge.call(partial(self._creator.create_many, params)))

    def submit_many_sync(self, calls: Calls) -> list[Handle[T]]:
        """The same from code without an event loop."""
        params = self._encode_all(calls)
        if self._options.tx is not None:
            return self._enlist_sync(params, "submit_many")
        return self._handles(self._task.bridge.call_sync(partial(self._creator.create_many, params), "submit_many"))

    def handle(self, job_id: str) -> Handle[T]:
        """Return the handle of a submitted job of this task and owner, by its id (`job_…`)."""
        if not job_id.startswith("job_") or not is_id(job_id.removeprefix("job_")):
            raise NotFound("job", job_id)
        return self._handle(job_id.removeprefix("job_"))

    def check_arguments(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Raise now what `submit` would raise for these arguments; nothing is submitted."""
        self._encode(args, kwargs)

    @property
    def _creator(self) -> "JobCreator":
        from horae.sdk.submit import JobCreator  # late: a process that only declares tasks does not submit

        task = self._task
        return JobCreator(task=task.name, owner=self._owner, by=task.owner, options=self._options)

    @property
    def _owner(self) -> str:
        return self._options.owner or self._task.owner

    async def _enlist(self, params: Sequence[str]) -> list[Handle[T]]:
        """Write the jobs through the caller's transaction, in the caller's event loop."""
        from horae.sdk.transactions import execute

        enlisted = await self._task.bridge.call(partial(self._creator.enlist, params))
        await execute(self._options.tx, enlisted.statement)
        return self._handles(enlisted.jobs)

    def _enlist_sync(self, params: Sequence[str], verb: str) -> list[Handle[T]]:
        from horae.sdk.transactions import execute_sync

        enlisted = self._task.bridge.call_sync(partial(self._creator.enlist, params), verb)
        execute_sync(self._options.tx, enlisted.statement)
        return self._handles(enlisted.jobs)

    def _encode(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> str:
        return self._task.arguments.encode(args, kwargs, self._options.secrets)

    def _encode_all(self, calls: Calls) -> list[str]:
        return self._task.arguments.encode_all(calls, self._options.secrets)

    def _handle(self, uuid: str) -> Handle[T]:
        return self._handles([uuid])[0]

    def _handles(self, uuids: Sequence[str]) -> list[Handle[T]]:
        bridge, owner, decode = self._task.bridge, self._owner, self._task.results.decode
        return [Handle(uuid, bridge, owner, decode) for uuid in uuids]


class Task(TaskFunction[P, R], Submission[P, T], Generic[P, R, T]):
    """A task of an application: calling it runs it in place (`R`), submitting it has a worker run it (`T`)."""

    def __init__(self, function: Callable[..., R], *, bridge: "LoopBridge", owner: str, **settings: Any) -> None:
        TaskFunction.__init__(self, function, **settings)
        Submission.__init__(self, self, SubmitOptions())
        self.bridge = bridge
        self.owner = owner

    @cached_property
    def arguments(self) -> ArgumentEncoder:
        """Encodes arguments of calls as parameters."""
        return ArgumentEncoder(self)

    @cached_property
    def results(self) -> ResultDecoder:
        """Decodes stored results."""
        return ResultDecoder(self)
