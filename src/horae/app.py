"""The application object: where users declare their tasks."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from horae.run import Run
from horae.tasks.registry import Registry, Task

P = ParamSpec("P")
R = TypeVar("R")


class TaskDecorator(Protocol):
    """Makes a task of a function; a first parameter of type Run is not the caller's to give."""

    @overload
    def __call__(self, function: Callable[Concatenate[Run, P], R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


class Horae:
    """An application: its tasks, and where its jobs are kept."""

    def __init__(self, *, store: str | None = None, owner: str | None = None) -> None:
        self.store = store  # None: as HORAE_STORE says
        self.owner = owner
        self.registry = Registry()

    @overload
    def task(self, function: Callable[Concatenate[Run, P], R], /) -> Task[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...
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
            return self.registry.add(Task[Any, Any](name))

        def declare(function: Callable[..., Any]) -> Task[Any, Any]:
            task = Task[Any, Any](function, name=name, max_retries=max_retries, timeout=timeout, cpu=cpu)
            return self.registry.add(task)

        return declare
