"""The application object: where users declare their tasks and schedules, and through which they reach the store."""

import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, Protocol, Self, TypeVar, Unpack, overload

from horae.config import Settings, load_settings
from horae.core.model import LOCAL
from horae.jobs.declared import Declared
from horae.run import Run
from horae.sdk.declarations import Declarations, When
from horae.sdk.event_loop import Desk
from horae.sdk.options import Repeating
from horae.sdk.task import Task
from horae.tasks.registry import Registry

if TYPE_CHECKING:
    from horae.runtime.asgi import Embedded
    from horae.sdk.connection import Connection

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

Role = Literal["api", "planner", "worker"]

# What calling an async function gives. Without Any: type checkers give up on overloads that it makes ambiguous.
Running = Coroutine[object, None, T]


class TaskDecorator(Protocol):
    """Makes a task of a function; a first parameter of type Run is not the caller's to give."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[Run, P], Coroutine[Any, Any, T]], /
    ) -> Task[P, Running[T], T]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Run, P], R], /) -> Task[P, R, R]: ...
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, T]], /) -> Task[P, Running[T], T]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R, R]: ...


class ScheduleDecorator(Protocol):
    """Declares a schedule of a task, and makes one of a function that is none yet."""

    @overload
    def __call__(  # type: ignore[overload-overlap]  # a task can be called, too
        self, task: Task[P, R, T], /
    ) -> Task[P, R, T]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[Run, P], Coroutine[Any, Any, T]], /
    ) -> Task[P, Running[T], T]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Run, P], R], /) -> Task[P, R, R]: ...
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, T]], /) -> Task[P, Running[T], T]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R, R]: ...


class Horae:
    """An application: its tasks, its schedules, and where its jobs are kept.

    `store` is an address as in HORAE_STORE, which holds when none is given; the rest is as the environment and
    `horae.toml` say. `owner` is whom its jobs belong to. `name` tells the schedules that it declares from those of
    other applications with the same owner: unless given it is the module that makes the application.
    """

    def __init__(self, *, store: str | None = None, owner: str | None = None, name: str | None = None) -> None:
        self.store = store
        self.owner = owner or LOCAL
        self.name = name or _calling_module()
        self.registry = Registry()
        self._declarations = Declarations()
        self._desk = Desk(self._connect)

    # --- declaring

    @overload
    def task(self, function: Callable[Concatenate[Run, P], Coroutine[Any, Any, T]], /) -> Task[P, Running[T], T]: ...
    @overload
    def task(self, function: Callable[Concatenate[Run, P], R], /) -> Task[P, R, R]: ...
    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, T]], /) -> Task[P, Running[T], T]: ...
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
        cpu: bool = False,
    ) -> TaskDecorator: ...
    def task(
        self,
        name: Any = None,
        /,
        *,
        max_retries: int | None = None,
        timeout: float | timedelta | None = None,
        cpu: bool = False,
    ) -> Any:
        """Declare a task: coroutines run in the event loop, functions in threads, with `cpu=True` in processes.

        `max_retries` and `timeout` (seconds) hold for jobs that do not say otherwise.
        """
        if callable(name):
            return self._declare(name)

        def declare(function: Callable[..., Any]) -> Task[Any, Any, Any]:
            return self._declare(function, name=name, max_retries=max_retries, timeout=timeout, cpu=cpu)

        return declare

    def schedule(
        self,
        when: When,
        /,
        *,
        key: str | None = None,
        params: Mapping[str, Any] | None = None,
        **options: Unpack[Repeating],
    ) -> ScheduleDecorator:
        """Declare that a task runs by a schedule: `@app.schedule(cron("0 9 * * mon-fri", tz="Europe/Paris"))`.

        `when` is cron(...), every(...), or any form of the REST API. Workers bring it to the store when they start,
        under its key (the name of the task unless given); an older deploy never overwrites a newer one. Options are as
        in the REST API: `queue`, `priority`, `overlap`, `misfire`, `catchup`, and so on.
        """

        def declare(function: Any) -> Task[Any, Any, Any]:
            task: Task[Any, Any, Any] = function if isinstance(function, Task) else self._declare(function)
            self._declarations.add(task, when, key=key, params=params, options=options)
            return task

        return declare

    @property
    def declared(self) -> Sequence[Declared]:
        """The schedules that were declared."""
        return self._declarations.all()

    def _declare(self, function: Callable[..., Any], **settings: Any) -> Task[Any, Any, Any]:
        if isinstance(function, Task):
            raise TypeError(f"{function.name} is a task already; put @app.schedule above @app.task")
        task: Task[Any, Any, Any] = Task(function, desk=self._desk, owner=self.owner, **settings)
        self.registry.add(task)
        return task

    # --- the store

    @cached_property
    def settings(self) -> Settings:
        """What the environment and `horae.toml` say, read when it is first needed."""
        return load_settings({"store": self.store})

    def bind(self, connection: "Connection") -> AbstractContextManager[None]:
        """Work on a connection that somebody else opened in this event loop, for as long as the block lasts."""
        return self._desk.bind(connection)

    async def __aenter__(self) -> Self:
        """Connect now, so that what hinders it is told now."""
        try:
            await self._desk.call(_nothing)
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of the store; the next use connects again. The end of the process closes it, too."""
        await self._desk.close()

    def close_sync(self) -> None:
        """The same from code without an event loop."""
        self._desk.close_sync()

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
        """A node to be mounted into a Starlette or FastAPI application, with the API and whatever roles are asked for.

            horae = app.asgi(roles=("api", "planner", "worker"))
            api = FastAPI(lifespan=horae.lifespan)
            api.mount("/horae", horae)

        `auth="host"` when the application that it is mounted in lets in nobody but those who may do everything here;
        otherwise HORAE_AUTH holds, and while that is off only this machine is answered. `queues` and `concurrency` are
        as for `horae worker`.
        """
        from horae.runtime.asgi import Embedded  # late: it imports everything
        from horae.runtime.plan import NodePlan, checked_roles

        plan = NodePlan(roles=checked_roles(roles), queues=tuple(queues), concurrency=concurrency)
        return Embedded(self, lambda: self.settings, plan, trusting=auth == "host")


async def _nothing(connection: "Connection") -> None:
    """To connect is enough."""


def _calling_module() -> str:
    """The module whose code makes an application; a script goes by its file, for it is `__main__` only here."""
    frame = sys._getframe(2)
    name: str = frame.f_globals.get("__name__", "horae")
    if name in ("__main__", "__mp_main__"):
        return Path(frame.f_globals.get("__file__", "main")).stem
    return name
