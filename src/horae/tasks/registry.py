"""Tasks and the registry of those that a node knows."""

import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar

import msgspec

from horae.core.decisions.retry import RetryPolicy
from horae.core.errors import Conflict, Fault
from horae.core.wording.fault_words import Schema
from horae.run import local_run
from horae.tasks.binding import Arguments, Binding
from horae.tasks.hooks import NO_HOOKS

P = ParamSpec("P")
R = TypeVar("R", covariant=True)

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,199}", re.ASCII)


class TaskKind(StrEnum):
    """Where a task runs."""

    ASYNC = "async"  # in the event loop
    THREAD = "thread"
    PROCESS = "process"


class TaskExists(Conflict):
    """A task with this name exists already."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is already a task named {name!r}; give one of them another name")
        self.name = name


class TaskFunction(Generic[P, R]):
    """A function with a name and settings, which workers can run; calling it runs it in place."""

    def __init__(
        self,
        function: Callable[..., R],
        *,
        name: str | None = None,
        max_retries: int | None = None,
        timeout: float | timedelta | None = None,
        retry: RetryPolicy | None = None,
        queue: str | None = None,
        priority: int | None = None,
        cpu: bool = False,
    ) -> None:
        """`queue` and `priority` are checked by the caller."""
        _check_function(function, cpu=cpu)
        functools.update_wrapper(self, function)
        self.function = function
        self.name = _checked_name(name or default_name(function))
        self.kind = _kind(function, cpu=cpu)
        self.max_retries = _checked_retries(max_retries)
        self.timeout = _checked_timeout(timeout)
        self.retry = retry
        self.queue = queue
        self.priority = priority
        self.hooks = NO_HOOKS
        self.imported_first: str | None = None  # a module that a process imports before that of the function
        self._binding = Binding(function)
        self.bind: Callable[[str], Arguments] = self._binding.bind  # JSON text to arguments; raises InvalidParams

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if "run" in self.injected.values():
            return self.function(local_run(), *args, **kwargs)
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<task {self.name}>"

    @functools.cached_property
    def injected(self) -> Mapping[str, str]:
        """Parameters that Horae passes instead of the caller: name → `run` or `tools`."""
        return self._binding.injected

    @property
    def schema(self) -> Schema:
        """The JSON schema of the parameters."""
        return self._binding.schema

    @property
    def returns(self) -> Any:
        """The annotated return type, or Any."""
        return self._binding.returns

    def check(self, params: str | Mapping[str, object]) -> list[Fault]:
        """The faults of the parameters."""
        return self._binding.faults(params)

    def accepts_lines(self, lines: bytes) -> bool:
        """Whether the parameters of many calls can be bound, one JSON object a line; False also if it is not known."""
        return self._binding.accepts_lines(lines)


AnyTask = TaskFunction[Any, Any]


class Registry:
    """Tasks by name."""

    def __init__(self) -> None:
        self._tasks: dict[str, AnyTask] = {}

    def add(self, task: TaskFunction[P, R]) -> TaskFunction[P, R]:
        """Add a task; raises TaskExists if its name is taken."""
        if task.name in self._tasks:
            raise TaskExists(task.name)
        self._tasks[task.name] = task
        return task

    def get(self, name: str) -> AnyTask | None:
        return self._tasks.get(name)

    def __iter__(self) -> Iterator[AnyTask]:
        return iter(self._tasks.values())

    @property
    def names(self) -> list[str]:
        return list(self._tasks)

    def schemas(self) -> dict[str, str]:
        """The JSON schema of each task as text, which a node registers."""
        return {task.name: msgspec.json.encode(task.schema).decode() for task in self}

    def check(self, name: str, params: str | Mapping[str, object]) -> list[Fault]:
        """The faults of the parameters of a task; none if the task is not known here."""
        task = self._tasks.get(name)
        return [] if task is None else task.check(params)

    def with_tasks(self, *others: "Registry") -> "Registry":
        """A new registry with these tasks and those of the others."""
        union = Registry()
        for registry in (self, *others):
            for task in registry:
                union.add(task)
        return union


def default_name(function: Callable[..., object]) -> str:
    """The function's full name; in a script with the file name instead of `__main__`, which other nodes do not know."""
    module = function.__module__
    if module in ("__main__", "__mp_main__"):
        file = getattr(sys.modules.get(module), "__file__", None)
        module = Path(file).stem if file else "main"
    return f"{module}.{function.__qualname__.replace('.<locals>', '')}"


def _check_function(function: Callable[..., object], *, cpu: bool) -> None:
    if not callable(function) or inspect.isclass(function):
        raise TypeError(f"a task must be a function, not {function!r}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{function.__qualname__} is a generator, but a task returns one result")
    if cpu and not getattr(function, "__qualname__", "<").isidentifier():
        raise TypeError(
            f"{function!r} runs in another process, which imports it: define it at the top level of a module"
        )


def _kind(function: Callable[..., object], *, cpu: bool) -> TaskKind:
    if cpu:
        return TaskKind.PROCESS
    return TaskKind.ASYNC if inspect.iscoroutinefunction(function) else TaskKind.THREAD


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a valid task name; use up to 200 letters, digits and any of _ . : / -")
    return name


def _checked_retries(max_retries: int | None) -> int | None:
    if max_retries is not None and (isinstance(max_retries, bool) or max_retries < 0):
        raise ValueError(f"max_retries must be a number from 0, not {max_retries!r}")
    return max_retries


def _checked_timeout(timeout: float | timedelta | None) -> timedelta | None:
    if timeout is None:
        return None
    value = timeout if isinstance(timeout, timedelta) else timedelta(seconds=timeout)
    if value <= timedelta():
        raise ValueError(f"timeout must be more than 0 seconds, not {timeout!r}")
    return value
