"""The server's URL, the token and the HTTP options, shared by the synchronous and the asynchronous transport."""

import os
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx2
import msgspec

from horae import __version__
from horae.client.call import Call
from horae.client.errors import Refused, refusal
from horae.client.retries import CallRetries
from horae.core.errors import Misconfigured, Unavailable

DEFAULT_URL = "http://127.0.0.1:8765"
LOOPBACK = ("127.0.0.1", "::1", "localhost")
SILENCE_SECONDS = 45.0  # streams send something every 15 s, so a longer silence means a lost connection

T = TypeVar("T")
Token = str | Callable[[], str]


class ServerAddress:
    """Where a server is, and how requests to it are built."""

    def __init__(self, url: str | None, token: Token | None, *, timeout: float, retries: int) -> None:
        self.url = (url or os.environ.get("HORAE_URL") or DEFAULT_URL).rstrip("/")
        self.retries = retries
        self._token = token or os.environ.get("HORAE_TOKEN") or None
        self._timeout = timeout
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise Misconfigured(f"HORAE_URL = {self.url!r} is not a URL; write it like {DEFAULT_URL}")
        self.options: dict[str, Any] = {
            "base_url": self.url,
            "timeout": timeout,
            "headers": {"User-Agent": f"horae/{__version__}"},
            "verify": parts.scheme == "https",  # building a TLS context takes 100 ms, and plain http needs none
            "trust_env": parts.hostname not in LOOPBACK,  # a proxy cannot reach this machine's own loopback
        }

    def request(self, call: Call[Any], *, stream: bool = False) -> dict[str, Any]:
        """Return the arguments of the HTTP library's `request` for a call."""
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

    def retries_of(self, call: Call[Any]) -> CallRetries:
        """Return the retry state of a new call."""
        return CallRetries(call, url=self.url, retries=self.retries)

    def read(self, call: Call[T], body: bytes) -> T:
        """Decode the response to a call; raises Unavailable when the body does not come from Horae."""
        try:
            return call.read(body)
        except msgspec.DecodeError as exc:
            raise Unavailable(f"the server at {self.url} is not Horae; check HORAE_URL") from exc


def refusal_of(response: httpx2.Response) -> Refused:
    """Return the error for an error response whose body was read."""
    return refusal(response.status_code, response.reason_phrase, response.headers, response.content)
