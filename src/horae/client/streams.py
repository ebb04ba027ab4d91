"""Parses streams and remembers where to resume them; the transports own the connections."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import msgspec

from horae.client.call import Call, with_header
from horae.client.models import Event

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Stream(Protocol[T_co]):
    """One stream, read over one connection after another."""

    def ended(self) -> bool:
        """Whether everything was read."""

    def connect(self) -> Call[bytes]:
        """Return the request that opens or resumes the stream."""

    def feed(self, data: bytes) -> Sequence[T_co]:
        """Return the items that are complete after more bytes."""

    def disconnected(self) -> Sequence[T_co]:
        """Return the remaining items after the server closed the connection."""


@dataclass(frozen=True, slots=True)
class StreamMessage:
    """One message of a `text/event-stream`."""

    name: str
    data: str
    last_id: str | None  # the id to resume after


class EventStreamParser:
    """Parses `text/event-stream` and remembers the last id, also of messages without data."""

    def __init__(self, last_id: str | None = None) -> None:
        self.last_id = last_id
        self._lines = LineSplitter()
        self._name = ""
        self._data: list[str] = []
        self._id = last_id

    def reconnected(self) -> None:
        """Discard a message that the lost connection cut short."""
        self._lines = LineSplitter()
        self._name, self._data, self._id = "", [], self.last_id

    def feed(self, data: bytes) -> list[StreamMessage]:
        """Return the messages that are complete after more bytes."""
        return [message for line in self._lines.feed(data) if (message := self._take(line)) is not None]

    def _take(self, line: str) -> StreamMessage | None:
        if not line:
            return self._dispatch()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "event":
                self._name = value
            case "data":
                self._data.append(value)
            case "id" if "\0" not in value:
                self._id = value or None
        return None

    def _dispatch(self) -> StreamMessage | None:
        self.last_id = self._id
        name, data = self._name, self._data
        self._name, self._data = "", []
        return StreamMessage(name or "message", "\n".join(data), self.last_id) if data else None


class LineSplitter:
    """Splits bytes into lines at `\\n`, `\\r\\n` and `\\r` only; other Unicode line separators are part of the text."""

    def __init__(self) -> None:
        self._rest = b""
        self._after_return = False  # a `\\n` that follows belongs to the preceding `\\r`

    def feed(self, data: bytes) -> list[str]:
        """Return the lines that are complete after more bytes."""
        if self._after_return and data:
            data = data.removeprefix(b"\n")
            self._after_return = False
        self._after_return = data.endswith(b"\r") or (not data and self._after_return)
        *complete, self._rest = (self._rest + data).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        return [line.decode("utf-8", "replace") for line in complete]

    def rest(self) -> list[str]:
        """Return the last line if it lacks a line end."""
        rest, self._rest = self._rest, b""
        return [rest.decode("utf-8", "replace")] if rest else []


class TextStream:
    """A text, line by line; after an interruption it is read again, without the lines that were already returned."""

    def __init__(self, call: Call[bytes]) -> None:
        self._ended = False
        self._call = call
        self._lines = LineSplitter()
        self._returned = 0
        self._repeated = 0  # lines of this connection that were already returned

    def ended(self) -> bool:
        return self._ended

    def connect(self) -> Call[bytes]:
        self._lines = LineSplitter()
        self._repeated = self._returned
        return self._call

    def feed(self, data: bytes) -> list[str]:
        return self._new_lines(self._lines.feed(data))

    def disconnected(self) -> list[str]:
        self._ended = True
        return self._new_lines(self._lines.rest())

    def _new_lines(self, lines: list[str]) -> list[str]:
        repeated = min(self._repeated, len(lines))
        self._repeated -= repeated
        self._returned += len(lines) - repeated
        return lines[repeated:]


class _ResumableStream(Generic[T]):
    """A stream of messages that resumes after the last one it received."""

    def __init__(self, call: Call[bytes], last_id: str | None = None) -> None:
        self._ended = False
        self._call = with_header(call, "Accept", "text/event-stream")
        self._parser = EventStreamParser(last_id)

    def ended(self) -> bool:
        return self._ended

    def connect(self) -> Call[bytes]:
        self._parser.reconnected()
        return with_header(self._call, "Last-Event-ID", self._parser.last_id)

    def disconnected(self) -> list[T]:
        return []


class LogStream(_ResumableStream[str]):
    """The lines of a log as they are written, until the run has ended."""

    def feed(self, data: bytes) -> list[str]:
        lines: list[str] = []
        for message in self._parser.feed(data):
            if message.name == "log":
                lines += message.data.split("\n")
            self._ended = self._ended or message.name == "end"
        return lines


class EventStream(_ResumableStream[Event]):
    """The events of jobs and runs; it ends only if the server was asked for what has happened, and no more."""

    def feed(self, data: bytes) -> list[Event]:
        events: list[Event] = []
        for message in self._parser.feed(data):
            if message.name == "end":
                self._ended = True
                break
            event = msgspec.json.decode(message.data, type=Event)
            events.append(msgspec.structs.replace(event, id=message.last_id))
        return events
