"""Tasks that can be submitted: `await task.submit(...)` has a worker run what `await task(...)` would run here."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack

from horae.core.errors import NotFound
from horae.sdk.arguments import Arguments
from horae.sdk.handle import Handle
from horae.sdk.options import Options, Using, revised
from horae.sdk.results import Results
from horae.tasks import registry

if TYPE_CHECKING:
    from horae.sdk.event_loop import Desk
    from horae.sdk.submit import Order

P = ParamSpec("P")
R = TypeVar("R", covariant=True)
T = TypeVar("T", covariant=True)

Calls = Iterable[Mapping[str, Any]]


class Task(registry.Task[P, R], Generic[P, R, T]):
    """A task of an application: calling it runs it here and now (`R`), submitting it has a worker run it (`T`)."""

    def __init__(self, function: Callable[..., R], *, desk: "Desk", owner: str, **settings: Any) -> None:
        super().__init__(function, **settings)
        self.desk = desk
        self.owner = owner

    async def submit(self, *args: P.args, **kwargs: P.kwargs) -> Handle[T]:
        """Have a worker run the task now; returns when that is durable."""
        return await self._plain.submit(*args, **kwargs)

    def submit_sync(self, *args: P.args, **kwargs: P.kwargs) -> Handle[T]:
        """The same from code without an event loop: scripts, Flask, Django."""
        return self._plain.submit_sync(*args, **kwargs)

    async def submit_many(self, calls: Calls) -> list[Handle[T]]:
        """Submit the task once for each dict of arguments, in large batches.

        All are checked before the first is written, so that a mistake in one leaves nothing behind.
        """
        return await self._plain.submit_many(calls)

    def submit_many_sync(self, calls: Calls) -> list[Handle[T]]:
        """The same from code without an event loop."""
        return self._plain.submit_many_sync(calls)

    def using(self, **choices: Unpack[Using]) -> "Submission[P, T]":
        """Say how it is to be run: `await task.using(delay=60, queue="mail").submit(...)`.

        `at` (an aware datetime) or `delay` say when; durations are seconds or timedeltas. `tx` is a connection of one's
        own to the PostgreSQL database of the store (asyncpg, psycopg 3 or SQLAlchemy): the job exists if and when its
        transaction commits. The rest is as in the REST API: `queue`, `priority`, `ordering_key`, `on_failure`, `key`,
        `name`, `labels`, `max_retries`, `timeout`, `start_within`, `secrets`, `idempotency_key`.
        """
        return self._plain.using(**choices)

    def handle(self, job_id: str) -> Handle[T]:
        """The handle of a job of this task that was submitted elsewhere, by its id (`job_…`)."""
        if not job_id.startswith("job_"):
            raise NotFound("job", job_id)
        return Handle(job_id.removeprefix("job_"), self.desk, self.owner, self.results.of)

    @cached_property
    def _plain(self) -> "Submission[P, T]":
        return Submission(self, Options())

    @cached_property
    def arguments(self) -> Arguments:
        """How calls become parameters."""
        return Arguments(self)

    @cached_property
    def results(self) -> Results:
        """How what it returned is read."""
        return Results(self)


class Submission(Generic[P, T]):
    """A task together with how it is to be run; may be kept and used again."""

    __slots__ = ("_options", "_task")

    def __init__(self, task: Task[P, Any, T], options: Options) -> None:
        self._task = task
        self._options = options

    def using(self, **choices: Unpack[Using]) -> "Submission[P, T]":
        """The same with more said; see `Task.using`."""
        return Submission(self._task, revised(self._options, choices))

    async def submit(self, *args: P.args, **kwargs: P.kwargs) -> Handle[T]:
        """Have a worker run the task; returns when that is durable, or with `tx` part of the transaction."""
        params = self._encode(args, kwargs)
        if self._options.tx is not None:
            return (await self._enlist([params]))[0]
        return self._handle(await self._task.desk.call(partial(self._order.create, params)))

    def submit_sync(self, *args: P.args, **kwargs: P.kwargs) -> Handle[T]:
        """The same from code without an event loop."""
        params = self._encode(args, kwargs)
        if self._options.tx is not None:
            return self._enlist_sync([params], "submit")[0]
        return self._handle(self._task.desk.call_sync(partial(self._order.create, params), "submit"))

    async def submit_many(self, calls: Calls) -> list[Handle[T]]:
        """Submit the task once for each dict of arguments."""
        params = self._encode_all(calls)
        if self._options.tx is not None:
            return await self._enlist(params)
        return self._handles(await self._task.desk.call(partial(self._order.create_many, params)))

    def submit_many_sync(self, calls: Calls) -> list[Handle[T]]:
        """The same from code without an event loop."""
        params = self._encode_all(calls)
        if self._options.tx is not None:
            return self._enlist_sync(params, "submit_many")
        return self._handles(self._task.desk.call_sync(partial(self._order.create_many, params), "submit_many"))

    @property
    def _order(self) -> "Order":
        from horae.sdk.submit import Order  # late: a process that declares tasks need not submit any

        return Order(task=self._task.name, owner=self._task.owner, options=self._options)

    async def _enlist(self, params: Sequence[str]) -> list[Handle[T]]:
        """Write the jobs through the caller's transaction, on the caller's event loop."""
        from horae.sdk.transactions import execute

        enlisted = await self._task.desk.call(partial(self._order.enlist, params))
        await execute(self._options.tx, enlisted.statement)
        return self._handles(enlisted.jobs)

    def _enlist_sync(self, params: Sequence[str], verb: str) -> list[Handle[T]]:
        from horae.sdk.transactions import execute_sync

        enlisted = self._task.desk.call_sync(partial(self._order.enlist, params), verb)
        execute_sync(self._options.tx, enlisted.statement)
        return self._handles(enlisted.jobs)

    def _encode(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> str:
        return self._task.arguments.encode(args, kwargs, self._options.secrets)

    def _encode_all(self, calls: Calls) -> list[str]:
        encode, secrets = self._task.arguments.encode, self._options.secrets
        return [encode((), call, secrets) for call in calls]

    def _handle(self, uuid: str) -> Handle[T]:
        return self._handles([uuid])[0]

    def _handles(self, uuids: Sequence[str]) -> list[Handle[T]]:
        desk, owner, decode = self._task.desk, self._task.owner, self._task.results.of
        return [Handle(uuid, desk, owner, decode) for uuid in uuids]
