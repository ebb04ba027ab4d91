"""The clients: everything that the server offers, in groups."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

import httpx2

from horae.client.address import Connection, Token
from horae.client.call import Call, act, given, place
from horae.client.dead_letters import AsyncDeadLetters, DeadLetters
from horae.client.jobs import AsyncJobs, Jobs, wire_schedule
from horae.client.methods import AsyncGroup, Group, async_does, async_streams, does, streams
from horae.client.models import Event, Preview
from horae.client.retries import RETRIES
from horae.client.runs import AsyncRuns, Runs
from horae.client.streams import EventSource, Source
from horae.client.system import AsyncQueues, AsyncTasks, AsyncWorkers, Queues, Tasks, Workers
from horae.client.transport import AsyncDriver, Driver

if TYPE_CHECKING:
    from horae.core.schedule.types import Schedule

TIMEOUT_SECONDS = 30.0


def preview(
    schedule: "str | datetime | Mapping[str, Any] | Schedule", *, count: int = 10, after: datetime | None = None
) -> Call[Preview]:
    """What a schedule means: in words, its next times after an instant (now), and what may surprise."""
    body = {"schedule": wire_schedule(schedule), "count": count, **given(**{"from": after})}
    return act("POST", place("schedules", "preview"), Preview, body, repeatable=True)


def events(
    *,
    types: Iterable[str] = (),
    job_id: str | None = None,
    owner: str | None = None,
    last_event_id: str | None = None,
) -> Source[Event]:
    """What happens from now on, or since `last_event_id`; goes on after interruptions without loss or repetition.

    `types` such as `run.failed` or `job.*` choose among the events. `run.started` and `run.progress` are told as far as
    they are seen; all others are certain. Raises TooOld when what followed `last_event_id` is no longer kept.
    """
    query = given(types=",".join(types) or None, job_id=job_id, owner=owner)
    return EventSource(Call(method="GET", path=place("events"), read=bytes, query=(*query.items(),)), last_event_id)


def request(method: str, path: str, *, query: Mapping[str, Any] | None = None, body: object = None) -> Call[Any]:
    """Any request, with the answer as plain JSON: for what has no method here."""
    safe = method in ("GET", "HEAD", "PUT")
    call: Call[Any] = act(method, path, object, body, repeatable=safe, **(query or {}))
    return call


def text(path: str) -> Call[str]:
    """A text at a path."""
    return Call(method="GET", path=path, read=bytes.decode)


class Client(Group):
    """One server, found by HORAE_URL and HORAE_TOKEN unless they are given; may be shared by threads.

    `token` may be a function, which is asked before each request. What fails for a moment (no connection, 429, 503) is
    tried again up to `retries` times where that is safe, waiting as the server asks.
    """

    def __init__(
        self,
        url: str | None = None,
        token: Token | None = None,
        *,
        timeout: float = TIMEOUT_SECONDS,
        retries: int = RETRIES,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        connection = Connection(url, token, timeout=timeout, retries=retries)
        driver = Driver(connection, transport)
        super().__init__(driver)
        self.url = connection.url
        self.jobs = Jobs(driver)
        self.runs = Runs(driver)
        self.dead_letters = DeadLetters(driver)
        self.queues = Queues(driver)
        self.workers = Workers(driver)
        self.tasks = Tasks(driver)

    preview = does(preview)
    events = streams(events)
    request = does(request)
    text = does(text)

    def close(self) -> None:
        """Let go of the connections."""
        self._driver.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClient(AsyncGroup):
    """As `Client`, for asyncio: single things are awaited, lists and streams are iterated with `async for`."""

    def __init__(
        self,
        url: str | None = None,
        token: Token | None = None,
        *,
        timeout: float = TIMEOUT_SECONDS,
        retries: int = RETRIES,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        connection = Connection(url, token, timeout=timeout, retries=retries)
        driver = AsyncDriver(connection, transport)
        super().__init__(driver)
        self.url = connection.url
        self.jobs = AsyncJobs(driver)
        self.runs = AsyncRuns(driver)
        self.dead_letters = AsyncDeadLetters(driver)
        self.queues = AsyncQueues(driver)
        self.workers = AsyncWorkers(driver)
        self.tasks = AsyncTasks(driver)

    preview = async_does(preview)
    events = async_streams(events)
    request = async_does(request)
    text = async_does(text)

    async def close(self) -> None:
        """Let go of the connections."""
        await self._driver.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
