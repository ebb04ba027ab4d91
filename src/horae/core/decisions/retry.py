"""When a failed attempt is retried: exponential backoff with jitter; the random factor is an argument."""

from datetime import timedelta

from horae.core.values import Value

JITTER = 0.25  # at most this share is added and nothing is subtracted, so no delay is shorter than promised


class RetryPolicy(Value, frozen=True, kw_only=True):
    """How often and after which delays a failed run is retried."""

    max_retries: int = 3
    initial: timedelta = timedelta(seconds=5)
    factor: float = 2.0
    maximum: timedelta = timedelta(seconds=600)
    jitter: bool = True

    def delay_after(self, attempt: int, random_factor: float) -> timedelta:
        """The delay after attempt number `attempt` (from 1) failed; `random_factor` is in [0, 1)."""
        delay = self._backoff(attempt)
        return delay * (1 + JITTER * random_factor) if self.jitter else delay

    def _backoff(self, attempt: int) -> timedelta:
        limit = self.maximum.total_seconds()
        delay = min(self.initial.total_seconds(), limit)
        for _ in range(attempt - 1):  # a power would overflow long before the limit stops it
            delay = min(delay * self.factor, limit)
            if delay in (0, limit):
                break
        return timedelta(seconds=delay)
