"""Stops a process on SIGINT or SIGTERM: the first signal lets it finish, and one more Ctrl-C ends it at once."""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
END_AT_ONCE = "Press Ctrl-C again to end at once"


class StopRequest(asyncio.Event):
    """Set when a signal has asked the process to stop."""

    interrupted = False  # by a Ctrl-C, so somebody is waiting


@contextlib.contextmanager
def stopping_on_signals(request: StopRequest) -> Iterator[None]:
    """Set `request` on the first SIGINT or SIGTERM; leave the next SIGINT to the system, which ends the process.

    These are handlers of Python, not of the event loop: they are called even while a task blocks the loop. A signal
    that is ignored stays ignored: a supervisor speaks for its children.
    """
    loop = asyncio.get_running_loop()

    def on_signal(number: int, frame: FrameType | None) -> None:
        request.interrupted = request.interrupted or number == signal.SIGINT
        if signal.getsignal(signal.SIGINT) is on_signal:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        loop.call_soon_threadsafe(request.set)

    with handlers_set(on_signal):
        yield


@contextlib.contextmanager
def handlers_set(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle SIGINT and SIGTERM, unless they are ignored; afterwards they are handled as before."""
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    changed = [number for number, known in before.items() if known is not signal.SIG_IGN]
    for number in changed:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number in changed:
            signal.signal(number, before[number])
