"""`client.queues`, `client.workers`, `client.tasks` and `client.usage`."""

from typing import Literal

from msgspec import UNSET, UnsetType

from horae.client.call import Call, Steps, change, get, path_to
from horae.client.methods import Methods, TransportT, call_method
from horae.client.models import Page, QueueView, Task, Usage, Worker

Role = Literal["api", "planner", "worker", "any"]


def queues(*, owner: str | None = None) -> Steps[list[QueueView]]:
    """Return the queues with their settings and figures."""
    found: list[QueueView] = []
    cursor: str | None = None
    while True:
        page: Page[QueueView] = yield get(path_to("queues"), Page[QueueView], owner=owner, cursor=cursor)
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            return found


def update(
    name: str, *, paused: bool | UnsetType = UNSET, concurrency: int | UnsetType | None = UNSET
) -> Call[QueueView]:
    """Pause a queue, or limit how many of its runs all nodes together run at once; None removes the limit."""
    given = {"paused": paused, "concurrency": concurrency}
    body = {field: value for field, value in given.items() if value is not UNSET}
    return change("PATCH", path_to("queues", name), QueueView, body, repeatable=True)


def pause(name: str) -> Call[QueueView]:
    """Start no more runs of a queue; runs that a node already holds continue."""
    return update(name, paused=True)


def resume(name: str) -> Call[QueueView]:
    """Resume a paused queue."""
    return update(name, paused=False)


def workers(*, role: Role | None = None) -> Steps[list[Worker]]:
    """Return the nodes that run tasks, or those with another role."""
    page: Page[Worker] = yield get(path_to("workers"), Page[Worker], role=role)
    return page.items


def tasks() -> Steps[list[Task]]:
    """Return every task that a worker ever registered."""
    page: Page[Task] = yield get(path_to("tasks"), Page[Task])
    return page.items


def usage(*, owner: str | None = None) -> Call[Usage]:
    """Return how much an owner keeps, and its limits; another owner than one's own needs the scope `admin`."""
    return get(path_to("usage"), Usage, owner=owner)


class QueueMethods(Methods[TransportT]):
    """Methods for queues; changing one needs the scope `admin`."""

    list = call_method(queues)
    update = call_method(update)
    pause = call_method(pause)
    resume = call_method(resume)


class WorkerMethods(Methods[TransportT]):
    """Methods for workers: the nodes that run tasks."""

    list = call_method(workers)


class TaskMethods(Methods[TransportT]):
    """Methods for tasks."""

    list = call_method(tasks)
