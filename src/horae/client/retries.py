"""When a call is sent again, and after which delay: decided here, waited for by the drivers."""

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
RECONNECT_SECONDS = 300.0  # a stream that was interrupted tries for so long to go on
LONGEST_WAIT = 60.0  # a server that asks for more is not waited for

_UNSENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)  # the server has not seen the request


class Patience:
    """How often one call has failed, and whether it is worth another try."""

    def __init__(
        self, call: Call[object], *, url: str, retries: int, luck: Callable[[], float] = random.random
    ) -> None:
        self._call = call
        self._url = url
        self._retries = retries
        self._luck = luck
        self._failures = 0

    def after_refusal(self, refusal: Refused) -> float:
        """Seconds to wait before the next try; raises the refusal when there is none."""
        wait = refusal.retry_after or 0.0
        if not self._may_pass(refusal) or wait > LONGEST_WAIT or self._exhausted():
            raise refusal
        return max(wait, self._backoff())

    def after_failure(self, failure: httpx2.RequestError) -> float:
        """Seconds to wait before the next try; raises Unavailable when there is none."""
        safe = self._call.repeatable or isinstance(failure, _UNSENT)
        if not safe or self._exhausted():
            raise unreachable(self._url, failure) from failure
        return self._backoff()

    def _may_pass(self, refusal: Refused) -> bool:
        if refusal.status == 429:
            return True  # refused before anything was done
        in_flight = refusal.status == 409 and refusal.code == "in_flight"  # the first sending of this very call
        return self._call.repeatable and (in_flight or refusal.status in (502, 503, 504))

    def _exhausted(self) -> bool:
        self._failures += 1
        return self._failures > self._retries

    def _backoff(self) -> float:
        return backoff(self._failures, self._luck())


class Breaks:
    """The interruptions of one stream: a new one gives up soon, one that was going tries for minutes to go on."""

    def __init__(self, *, url: str, retries: int) -> None:
        self._url = url
        self._retries = retries
        self._was_going = False
        self._failures = 0
        self._since: float | None = None
        self._asked_for = 0.0

    def connected(self) -> None:
        """Something came."""
        self._was_going = True
        self._failures, self._since = 0, None

    def judge(self, error: httpx2.RequestError | Refused) -> None:
        """Raises what the caller must know of: a refusal for good, or an outage that lasts."""
        passing = not isinstance(error, Refused) or error.status == 429 or isinstance(error, Unavailable)
        if passing and not self._exhausted():
            self._asked_for = (error.retry_after or 0.0) if isinstance(error, Refused) else 0.0
            return
        raise error if isinstance(error, Refused) else unreachable(self._url, error)

    def delay(self) -> float:
        """Seconds to wait before the next connection."""
        self._failures += 1
        self._since = self._since or time.monotonic()
        return max(backoff(self._failures, random.random()), self._asked_for)

    def _exhausted(self) -> bool:
        if not self._was_going:
            return self._failures >= self._retries
        return self._since is not None and time.monotonic() - self._since > RECONNECT_SECONDS


def backoff(failures: int, luck: float) -> float:
    """The delay after so many failures in a row, spread so that many clients do not come back together."""
    return min(FIRST_DELAY * 2.0 ** min(failures - 1, 16), LONGEST_DELAY) * (0.5 + luck / 2)


def unreachable(url: str, failure: httpx2.RequestError) -> Unavailable:
    """What a user is told when nobody answered."""
    if isinstance(failure, httpx2.ConnectError | httpx2.ConnectTimeout):
        return Unavailable(f"cannot reach Horae at {url}; start it with `horae dev`, or set HORAE_URL")
    if isinstance(failure, httpx2.TimeoutException):
        return Unavailable(f"Horae at {url} did not answer in time")
    return Unavailable(f"the connection to Horae at {url} was lost ({failure or type(failure).__name__})")
