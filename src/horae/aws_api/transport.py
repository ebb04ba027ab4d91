"""Sends one request over a bounded pool of connections, and tells what was not sent from what nobody knows."""

import asyncio
import ssl
from collections.abc import Mapping
from urllib.request import getproxies, proxy_bypass

import aiohttp

from horae.aws_api.credentials import Endpoint, ca_bundle
from horae.aws_api.errors import NotSent, OutcomeUnknown
from horae.core.values import Value

CONNECT_WITHIN = 3.0  # seconds, TLS included
PLACE_WITHIN = 10.0  # seconds that a request waits for a place in the pool
KEEP_ALIVE = 15.0  # seconds; less than any service keeps an idle connection open
NO_EXTRA_HEADERS = ("User-Agent", "Accept", "Accept-Encoding")  # answers stay uncompressed


class HttpAnswer(Value, frozen=True, kw_only=True):
    """The answer of a service."""

    status: int
    body: bytes
    date: str | None  # the service's clock, as HTTP writes it


class Transport:
    """A pool of connections to one endpoint."""

    def __init__(self, endpoint: Endpoint, *, connections: int) -> None:
        self._endpoint = endpoint
        self._connections = connections
        self._places = asyncio.Semaphore(connections)
        self._proxy = _proxy_of(endpoint)
        self._timeouts: dict[float, aiohttp.ClientTimeout] = {}
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Prepare the pool; connections are made when they are needed."""
        tls: ssl.SSLContext | bool = True
        if self._endpoint.url.startswith("https:"):
            tls = await asyncio.to_thread(lambda: ssl.create_default_context(cafile=ca_bundle()))
        connector = aiohttp.TCPConnector(limit=self._connections, keepalive_timeout=KEEP_ALIVE, ssl=tls)
        self._session = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())

    async def close(self) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def post(self, headers: Mapping[str, str], body: bytes, *, timeout: float) -> HttpAnswer:
        """Send a request and return its answer, whatever its status; raises `NotSent` or `OutcomeUnknown`."""
        await self._take_place()
        try:
            return await self._post(headers, body, timeout)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as exc:
            raise NotSent(f"{self._endpoint.host}: {exc or type(exc).__name__}") from exc
        except TimeoutError as exc:
            raise OutcomeUnknown(f"{self._endpoint.host} did not answer within {timeout:g} s") from exc
        except (aiohttp.ClientError, OSError) as exc:
            raise OutcomeUnknown(f"{self._endpoint.host}: {exc or type(exc).__name__}") from exc
        finally:
            self._places.release()

    async def _post(self, headers: Mapping[str, str], body: bytes, timeout: float) -> HttpAnswer:
        if self._session is None:
            raise NotSent(f"{self._endpoint.host}: the client is closed")
        async with self._session.post(
            self._endpoint.url,
            data=body,
            headers=headers,
            timeout=self._timeout(timeout),
            allow_redirects=False,
            skip_auto_headers=NO_EXTRA_HEADERS,
            proxy=self._proxy,
        ) as response:
            return HttpAnswer(status=response.status, body=await response.read(), date=response.headers.get("Date"))

    async def _take_place(self) -> None:
        if not self._places.locked():
            await self._places.acquire()
            return
        try:
            async with asyncio.timeout(PLACE_WITHIN):
                await self._places.acquire()
        except TimeoutError:
            raise NotSent(f"{self._endpoint.host}: all {self._connections} connections are busy") from None

    def _timeout(self, seconds: float) -> aiohttp.ClientTimeout:
        found = self._timeouts.get(seconds)
        if found is None:
            found = aiohttp.ClientTimeout(total=seconds, sock_connect=min(CONNECT_WITHIN, seconds))
            if len(self._timeouts) < 100:
                self._timeouts[seconds] = found
        return found


def _proxy_of(endpoint: Endpoint) -> str | None:
    """Return the proxy that the environment names for an endpoint."""
    if endpoint.is_local or proxy_bypass(endpoint.host):
        return None
    return getproxies().get(endpoint.url.partition(":")[0])
