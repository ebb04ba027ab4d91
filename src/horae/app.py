"""The application object: declares tasks and schedules, and connects to the store."""

import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, Protocol, Self, TypeVar, Unpack, overload

from horae.config import Settings, load_settings
from horae.core.drafts import Declared
from horae.core.model import LOCAL
from horae.core.owners import refuse_reserved_owner
from horae.run import Run
from horae.sdk.declarations import Declarations, When
from horae.sdk.event_loop import LoopBridge
from horae.sdk.options import ScheduleOptions, checked_owner, job_options
from horae.sdk.queues import Queue, declared_queues
from horae.sdk.retry import Retry
from horae.sdk.task import Task
from horae.tasks.hooks import Event, H, Hooks
from horae.tasks.registry import Registry

if TYPE_CHECKING:
    from horae.runtime.asgi import Embedded
    from horae.sdk.connection import Connection

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

Role = Literal["api", "planner", "worker"]

# The result of calling an async function. Without Any, which would make the overloads ambiguous for type checkers.
Running = Coroutine[object, None, T]
# Functions that can be tasks; callers do not pass a first parameter of type Run.
AsyncFunction = Callable[P, Coroutine[Any, Any, T]]
AsyncFunctionOfRun = Callable[Concatenate[Run, P], Coroutine[Any, Any, T]]
FunctionOfRun = Callable[Concatenate[Run, P], R]


class TaskDecorator(Protocol):
    """Turns a function into a task; `@app.schedule(...)` takes a task as well."""

    @overload
    def __call__(  # type: ignore[overload-overlap]  # a task can be called, too
        self, task: Task[P, R, T], /
    ) -> Task[P, R, T]: ...
    @overload
    def __call__(self, function: AsyncFunctionOfRun[P, T], /) -> Task[P, Running[T], T]: ...
    @overload
    def __call__(self, function: FunctionOfRun[P, R], /) -> Task[P, R, R]: ...
    @overload
    def __call__(self, function: AsyncFunction[P, T], /) -> Task[P, Running[T], T]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R, R]: ...


class Horae:
    """An application: its tasks, its schedules, and the store of its jobs.

    `store` is an address as in HORAE_STORE, which is the default; other settings come from the environment and
    `horae.toml`. `owner` owns its jobs. `name` distinguishes the schedules that it declares from those of other
    applications with the same owner; the default is the module that creates the application. `queues` are settings of
    queues, which workers write when they start: `queues=[Queue("mail", concurrency=5)]`.
    """

    imported_first: str | None = None  # a module that processes of `cpu=True` tasks import before the task

    def __init__(
        self,
        *,
        store: str | None = None,
        owner: str | None = None,
        name: str | None = None,
        queues: Sequence[Queue] = (),
    ) -> None:
        self._store = store
        refuse_reserved_owner(owner or LOCAL)
        self.owner = checked_owner(owner or LOCAL)
        self.name = name or _calling_module()
        self.queues = declared_queues(queues)
        self.registry = Registry()
        self.hooks = Hooks()
        self._declarations = Declarations()
        self._bridge = LoopBridge(self._connect)

    # --- declaring

    @overload
    def task(self, function: AsyncFunctionOfRun[P, T], /) -> Task[P, Running[T], T]: ...
    @overload
    def task(self, function: FunctionOfRun[P, R], /) -> Task[P, R, R]: ...
    @overload
    def task(self, function: AsyncFunction[P, T], /) -> Task[P, Running[T], T]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R, R]: ...
    @overload
    def task(
        self,
        name: str | None = None,
        /,
        *,
        max_retries: int | None = None,
        timeout: float | timedelta | None = None,
        retry: Retry | None = None,
        queue: str | None = None,
        priority: int | None = None,
        cpu: bool = False,
    ) -> TaskDecorator: ...
    def task(
        self,
        name: Any = None,
        /,
        *,
        max_retries: int | None = None,
        timeout: float | timedelta | None = None,
        retry: Retry | None = None,
        queue: str | None = None,
        priority: int | None = None,
        cpu: bool = False,
    ) -> Any:
        """Declare a task: coroutines run in the event loop, functions in threads, with `cpu=True` in processes.

        `max_retries`, `timeout` (seconds), `retry` (the delays), `queue` and `priority` are the defaults of its jobs.
        """
        if callable(name):
            return self._declare(name)
        jobs = job_options({"retry": retry, "queue": queue, "priority": priority})
        settings = {"max_retries": max_retries, "timeout": timeout, "retry": jobs.retry, "cpu": cpu}

        def declare(function: Callable[..., Any]) -> Task[Any, Any, Any]:
            return self._declare(function, name=name, queue=queue, priority=priority, **settings)

        return declare

    def schedule(
        self,
        when: When,
        /,
        *,
        key: str | None = None,
        params: Mapping[str, Any] | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> TaskDecorator:
        """Declare a schedule of a task: `@app.schedule(cron("0 9 * * mon-fri", tz="Europe/Paris"))`.

        `when` is cron(...), every(...), or any form of the REST API. Workers write it to the store when they start,
        under its key (by default the name of the task); an older deploy never overwrites a newer one. Options are as
        in the REST API: `queue`, `priority`, `overlap`, `misfire`, `catchup`, and so on.
        """

        def declare(function: Any) -> Task[Any, Any, Any]:
            task: Task[Any, Any, Any] = function if isinstance(function, Task) else self._declare(function)
            self._declarations.add(task, when, key=key, params=params, options=options)
            return task

        return declare

    def on(self, event: Event, /) -> Callable[[H], H]:
        """Declare a hook, sync or async: `@app.on("worker_start")`.

        `worker_start` and `worker_stop` take nothing, and are the place where a worker opens and closes what its tasks
        share, such as a connection pool. `task_start` and `task_end` take the run, `task_failed` the run and the
        exception; they run around each attempt, in the thread, event loop or process of the task.
        """
        return self.hooks.on(event)

    @property
    def declared(self) -> Sequence[Declared]:
        """The declared schedules."""
        return self._declarations.all()

    def _declare(self, function: Callable[..., Any], **settings: Any) -> Task[Any, Any, Any]:
        if isinstance(function, Task):
            raise TypeError(f"{function.name} is already a task; put @app.schedule above @app.task")
        task: Task[Any, Any, Any] = Task(function, bridge=self._bridge, owner=self.owner, **settings)
        task.hooks, task.imported_first = self.hooks, self.imported_first
        self.registry.add(task)
        return task

    # --- the store

    @property
    def store(self) -> str | None:
        """The address of the store; None: as the settings say."""
        return self._store

    @cached_property
    def settings(self) -> Settings:
        """The settings from the environment and `horae.toml`, read at first use."""
        return load_settings({"store": self.store})

    def bind(self, connection: "Connection") -> AbstractContextManager[None]:
        """Use a connection that was opened elsewhere in this event loop, within the block."""
        return self._bridge.bind(connection)

    async def __aenter__(self) -> Self:
        """Connect now, so that errors are raised here."""
        try:
            await self._bridge.call(_do_nothing)
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Disconnect from the store; the next use connects again. The exit of the process disconnects, too."""
        await self._bridge.close()

    def close_sync(self) -> None:
        """The same from code without an event loop."""
        self._bridge.close_sync()

    def _connect(self) -> AbstractAsyncContextManager["Connection"]:
        from horae.sdk.open_store import opened_connection  # late: it imports the stores

        return opened_connection(self.settings, self.registry)

    def asgi(
        self,
        *,
        roles: Sequence[Role] = ("api",),
        auth: Literal["settings", "host"] = "settings",
        queues: Sequence[str] = (),
        concurrency: int = 100,
    ) -> "Embedded":
        """Return a node with the given roles, to mount into a Starlette or FastAPI application.

            horae = app.asgi(roles=("api", "planner", "worker"))
            api = FastAPI(lifespan=horae.lifespan)
            api.mount("/horae", horae)

        Use `auth="host"` only if the host application authenticates, and every user that it admits may do everything
        here. Otherwise HORAE_AUTH applies, and while that is off only requests from this machine are served. `queues`
        and `concurrency` are as for `horae worker`.
        """
        from horae.runtime.asgi import Embedded  # late: it imports everything
        from horae.runtime.plan import NodePlan, checked_roles

        plan = NodePlan(roles=checked_roles(roles), queues=tuple(queues), concurrency=concurrency)
        return Embedded(self, lambda: self.settings, plan, trusting=auth == "host")


async def _do_nothing(connection: "Connection") -> None:
    """Do nothing; running it opens the connection."""


def _calling_module() -> str:
    """Return the module that creates the application; for a script its file name, as `__main__` differs per node."""
    frame = sys._getframe(2)
    name: str = frame.f_globals.get("__name__", "horae")
    if name in ("__main__", "__mp_main__"):
        return Path(frame.f_globals.get("__file__", "main")).stem
    return name
