"""`client.queues`, `client.workers`, `client.tasks`: what runs jobs, and how it fares."""

from typing import TYPE_CHECKING

from msgspec import UNSET, UnsetType

from horae.client.call import Call, Steps, act, get, place
from horae.client.methods import AsyncGroup, Group, async_does, does
from horae.client.models import Page, QueueView, Task, Worker

if TYPE_CHECKING:
    from builtins import list as List  # noqa: N812 - `list` is a method here


def queues(*, owner: str | None = None) -> "Steps[List[QueueView]]":
    """The queues, with their settings and figures."""
    page: Page[QueueView] = yield get(place("queues"), Page[QueueView], owner=owner)
    return page.items


def update(
    name: str, *, paused: bool | UnsetType = UNSET, concurrency: int | UnsetType | None = UNSET
) -> Call[QueueView]:
    """Pause a queue, or limit how many of its runs go at once on all nodes together; None removes the limit."""
    said = {"paused": paused, "concurrency": concurrency}
    body = {field: value for field, value in said.items() if value is not UNSET}
    return act("PATCH", place("queues", name), QueueView, body, repeatable=True)


def pause(name: str) -> Call[QueueView]:
    """Start nothing more of a queue; what a node already holds goes on."""
    return update(name, paused=True)


def resume(name: str) -> Call[QueueView]:
    """Let a queue go on."""
    return update(name, paused=False)


def workers() -> "Steps[List[Worker]]":
    """The nodes that run tasks."""
    page: Page[Worker] = yield get(place("workers"), Page[Worker])
    return page.items


def tasks() -> "Steps[List[Task]]":
    """Every task that a worker ever registered."""
    page: Page[Task] = yield get(place("tasks"), Page[Task])
    return page.items


class Queues(Group):
    """Queues; changing one needs the scope `admin`."""

    list = does(queues)
    update = does(update)
    pause = does(pause)
    resume = does(resume)


class Workers(Group):
    """The nodes that run tasks."""

    list = does(workers)


class Tasks(Group):
    """What can be run."""

    list = does(tasks)


class AsyncQueues(AsyncGroup):
    """Queues; changing one needs the scope `admin`."""

    list = async_does(queues)
    update = async_does(update)
    pause = async_does(pause)
    resume = async_does(resume)


class AsyncWorkers(AsyncGroup):
    """The nodes that run tasks."""

    list = async_does(workers)


class AsyncTasks(AsyncGroup):
    """What can be run."""

    list = async_does(tasks)
