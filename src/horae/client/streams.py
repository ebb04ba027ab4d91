"""Streams without their connections: what to ask for, what the bytes mean, and where to go on after a break."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import msgspec

from horae.client.call import Call, with_header
from horae.client.models import Event

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Source(Protocol[T_co]):
    """One stream, over as many connections as it takes."""

    def over(self) -> bool:
        """Whether everything was read."""

    def connect(self) -> Call[bytes]:
        """The request that begins or resumes it."""

    def feed(self, data: bytes) -> Sequence[T_co]:
        """What some bytes bring."""

    def disconnected(self) -> Sequence[T_co]:
        """The server ended the connection; what is left."""


@dataclass(frozen=True, slots=True)
class Message:
    """One event of a stream as the wire has it."""

    name: str
    data: str
    last_id: str | None  # where the stream stood with it


class Messages:
    """Reads `text/event-stream`; remembers the last id, also of messages without data."""

    def __init__(self, last_id: str | None = None) -> None:
        self.last_id = last_id
        self._lines = Lines()
        self._name = ""
        self._data: list[str] = []
        self._id = last_id

    def reconnected(self) -> None:
        """A message that a break cut short counts for nothing."""
        self._lines = Lines()
        self._name, self._data, self._id = "", [], self.last_id

    def feed(self, data: bytes) -> list[Message]:
        """The messages that are complete by now."""
        return [message for line in self._lines.feed(data) if (message := self._take(line)) is not None]

    def _take(self, line: str) -> Message | None:
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

    def _dispatch(self) -> Message | None:
        self.last_id = self._id
        name, data = self._name, self._data
        self._name, self._data = "", []
        return Message(name or "message", "\n".join(data), self.last_id) if data else None


class Lines:
    """Cuts bytes into lines at `\\n`, `\\r\\n` and `\\r` alone: other separators of Unicode belong to the text."""

    def __init__(self) -> None:
        self._rest = b""
        self._after_return = False  # a `\\n` that follows belongs to the `\\r` before

    def feed(self, data: bytes) -> list[str]:
        """The lines that are complete by now."""
        if self._after_return and data:
            data = data.removeprefix(b"\n")
            self._after_return = False
        self._after_return = data.endswith(b"\r") or (not data and self._after_return)
        *complete, self._rest = (self._rest + data).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        return [line.decode("utf-8", "replace") for line in complete]

    def rest(self) -> list[str]:
        """A last line without an end."""
        rest, self._rest = self._rest, b""
        return [rest.decode("utf-8", "replace")] if rest else []


class TextSource:
    """A text, line by line; after a break it is read again, and the lines that were told are passed over."""

    def __init__(self, call: Call[bytes]) -> None:
        self._over = False
        self._call = call
        self._lines = Lines()
        self._told = 0
        self._known = 0  # lines at the beginning of this connection that were told before

    def over(self) -> bool:
        return self._over

    def connect(self) -> Call[bytes]:
        self._lines = Lines()
        self._known = self._told
        return self._call

    def feed(self, data: bytes) -> list[str]:
        return self._news(self._lines.feed(data))

    def disconnected(self) -> list[str]:
        self._over = True
        return self._news(self._lines.rest())

    def _news(self, lines: list[str]) -> list[str]:
        known = min(self._known, len(lines))
        self._known -= known
        self._told += len(lines) - known
        return lines[known:]


class _Resumable(Generic[T]):
    """A stream of messages that goes on after a break."""

    def __init__(self, call: Call[bytes], last_id: str | None = None) -> None:
        self._over = False
        self._call = with_header(call, "Accept", "text/event-stream")
        self._messages = Messages(last_id)

    def over(self) -> bool:
        return self._over

    def connect(self) -> Call[bytes]:
        self._messages.reconnected()
        return with_header(self._call, "Last-Event-ID", self._messages.last_id)

    def disconnected(self) -> list[T]:
        return []


class LogSource(_Resumable[str]):
    """The lines of a log while they are written, to the end of the run."""

    def feed(self, data: bytes) -> list[str]:
        lines: list[str] = []
        for message in self._messages.feed(data):
            if message.name == "log":
                lines += message.data.split("\n")
            self._over = self._over or message.name == "end"
        return lines


class EventSource(_Resumable[Event]):
    """What happens to jobs and runs; it has no end."""

    def feed(self, data: bytes) -> list[Event]:
        events: list[Event] = []
        for message in self._messages.feed(data):
            event = msgspec.json.decode(message.data, type=Event)
            events.append(msgspec.structs.replace(event, id=message.last_id))
        return events
