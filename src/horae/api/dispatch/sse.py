"""Server-sent events: encodes messages and decides when a stream ends."""

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
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # no caching or buffering by proxies

RESUME = (
    Param("Last-Event-ID", str, "the id of the last message received; the stream resumes after it", place="header"),
    Param("last_event_id", str, "the same, for clients that cannot set the header"),
)

OPENING = f"retry: {RETRY_MILLISECONDS}\n\n".encode()
KEEP_ALIVE = b": keep-alive\n\n"


def message(data: bytes | str = b"", *, event: str | None = None, ident: str | None = None) -> bytes:
    """Encode one message; without data it only updates the client's last event id."""
    text = data.decode() if isinstance(data, bytes) else data
    lines = [f"event: {event}"] if event is not None else []
    lines += [f"id: {ident}"] if ident is not None else []
    lines += [f"data: {line}" for line in text.split("\n")] if text else []
    return ("\n".join(lines) + "\n\n").encode()


def comment(text: str) -> bytes:
    """Encode a comment, which clients ignore."""
    return f": {text}\n\n".encode()


def last_event_id(request: Request, query: Query) -> str | None:
    """Return the id after which a client wants to resume."""
    return request.headers.get("last-event-id") or query.text("last_event_id")


def stream(messages: AsyncIterator[bytes], headers: dict[str, str] | None = None) -> Response:
    """Return a response that sends messages as they come."""
    return StreamingResponse(messages, media_type=MEDIA, headers=HEADERS | (headers or {}))


class StreamLifetime:
    """Ends a stream when the server stops or the token that opened it expires."""

    def __init__(self, request: Request) -> None:
        services = services_of(request)
        self._closing = services.closing
        self._clock = services.clock
        self._expires_at = principal(request).expires_at

    @property
    def ended(self) -> bool:
        return self._closing.is_set() or self._seconds_left() <= 0

    def at_most(self, seconds: float) -> float:
        """Return the given seconds, or fewer if the token expires earlier."""
        return min(seconds, max(self._seconds_left(), 0.0))

    async def wait(self, seconds: float) -> None:
        """Wait for some seconds, or until the stream ends."""
        try:
            await asyncio.wait_for(self._closing.wait(), self.at_most(seconds))
        except TimeoutError:
            return

    def _seconds_left(self) -> float:
        if self._expires_at is None:
            return timedelta.max.total_seconds()
        return self._expires_at - self._clock.now().timestamp()
