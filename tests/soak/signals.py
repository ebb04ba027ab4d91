"""Lets a part of the soak exit cleanly on a signal."""

import signal
from types import FrameType


def exit_on_signal() -> None:
    """Raise SystemExit on the first SIGTERM or SIGINT, and ignore further ones during the clean-up."""

    def end(number: int, _: FrameType | None) -> None:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(128 + number)

    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, end)
