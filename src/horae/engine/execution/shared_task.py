"""Runs coroutines that never suspend in one shared asyncio task."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import Context, copy_context

Task = asyncio.Task[None]
Step = Callable[[Task], Awaitable[None]]  # gets the asyncio task that it runs in


class SharedTask:
    """Starts each step in the next round of the event loop, in an empty context.

    To create an asyncio task takes longer than many a handler. Names whose steps have never suspended share one task,
    which runs one step after another; a name that suspends once gets tasks of its own from then on.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._line: deque[tuple[str, Step]] = deque()
        self._shared: Task | None = None
        self._current = ""  # the name that the shared task runs
        self._suspending: set[str] = set()  # names that have suspended

    def run(self, name: str, step: Step) -> None:
        """Await a step soon."""
        if name in self._suspending:
            self._loop.create_task(self._alone(step), name=name, context=Context())
            return
        self._line.append((name, step))
        if self._shared is None:
            self._share()

    async def _alone(self, step: Step) -> None:
        await step(_this_task())

    def _share(self) -> None:
        self._shared = self._loop.create_task(self._one_after_another(), name="handlers", context=Context())
        self._loop.call_soon(self._detect_suspension, self._shared)  # runs right after the first step of that task

    async def _one_after_another(self) -> None:
        here, line = _this_task(), self._line
        try:
            for _ in range(len(line)):  # what is added meanwhile begins in the next round, so that others get a turn
                self._current, step = line.popleft()
                await step(here)
                if self._shared is not here or here.cancelling() or copy_context():
                    break  # the step suspended, or left a cancel or context variables behind
        finally:
            self._close(here)

    def _detect_suspension(self, task: Task) -> None:
        """Give a name tasks of its own if its step has not ended by now: it suspended."""
        if self._shared is task:
            self._suspending.add(self._current)
            self._close(task)

    def _close(self, task: Task) -> None:
        """Run nothing more in the task; the rest of the line continues in another."""
        if self._shared is task:
            self._shared = None
            line, self._line = self._line, deque()
            for name, step in line:
                self.run(name, step)


def _this_task() -> Task:
    task = asyncio.current_task()
    assert task is not None
    return task
