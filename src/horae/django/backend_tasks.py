"""The tasks of Horae that run tasks of `django.tasks`: one for functions, one for coroutines."""

from typing import Any

from django.utils import timezone
from django.utils.module_loading import import_string

from horae.core.errors import Fatal
from horae.django import app
from horae.run import Run


@app.task("django.task")
def run_task(run: Run, path: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Run a function that is a task of Django."""
    call = _Call(run, path, args, kwargs)
    call.signals.task_started.send(call.sender, task_result=call.result)
    try:
        value = call.task.func(*call.arguments, **kwargs)
    except Exception as exc:
        if call.fails(exc):
            call.signals.task_finished.send(call.sender, task_result=call.result)
        raise
    call.succeeds(value)
    call.signals.task_finished.send(call.sender, task_result=call.result)
    return value


@app.task("django.async_task")
async def run_async_task(run: Run, path: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Run a coroutine function that is a task of Django."""
    call = _Call(run, path, args, kwargs)
    await call.signals.task_started.asend(call.sender, task_result=call.result)
    try:
        value = await call.task.func(*call.arguments, **kwargs)
    except Exception as exc:
        if call.fails(exc):
            await call.signals.task_finished.asend(call.sender, task_result=call.result)
        raise
    call.succeeds(value)
    await call.signals.task_finished.asend(call.sender, task_result=call.result)
    return value


class _Call:
    """One attempt of a task of Django, and its result as signals and the task's context show it."""

    def __init__(self, run: Run, path: str, args: list[Any], kwargs: dict[str, Any]) -> None:
        from horae.django import task_api  # late: with Django 5 it needs a package that other projects do not have

        self.signals = self._api = task_api
        self.task = _task(path, task_api.Task)
        backend = self.task.get_backend()
        self.sender = type(backend)
        self._last = run.attempt > getattr(backend, "max_retries", 0)
        now = timezone.now()
        self.result = task_api.TaskResult(
            task=self.task,
            id=run.job_id,
            status=task_api.TaskResultStatus.RUNNING,
            enqueued_at=None,
            started_at=now,
            last_attempted_at=now,
            finished_at=None,
            args=args,
            kwargs=kwargs,
            backend=self.task.backend,
            errors=[],
            worker_ids=[""] * run.attempt,
        )

    @property
    def arguments(self) -> list[Any]:
        """The positional arguments, after the context if the task takes it."""
        given: list[Any] = self.result.args
        return [self._api.TaskContext(task_result=self.result), *given] if self.task.takes_context else given

    def succeeds(self, value: Any) -> None:
        """Note what the task returned."""
        self._end(self._api.TaskResultStatus.SUCCESSFUL)
        object.__setattr__(self.result, "_return_value", value)

    def fails(self, exc: Exception) -> bool:
        """Note the exception; returns whether it was the last attempt."""
        kind = type(exc)
        path = f"{kind.__module__}.{kind.__qualname__}"
        self.result.errors.append(self._api.TaskError(exception_class_path=path, traceback=f"{kind.__name__}: {exc}"))
        self._end(self._api.TaskResultStatus.FAILED)
        return self._last or isinstance(exc, Fatal)

    def _end(self, status: Any) -> None:
        object.__setattr__(self.result, "status", status)  # as Django's own backends do
        object.__setattr__(self.result, "finished_at", timezone.now())


def _task(path: str, kind: type) -> Any:
    """Import a task of Django; anything else is refused, for whoever may create jobs chooses the path."""
    try:
        found = import_string(path)
    except ImportError as exc:
        raise Fatal(f"this worker has no task {path!r}: {exc}") from exc
    if not isinstance(found, kind):
        raise Fatal(f"{path!r} is not a task of Django; decorate it with @task")
    return found
