"""A backend for `django.tasks`: tasks of Django become jobs of Horae.

TASKS = {"default": {"BACKEND": "horae.django.backend.HoraeBackend"}}

The id of a result is that of the job (`job_…`). With OPTIONS {"database": "default"} a task that is enqueued inside
`transaction.atomic()` belongs to that transaction. OPTIONS {"max_retries": 0} runs each task once.
"""

import inspect
from collections.abc import Sequence
from functools import partial
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connections

from horae.django import app
from horae.django.backend_tasks import run_async_task, run_task
from horae.django.results import read_result
from horae.django.task_api import BaseTaskBackend, TaskResult, TaskResultStatus, normalize_json, task_enqueued
from horae.sdk.task import Submission

DEFAULT_RETRIES = 3


class HoraeBackend(BaseTaskBackend):
    """Enqueues tasks of Django in Horae."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self.max_retries: int = self.options.get("max_retries", DEFAULT_RETRIES)
        self._database: str | None = self.options.get("database")

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Submit a job that runs the task."""
        self.validate_task(task)
        call = {"path": task.module_path, "args": normalize_json(list(args)), "kwargs": normalize_json(kwargs)}
        handle = self._submission(task).submit_sync(**call)
        result = TaskResult(
            task=task,
            id=handle.id,
            status=TaskResultStatus.READY,
            enqueued_at=None,
            started_at=None,
            last_attempted_at=None,
            finished_at=None,
            args=call["args"],
            kwargs=call["kwargs"],
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        task_enqueued.send(type(self), task_result=result)
        return result

    async def aenqueue(self, task: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The same from a coroutine."""
        return await sync_to_async(self.enqueue, thread_sensitive=True)(task, args, kwargs)

    def get_result(self, result_id: str) -> Any:
        """Return the result of a task; raises TaskResultDoesNotExist."""
        return app.on_store(partial(read_result, result_id, backend=self.alias))

    async def aget_result(self, result_id: str) -> Any:
        """The same from a coroutine."""
        return await app.aon_store(partial(read_result, result_id, backend=self.alias))

    def _submission(self, task: Any) -> Submission[..., Any]:
        runner: Submission[..., Any] = run_async_task if inspect.iscoroutinefunction(task.func) else run_task
        connection = None if self._database is None else connections[self._database]
        return runner.using(
            name=task.module_path[-200:],
            queue=task.queue_name,
            priority=task.priority,
            at=task.run_after,
            max_retries=self.max_retries,
            tx=connection if connection is not None and connection.in_atomic_block else None,
        )
