"""Where the server is and who asks: what the synchronous and the asynchronous driver share."""

import os
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx2
import msgspec

from horae import __version__
from horae.client.call import Call
from horae.client.errors import Refused, refusal
from horae.client.retries import Patience
from horae.core.errors import Misconfigured, Unavailable

DEFAULT_URL = "http://127.0.0.1:8765"
LOOPBACK = ("127.0.0.1", "::1", "localhost")
SILENCE_SECONDS = 45.0  # streams send something every 15 s; after so long nobody is there any more

T = TypeVar("T")
Token = str | Callable[[], str]


class Connection:
    """One server, and how to ask it."""

    def __init__(self, url: str | None, token: Token | None, *, timeout: float, retries: int) -> None:
        self.url = (url or os.environ.get("HORAE_URL") or DEFAULT_URL).rstrip("/")
        self.retries = retries
        self._token = token or os.environ.get("HORAE_TOKEN") or None
        self._timeout = timeout
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise Misconfigured(f"HORAE_URL = {self.url!r} is no address; write it as {DEFAULT_URL}")
        self.options: dict[str, Any] = {
            "base_url": self.url,
            "timeout": timeout,
            "headers": {"User-Agent": f"horae/{__version__}"},
            "verify": parts.scheme == "https",  # plain http needs no TLS context, whose making takes 100 ms
            "trust_env": parts.hostname not in LOOPBACK,  # a proxy cannot reach this machine's own loopback
        }

    def request(self, call: Call[Any], *, stream: bool = False) -> dict[str, Any]:
        """A call as the HTTP library takes it."""
        headers = dict(call.headers)
        if call.body is not None:
            headers["Content-Type"] = "application/json"
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token() if callable(self._token) else self._token}"
        timeout = httpx2.Timeout(self._timeout, read=SILENCE_SECONDS) if stream else self._timeout
        return {
            "method": call.method,
            "url": call.path,
            "params": list(call.query) or None,
            "content": call.body,
            "headers": headers,
            "timeout": timeout,
        }

    def patience(self, call: Call[Any]) -> Patience:
        """A new judge of when to try a call again."""
        return Patience(call, url=self.url, retries=self.retries)

    def read(self, call: Call[T], body: bytes) -> T:
        """The answer to a call."""
        try:
            return call.read(body)
        except msgspec.DecodeError as exc:
            raise Unavailable(f"what answers at {self.url} is not Horae; check HORAE_URL") from exc


def refusal_of(response: httpx2.Response) -> Refused:
    """The error that an answer, read to its end, means."""
    return refusal(response.status_code, response.reason_phrase, response.headers, response.content)
