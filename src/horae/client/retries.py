"""Decides whether a failed call or stream is retried, and after which delay; the transports do the waiting."""

import random
import time
from collections.abc import Callable

import httpx2

from horae.client.call import Call
from horae.client.errors import Refused
from horae.core.errors import Unavailable

RETRIES = 4
FIRST_DELAY = 0.2  # seconds; doubled with every retry
LONGEST_DELAY = 5.0
RECONNECT_SECONDS = 300.0  # how long an interrupted stream tries to reconnect
LONGEST_WAIT = 60.0  # seconds; a longer Retry-After is not waited for

_UNSENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)  # the request did not reach the server


class CallRetries:
    """Counts the failures of one call and decides whether it is retried."""

    def __init__(
        self, call: Call[object], *, url: str, retries: int, random_factor: Callable[[], float] = random.random
    ) -> None:
        self._call = call
        self._url = url
        self._retries = retries
        self._random_factor = random_factor
        self._failures = 0

    def after_refusal(self, refusal: Refused) -> float:
        """Return the seconds to wait before the next attempt; raises the refusal when it is final."""
        wait = refusal.retry_after or 0.0
        if not self._is_temporary(refusal) or wait > LONGEST_WAIT or self._exhausted():
            raise refusal
        return max(wait, self._backoff())

    def after_failure(self, failure: httpx2.RequestError) -> float:
        """Return the seconds to wait before the next attempt; raises Unavailable when there is none."""
        safe = self._call.repeatable or isinstance(failure, _UNSENT)
        if not safe or self._exhausted():
            raise unreachable(self._url, failure) from failure
        return self._backoff()

    def _is_temporary(self, refusal: Refused) -> bool:
        if refusal.status == 429:  # the server refused it before doing anything
            return refusal.code != "quota_exceeded"  # which takes longer than a moment
        in_flight = refusal.status == 409 and refusal.code == "in_flight"  # an earlier attempt of this call
        return self._call.repeatable and (in_flight or refusal.status in (502, 503, 504))

    def _exhausted(self) -> bool:
        self._failures += 1
        return self._failures > self._retries

    def _backoff(self) -> float:
        return backoff(self._failures, self._random_factor())


class StreamRetries:
    """Counts the interruptions of one stream and decides whether it reconnects.

    A stream that never brought anything gives up after `retries`; one that did tries for `RECONNECT_SECONDS`.
    """

    def __init__(self, *, url: str, retries: int) -> None:
        self._url = url
        self._retries = retries
        self._has_received = False
        self._failures = 0
        self._interrupted_at: float | None = None
        self._retry_after = 0.0

    def received(self) -> None:
        """Note that data arrived: the next interruption starts counting from zero."""
        self._has_received = True
        self._failures, self._interrupted_at = 0, None

    def raise_if_final(self, error: httpx2.RequestError | Refused) -> None:
        """Raise the error unless the stream should reconnect."""
        temporary = not isinstance(error, Refused) or error.status == 429 or isinstance(error, Unavailable)
        if temporary and not self._exhausted():
            self._retry_after = (error.retry_after or 0.0) if isinstance(error, Refused) else 0.0
            return
        raise error if isinstance(error, Refused) else unreachable(self._url, error)

    def delay(self) -> float:
        """Return the seconds to wait before the next connection."""
        self._failures += 1
        self._interrupted_at = self._interrupted_at or time.monotonic()
        return max(backoff(self._failures, random.random()), self._retry_after)

    def _exhausted(self) -> bool:
        if not self._has_received:
            return self._failures >= self._retries
        return self._interrupted_at is not None and time.monotonic() - self._interrupted_at > RECONNECT_SECONDS


def backoff(failures: int, random_factor: float) -> float:
    """Return the delay in seconds after some failures in a row, randomised so that clients do not retry in step."""
    return min(FIRST_DELAY * 2.0 ** min(failures - 1, 16), LONGEST_DELAY) * (0.5 + random_factor / 2)


def unreachable(url: str, failure: httpx2.RequestError) -> Unavailable:
    """Return the error for a request that got no response."""
    if isinstance(failure, httpx2.ConnectError | httpx2.ConnectTimeout):
        return Unavailable(f"cannot reach Horae at {url}; start it with `horae dev`, or set HORAE_URL")
    if isinstance(failure, httpx2.TimeoutException):
        return Unavailable(f"Horae at {url} did not answer in time")
    return Unavailable(f"the connection to Horae at {url} was lost ({failure or type(failure).__name__})")
