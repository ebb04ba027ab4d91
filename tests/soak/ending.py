"""How a part of the soak ends when it is told to: in order, so that nothing of it is left."""

import signal
from types import FrameType


def end_in_order_when_told() -> None:
    """Turn the first SIGTERM or SIGINT into the end of `main`; others do not disturb what clears away behind it."""

    def end(number: int, _: FrameType | None) -> None:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(128 + number)

    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, end)
