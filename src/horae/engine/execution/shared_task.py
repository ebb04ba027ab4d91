"""Takes coroutines through the event loop, many in one of its tasks as long as none of them waits for anything."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import Context, copy_context

Task = asyncio.Task[None]
Step = Callable[[Task], Awaitable[None]]  # what to await, in the task of the event loop that it is told


class SharedTask:
    """Begins what it is given in the next round of the event loop, each in a context of its own.

    To make a task of the event loop takes longer than many a handler. Kinds of handlers that have never waited for
    anything share one, which goes from handler to handler; the first wait of a kind parts it from the others for good.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._line: deque[tuple[str, Step]] = deque()
        self._shared: Task | None = None
        self._carried = ""  # the kind of what the shared task is at
        self._waiting: set[str] = set()  # kinds that have waited for something

    def carry(self, kind: str, step: Step) -> None:
        """Have it awaited."""
        if kind in self._waiting:
            self._loop.create_task(self._alone(step), name=kind, context=Context())
            return
        self._line.append((kind, step))
        if self._shared is None:
            self._share()

    async def _alone(self, step: Step) -> None:
        await step(_this_task())

    def _share(self) -> None:
        self._shared = self._loop.create_task(self._one_after_another(), name="handlers", context=Context())
        self._loop.call_soon(self._part, self._shared)  # comes right after the first step of that task

    async def _one_after_another(self) -> None:
        here, line = _this_task(), self._line
        try:
            for _ in range(len(line)):  # what comes meanwhile begins in the next round, so that others get their turn
                self._carried, step = line.popleft()
                await step(here)
                if self._shared is not here or here.cancelling() or copy_context():
                    break  # it waited, or left something behind
        finally:
            self._leave(here)

    def _part(self, task: Task) -> None:
        """If the task has not come to its end by now, then because what it is at waits for something."""
        if self._shared is task:
            self._waiting.add(self._carried)
            self._leave(task)

    def _leave(self, task: Task) -> None:
        """The task takes nothing more from the line."""
        if self._shared is task:
            self._shared = None
            line, self._line = self._line, deque()
            for kind, step in line:
                self.carry(kind, step)


def _this_task() -> Task:
    task = asyncio.current_task()
    assert task is not None
    return task
