"""The messages between a worker and its child processes, and their frames on the pipe."""

import struct
from collections.abc import Callable
from datetime import datetime

import msgspec

from horae.core.decisions.results import Failure

HEADER = struct.Struct("!I")  # the length of the message that follows
MAX_MESSAGE = 16_000_000  # bytes; log lines and results are shorter


class TaskCall(msgspec.Struct, frozen=True, kw_only=True):
    """To the child: a task to run, and everything about its run."""

    path: list[str]
    imported_first: str | None  # a module that sets something up for the next
    module: str
    file: str | None  # of a script, whose module cannot be imported by name
    function: str
    params: str
    run_id: str
    job_id: str
    owner: str
    shown_params: str | None  # without secrets; None: there are none in `params`
    due_at: datetime
    attempt: int
    fence: int
    log_limit: int
    log_level: int  # from which on `logging` in the task is logged


class TaskBegan(msgspec.Struct, frozen=True, tag="began"):
    """From the child: the process is ready, and the task begins."""


class LogLine(msgspec.Struct, frozen=True, tag="line"):
    """From the child: a line for the log."""

    level: str
    text: str


class TaskProgress(msgspec.Struct, frozen=True, tag="progress"):
    """From the child: how much is done, from 0 to 1."""

    fraction: float


class TaskReturned(msgspec.Struct, frozen=True, tag="succeeded"):
    """From the child: the task returned a result as JSON text, or None."""

    result: str | None


class TaskRaised(msgspec.Struct, frozen=True, tag="failed"):
    """From the child: the task failed."""

    failure: Failure


ChildMessage = TaskBegan | LogLine | TaskProgress | TaskReturned | TaskRaised

_encode = msgspec.msgpack.Encoder().encode
decode_message: Callable[[bytes], ChildMessage] = msgspec.msgpack.Decoder(ChildMessage).decode
decode_call = msgspec.msgpack.Decoder(TaskCall).decode


def framed(message: ChildMessage | TaskCall) -> bytes:
    """Return a message as it is written to the pipe."""
    data = _encode(message)
    return HEADER.pack(len(data)) + data
