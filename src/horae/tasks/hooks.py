"""The hooks of an application: functions that run around its tasks, and when its workers start and stop.

A hook of a task runs where the task runs: in the same thread, asyncio task or process, and in the same context. What a
failing hook means is different for each event:

    worker_start    the worker does not start
    task_start      the attempt fails, and the task is not called
    task_failed     logged; the result of the attempt stands
    task_end        the same
    worker_stop     logged; the other hooks still run
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Literal, TypeVar, get_args

import structlog

from horae.core.errors import HoraeError, Misconfigured
from horae.run import Run

log = structlog.get_logger(__name__)

T = TypeVar("T")

Event = Literal["task_start", "task_end", "task_failed", "worker_start", "worker_stop"]
Hook = Callable[..., object]
H = TypeVar("H", bound=Hook)
Wait = Callable[[Coroutine[Any, Any, object]], object]  # runs a coroutine to its end, in a thread without a loop
ErrorOf = Callable[[BaseException], BaseException | None]  # what `task_failed` is told; None: it is no failure

ARGUMENTS: dict[str, tuple[str, ...]] = {
    "task_start": ("run",),
    "task_end": ("run",),
    "task_failed": ("run", "error"),
    "worker_start": (),
    "worker_stop": (),
}
LAST_FIRST = frozenset({"task_end", "worker_stop"})


class Hooks:
    """The hooks of one application: called as they were added, but those of an end in the opposite order.

    So what was opened first is closed last.
    """

    def __init__(self) -> None:
        self.around_tasks = False  # whether any hook is about tasks; most applications have none
        self._hooks: dict[str, list[Hook]] = {event: [] for event in get_args(Event)}

    def on(self, event: Event) -> Callable[[H], H]:
        """Return a decorator that adds a hook; raises ValueError or TypeError for one that could never be called."""
        if event not in self._hooks:
            raise ValueError(f"there is no event {event!r}; choose among {', '.join(self._hooks)}")

        def add(hook: H) -> H:
            _check_arguments(event, hook)
            if event in LAST_FIRST:
                self._hooks[event].insert(0, hook)
            else:
                self._hooks[event].append(hook)
            self.around_tasks = self.around_tasks or event.startswith("task_")
            return hook

        return add

    # --- around tasks

    async def run_around(self, run: Run, work: Callable[[], Awaitable[T]], error_of: ErrorOf) -> T:
        """Await the work of a task between its hooks, all in this asyncio task."""
        try:
            for hook in self._hooks["task_start"]:
                await _awaited(hook(run))
            result = await work()
        except GeneratorExit:
            raise  # the coroutine is discarded with its event loop, in which nothing can be awaited any more
        except BaseException as exc:
            try:
                if (error := error_of(exc)) is not None:
                    await self._report("task_failed", run, error)
            finally:
                await self._report("task_end", run)
            raise
        await self._report("task_end", run)
        return result

    def run_around_sync(self, run: Run, work: Callable[[], T], error_of: ErrorOf, wait: Wait) -> T:
        """Do the work of a task between its hooks, all in this thread; `wait` runs hooks that are coroutines."""
        try:
            for hook in self._hooks["task_start"]:
                _finish(hook(run), wait)
            return work()
        except BaseException as exc:
            if (error := error_of(exc)) is not None:
                self._report_sync(wait, "task_failed", run, error)
            raise
        finally:
            self._report_sync(wait, "task_end", run)

    async def _report(self, event: str, run: Run, *more: object) -> None:
        for hook in self._hooks[event]:
            try:
                await _awaited(hook(run, *more))
            except Exception as exc:  # noqa: BLE001 - users' code, and the result of the task is known already
                _log_failure(event, hook, run, exc)

    def _report_sync(self, wait: Wait, event: str, run: Run, *more: object) -> None:
        for hook in self._hooks[event]:
            try:
                _finish(hook(run, *more), wait)
            except Exception as exc:  # noqa: BLE001 - users' code, and the result of the task is known already
                _log_failure(event, hook, run, exc)

    # --- around workers

    async def start_worker(self) -> None:
        """Run the hooks of a worker that is about to start: functions in a thread, coroutines in this event loop."""
        for hook in self._hooks["worker_start"]:
            try:
                await _off_the_loop(hook)
            except HoraeError:
                raise
            except Exception as exc:
                reason = f"{type(exc).__name__}: {exc}"
                raise Misconfigured(f"the worker cannot start: its hook {_name(hook)} failed with {reason}") from exc

    async def stop_worker(self) -> None:
        """Run the hooks of a worker whose last run has ended."""
        for hook in self._hooks["worker_stop"]:
            try:
                await _off_the_loop(hook)
            except Exception as exc:
                log.warning("hook_failed", on="worker_stop", hook=_name(hook), error=_described(exc), exc_info=exc)


NO_HOOKS = Hooks()  # of tasks that belong to no application


async def _off_the_loop(hook: Hook) -> None:
    if inspect.iscoroutinefunction(hook):
        await hook()
    else:
        await _awaited(await asyncio.to_thread(hook))


async def _awaited(answer: object) -> None:
    if inspect.isawaitable(answer):
        await answer


def _finish(answer: object, wait: Wait) -> None:
    if inspect.iscoroutine(answer):
        wait(answer)


def _check_arguments(event: Event, hook: Hook) -> None:
    names = ARGUMENTS[event]
    try:
        inspect.signature(hook).bind(*names)
    except TypeError as exc:
        raise TypeError(f"a hook of {event} is called as {_name(hook)}({', '.join(names)}): {exc}") from None


def _log_failure(event: str, hook: Hook, run: Run, exc: Exception) -> None:
    text = f"the hook {_name(hook)} of {event} failed"
    run.log.exception(text)
    log.warning("hook_failed", on=event, hook=_name(hook), run_id=run.id, task=run.task, error=_described(exc))


def _name(hook: Hook) -> str:
    return f"{getattr(hook, '__module__', '?')}.{getattr(hook, '__qualname__', repr(hook))}"


def _described(exc: Exception) -> str:
    return f"{type(exc).__name__}: {exc}"
