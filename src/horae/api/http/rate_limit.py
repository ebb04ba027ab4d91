"""Limits requests per second with one token bucket per owner and process."""

import math
import time
from collections.abc import Callable

BURST_SECONDS = 2.0  # the bucket holds the requests of this many seconds
MAX_BUCKETS = 10_000
_ROUNDING = 1e-3  # of a request


class RateLimit:
    """Counts the requests of each owner, and returns how long one that is over the limit must wait."""

    def __init__(self, per_second: float, *, elapsed: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._size = max(per_second * BURST_SECONDS, 1.0)
        self._elapsed = elapsed
        self._full_at: dict[str, float] = {}  # owner → when the bucket is full again; full buckets are dropped

    def wait(self, owner: str) -> int:
        """Take one request from the owner's bucket and return 0, or the whole seconds until the next is available."""
        now = self._elapsed()
        full_at = max(self._full_at.pop(owner, now), now)
        missing = (full_at - now) * self._per_second
        if missing + 1 > self._size + _ROUNDING:
            self._full_at[owner] = full_at
            return max(math.ceil((missing + 1 - self._size - _ROUNDING) / self._per_second), 1)
        self._make_room(now)
        self._full_at[owner] = full_at + 1 / self._per_second
        return 0

    def _make_room(self, now: float) -> None:
        if len(self._full_at) < MAX_BUCKETS:
            return
        self._full_at = {owner: full_at for owner, full_at in self._full_at.items() if full_at > now}
        while len(self._full_at) >= MAX_BUCKETS:
            del self._full_at[next(iter(self._full_at))]  # the owner whose last request is the oldest
