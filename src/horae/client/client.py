"""The clients: the methods of the REST API, grouped by subject."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

import httpx2

from horae.client.address import ServerAddress, Token
from horae.client.archive import ArchiveMethods
from horae.client.call import Call, change, given, path_to
from horae.client.dead_letters import DeadLetterMethods
from horae.client.jobs import JobMethods, wire_schedule
from horae.client.methods import Methods, TransportT, call_method, stream_method
from horae.client.models import Event, Preview
from horae.client.retries import RETRIES
from horae.client.runs import RunMethods
from horae.client.streams import EventStream, Stream
from horae.client.system import QueueMethods, TaskMethods, WorkerMethods, usage
from horae.client.transport import AsyncTransport, SyncTransport

if TYPE_CHECKING:
    from horae.core.schedule.types import Schedule

TIMEOUT_SECONDS = 30.0


def preview(
    schedule: "str | datetime | Mapping[str, Any] | Schedule", *, count: int = 10, after: datetime | None = None
) -> Call[Preview]:
    """Preview a schedule: its description, the next times after `after` (default now), and warnings."""
    body = {"schedule": wire_schedule(schedule), "count": count, **given(**{"from": after})}
    return change("POST", path_to("schedules", "preview"), Preview, body, repeatable=True)


def events(
    *,
    types: Iterable[str] = (),
    job_id: str | None = None,
    owner: str | None = None,
    since: datetime | None = None,
    follow: bool = True,
    last_event_id: str | None = None,
) -> Stream[Event]:
    """Iterate over events from now on, `since` a time or after `last_event_id`; reconnects without loss or repetition.

    Without `follow` the iteration ends with what has happened by now.

    `types` such as `run.failed` or `job.*` select events. `run.started` and `run.progress` are best effort; all others
    are always delivered. Raises TooOld when the events after `last_event_id` are no longer kept.
    """
    query = given(
        types=",".join(types) or None,
        job_id=job_id,
        owner=owner,
        since=None if since is None else since.isoformat(),
        follow=None if follow else 0,
    )
    return EventStream(Call(method="GET", path=path_to("events"), read=bytes, query=(*query.items(),)), last_event_id)


def request(method: str, path: str, *, query: Mapping[str, Any] | None = None, body: object = None) -> Call[Any]:
    """Send any request and return the decoded JSON response, for routes that have no method here."""
    safe = method in ("GET", "HEAD", "PUT")
    call: Call[Any] = change(method, path, object, body, repeatable=safe, **(query or {}))
    return call


def text(path: str) -> Call[str]:
    """Return the text at a path."""
    return Call(method="GET", path=path, read=bytes.decode)


class _Client(Methods[TransportT]):
    """What both clients have: the methods of the REST API, in groups."""

    def __init__(self, server: ServerAddress, transport: TransportT) -> None:
        super().__init__(transport)
        self.url = server.url
        self.jobs = JobMethods(transport)
        self.runs = RunMethods(transport)
        self.dead_letters = DeadLetterMethods(transport)
        self.queues = QueueMethods(transport)
        self.workers = WorkerMethods(transport)
        self.tasks = TaskMethods(transport)
        self.archive = ArchiveMethods(transport)

    preview = call_method(preview)
    usage = call_method(usage)
    events = stream_method(events)
    request = call_method(request)
    text = call_method(text)


class Client(_Client[SyncTransport]):
    """The synchronous client of one server; threads may share it.

    `url` and `token` default to HORAE_URL and HORAE_TOKEN; `token` may be a function that is called before each
    request. Temporary failures (no connection, 429, 503) are retried up to `retries` times where that is safe, and not
    before the server's Retry-After.
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
        server = ServerAddress(url, token, timeout=timeout, retries=retries)
        super().__init__(server, SyncTransport(server, transport))

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClient(_Client[AsyncTransport]):
    """The same as `Client` for asyncio: calls are awaited, lists and streams are iterated with `async for`."""

    def __init__(
        self,
        url: str | None = None,
        token: Token | None = None,
        *,
        timeout: float = TIMEOUT_SECONDS,
        retries: int = RETRIES,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        server = ServerAddress(url, token, timeout=timeout, retries=retries)
        super().__init__(server, AsyncTransport(server, transport))

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
