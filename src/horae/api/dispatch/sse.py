"""Server-sent events: how a message is written, and when a stream ends."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from horae.api.auth.guard import principal
from horae.api.dispatch.context import services_of
from horae.api.http.operation import Param
from horae.api.http.query import Query

KEEP_ALIVE_SECONDS = 15.0
RETRY_MILLISECONDS = 2000
MEDIA = "text/event-stream"
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # a proxy that collects would defeat it

RESUME = (
    Param(
        name="Last-Event-ID",
        place="header",
        schema=str,
        description="the id of the last message that arrived: the stream goes on after it",
    ),
    Param(name="last_event_id", schema=str, description="the same, for those who cannot set the header"),
)

BEGINNING = f"retry: {RETRY_MILLISECONDS}\n\n".encode()
KEEP_ALIVE = b": keep-alive\n\n"


def message(data: bytes | str = b"", *, event: str | None = None, ident: str | None = None) -> bytes:
    """One message; without data it only tells a listener where it stands."""
    text = data.decode() if isinstance(data, bytes) else data
    lines = [f"event: {event}"] if event is not None else []
    lines += [f"id: {ident}"] if ident is not None else []
    lines += [f"data: {line}" for line in text.split("\n")] if text else []
    return ("\n".join(lines) + "\n\n").encode()


def comment(words: str) -> bytes:
    """What only those see who look at the bytes."""
    return f": {words}\n\n".encode()


def last_event_id(request: Request, query: Query) -> str | None:
    """Where a listener wants to go on."""
    return request.headers.get("last-event-id") or query.text("last_event_id")


def stream(messages: AsyncIterator[bytes], headers: dict[str, str] | None = None) -> Response:
    """An answer that goes on as long as there are messages."""
    return StreamingResponse(messages, media_type=MEDIA, headers=HEADERS | (headers or {}))


class Span:
    """How long one stream may last: until the server stops, or the token that opened it has expired."""

    def __init__(self, request: Request) -> None:
        services = services_of(request)
        self._closing = services.closing
        self._clock = services.clock
        self._expires_at = principal(request).expires_at

    @property
    def over(self) -> bool:
        return self._closing.is_set() or self._left() <= 0

    def at_most(self, seconds: float) -> float:
        """So many seconds, or fewer if the stream ends before."""
        return min(seconds, max(self._left(), 0.0))

    async def wait(self, seconds: float) -> None:
        """Wait, unless the stream ends before."""
        try:
            await asyncio.wait_for(self._closing.wait(), self.at_most(seconds))
        except TimeoutError:
            return

    def _left(self) -> float:
        if self._expires_at is None:
            return timedelta.max.total_seconds()
        return self._expires_at - self._clock.now().timestamp()
