"""The lease of a node: whether it may still act, by the age of its last accepted heartbeat."""

from dataclasses import dataclass
from datetime import timedelta

from horae.ports.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The intervals that a cluster agrees on."""

    heartbeat: timedelta = timedelta(seconds=3)
    dead_after: timedelta = timedelta(seconds=15)
    horizon: timedelta = timedelta(seconds=30)
    lead: timedelta = timedelta(seconds=1)
    drain: timedelta = timedelta(seconds=30)

    @property
    def margin(self) -> timedelta:
        """How long before its lease expires a worker starts nothing more."""
        return min(self.dead_after / 5, timedelta(seconds=2))

    @property
    def missed_after(self) -> timedelta:
        """When others plan for a silent node: long before it is declared dead, because planning twice does no harm."""
        return 3 * self.heartbeat


class Lease:
    """Whether this node may still act: renewed by heartbeats, checked before anything is started."""

    def __init__(self, clock: Clock, timing: Timing) -> None:
        self._clock = clock
        self._timing = timing
        self._renewed = clock.elapsed()
        self._safe_since: float | None = None  # None: it was always safe
        self.lost = False  # the node was declared dead, and needs a new identity

    def renew(self, asked_at: float) -> None:
        """Count from the sending of an accepted heartbeat, by the monotonic clock."""
        if not self.safe:
            self._safe_since = asked_at
        self._renewed = asked_at
        self.lost = False

    @property
    def age(self) -> timedelta:
        """Time since the last heartbeat that is known to have arrived."""
        return timedelta(seconds=self._clock.elapsed() - self._renewed)

    @property
    def safe(self) -> bool:
        """Whether runs may be started: no other node can have declared this one dead yet, with a margin."""
        return not self.lost and self.age < self._timing.dead_after - self._timing.margin

    @property
    def safe_for(self) -> timedelta:
        """How long the lease has been safe without a break."""
        if self._safe_since is None:
            return timedelta.max
        return timedelta(seconds=self._clock.elapsed() - self._safe_since)

    @property
    def expired(self) -> bool:
        """Whether other nodes may have been given our runs."""
        return self.lost or self.age >= self._timing.dead_after
