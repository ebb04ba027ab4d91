"""The clock of a DynamoDB store: that of this machine, as NTP sets it, as long as nothing speaks against it.

DynamoDB has no clock that a statement could ask. Its answers carry the time in whole seconds, and other nodes write
theirs with each heartbeat: neither is exact enough to set a clock by, and both show one that is wrong.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

import structlog

from horae.core.errors import Unavailable
from horae.core.model import Node
from horae.stores.dynamodb import times

log = structlog.get_logger(__name__)

SUSPECT = timedelta(seconds=2)  # off by more, and it is reported
WRONG = timedelta(seconds=5)  # off by more, and this process has no time: it starts nothing and sends no heartbeat
REPORT_EVERY = 60.0  # seconds between two reports
RESOLUTION = timedelta(seconds=1)  # of the time in answers


class HostClock:
    """The wall clock of this machine, compared with the clocks of others."""

    def __init__(self) -> None:
        self._off = timedelta()  # by how much it is ahead of DynamoDB's at least; negative when it is behind
        self._reported_at: float | None = None

    def seen(self, date: datetime, asked_at: float, answered_at: float) -> None:
        """Compare with the time in an answer, which was written between two readings of the monotonic clock."""
        now = times.wall()
        earliest, latest = now - timedelta(seconds=answered_at - asked_at), now
        if earliest > date + RESOLUTION:
            self._off = earliest - date - RESOLUTION
        else:
            self._off = min(latest - date, timedelta())
        if abs(self._off) > SUSPECT:
            self._report("clock_differs_from_dynamodb", self._off)

    def compare(self, nodes: Iterable[Node], now: datetime) -> None:
        """Compare with the heartbeats of others: none of them is from the future."""
        newest = max((node.beat_at for node in nodes), default=now)
        if newest - now > SUSPECT:
            self._report("clock_behind_other_nodes", now - newest)

    def now(self) -> datetime:
        """Return the time; raises Unavailable while the clock of this machine is certainly wrong."""
        if abs(self._off) > WRONG:
            raise Unavailable(
                f"the clock of this machine is {abs(self._off).total_seconds():.1f} s "
                f"{'ahead of' if self._off > timedelta() else 'behind'} DynamoDB's: set it by NTP"
            )
        return times.wall()

    def _report(self, event: str, off: timedelta) -> None:
        steady = times.steady()
        if self._reported_at is None or steady - self._reported_at > REPORT_EVERY:
            self._reported_at = steady
            log.warning(event, ahead_seconds=off.total_seconds())
