"""`http.request`: sends one request to a public address, with the run's id as idempotency key.

The address of a redirect is resolved, checked and pinned like the first. It is followed only if the same request can be
sent again; a POST that would have to become a GET fails instead, because its body would be lost. No redirect takes a
secret to another host.
"""

import asyncio
import re
import ssl
from functools import cache
from typing import Annotated, Any, Literal, TypedDict

import httpx2
import msgspec
from msgspec import Meta

from horae.core.errors import Fatal, RetryAfter
from horae.run import Run
from horae.tasks.charsets import codec_of
from horae.tasks.errors import TaskFailure
from horae.tasks.network_policy import permitted_addresses
from horae.tasks.tools import Tools

MAX_REPLY = 65_536  # bytes of the body; the rest is dropped
CONNECT_SECONDS = 10.0
TOTAL_SECONDS = 300.0  # also without a timeout of the job, so that a slow reply cannot occupy a slot forever
MAX_RETRY_AFTER = 3600
RETRYABLE = frozenset({408, 425, 429})  # and all from 500
MAX_REDIRECTS = 5
REDIRECTS = frozenset({301, 302, 303, 307, 308})
SAME_METHOD = frozenset({307, 308})
# Sent to another host after a redirect; all other headers may be secret.
_SAFE_HEADERS = frozenset({"accept", "accept-encoding", "content-type", "idempotency-key", "user-agent"})
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")

Status = Literal["2xx", "3xx", "4xx", "5xx"] | int
Expected = Status | list[Status]


class UnexpectedStatus(TaskFailure):
    """The status was not expected; a retry may help."""


class Throttled(RetryAfter):
    """The status was not expected, and the reply says when to retry."""


class Rejected(Fatal):
    """The status was not expected, and a retry would not help."""


class Unreachable(TaskFailure):
    """There was no complete reply."""


class Reply(TypedDict):
    """The result of `http.request`."""

    status: int
    headers: dict[str, str]
    body: str


async def http_request(
    run: Run,
    tools: Tools,
    url: str,
    method: str = "GET",
    headers: dict[str, str] | None = None,
    body: Annotated[Any, Meta(description="text, or data that is sent as JSON")] = None,
    expect: Annotated[Expected, Meta(description="statuses that mean success, e.g. 200 or 2xx")] = "2xx",
) -> Reply:
    """Send a request; an unexpected status is a failure, which is retried if that can help."""
    request = _request(run, url, method, headers or {}, body)
    try:
        async with asyncio.timeout(TOTAL_SECONDS):
            request, reply = await _send_and_follow(request, expect, tools)
    except TimeoutError as exc:
        raise Unreachable(f"no complete reply from {request.url.host} within {TOTAL_SECONDS:g} s") from exc
    except (httpx2.LocalProtocolError, httpx2.UnsupportedProtocol) as exc:
        raise Fatal(f"the request cannot be sent: {exc}") from exc
    except httpx2.TransportError as exc:
        raise Unreachable(f"no reply from {request.url.host}: {type(exc).__name__} {exc}".rstrip()) from exc
    run.log.info(f"{request.method} {request.url.host} {reply['status']}")
    _check(reply, expect)
    return reply


async def _send_and_follow(request: httpx2.Request, expect: Expected, tools: Tools) -> tuple[httpx2.Request, Reply]:
    """The final reply, with the request that it answers."""
    for _ in range(MAX_REDIRECTS + 1):
        addresses = await permitted_addresses(
            request.url.host, _port(request.url), tools.http_allow, lookups=tools.lookups, owner=tools.owner
        )
        reply = await _send(request, addresses)
        redirected = None if _is_expected(reply["status"], expect) else _redirected(request, reply)
        if redirected is None:
            return request, reply
        if not _same_origin(request.url, redirected.url):
            await asyncio.to_thread(_refuse_secrets, redirected, tools)  # a body may be large
        request = redirected
    raise Rejected(f"more than {MAX_REDIRECTS} redirects; the last led to {request.url.host}")


def _redirected(request: httpx2.Request, reply: Reply) -> httpx2.Request | None:
    """The same request at the redirect's address; None if there is no redirect or the request would change."""
    location = reply["headers"].get("location")
    can_repeat = reply["status"] in SAME_METHOD or request.method in ("GET", "HEAD")
    if reply["status"] not in REDIRECTS or location is None or not can_repeat:
        return None
    try:
        url = request.url.join(location)
        _check_url(url)
    except (httpx2.InvalidURL, ValueError) as exc:
        raise Rejected(f"the redirect cannot be followed: {exc}") from exc
    if request.url.scheme == "https" and url.scheme != "https":
        raise Rejected(f"the redirect to {url.host} is not followed, because it leaves https")
    headers = {name: value for name, value in request.headers.items() if name != "host"}
    if not _same_origin(request.url, url):
        headers = {name: value for name, value in headers.items() if name in _SAFE_HEADERS}
    return httpx2.Request(request.method, url, headers=headers, content=request.content or None)


def _same_origin(one: httpx2.URL, other: httpx2.URL) -> bool:
    return (one.scheme, one.host, _port(one)) == (other.scheme, other.host, _port(other))


def _refuse_secrets(request: httpx2.Request, tools: Tools) -> None:
    """Raise Rejected when another host would be told a secret, in the address, a header or the body."""
    sent = (str(request.url), *request.headers.values(), request.content.decode("utf-8", "replace"))
    if any(map(tools.contains_secret, sent)):
        raise Rejected(
            f"the redirect to {request.url.host} is not followed, because it would tell another host a secret;"
            " if that is right, change url to the new address"
        )


def _request(run: Run, url: str, method: str, headers: dict[str, str], body: object) -> httpx2.Request:
    _check_headers(method, headers)
    try:
        request = httpx2.Request(method.upper(), url, headers=headers, content=_content(body))
        _check_url(request.url)
    except (httpx2.InvalidURL, ValueError, TypeError) as exc:
        raise Fatal(f"the request cannot be made: {exc}") from exc
    defaults = {"Idempotency-Key": run.id, "User-Agent": "horae", "Accept": "*/*", "Accept-Encoding": "identity"}
    if body is not None and not isinstance(body, str):
        defaults["Content-Type"] = "application/json"
    for name, value in defaults.items():
        request.headers.setdefault(name, value)
    return request


def _check_url(url: httpx2.URL) -> None:
    if url.scheme not in ("http", "https") or not url.host or "%" in url.host or not 0 < _port(url) < 65536:
        raise ValueError(f"{str(url)!r} is not an http or https address")


def _check_headers(method: str, headers: dict[str, str]) -> None:
    if not _TOKEN.fullmatch(method):
        raise Fatal(f"{method!r} is not a method")
    for name, value in headers.items():
        if not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value):
            raise Fatal(f"the header {name!r} contains invalid characters")


def _content(body: object) -> bytes | None:
    if body is None:
        return None
    return body.encode() if isinstance(body, str) else msgspec.json.encode(body)


async def _send(request: httpx2.Request, addresses: list[str]) -> Reply:
    """Try the addresses in turn; the next is tried only if no connection could be made."""
    timeout = httpx2.Timeout(None, connect=CONNECT_SECONDS)
    async with httpx2.AsyncClient(verify=_tls(), trust_env=False, timeout=timeout) as client:
        for address in addresses[:-1]:
            try:
                return await _exchange(client, _pinned(request, address))
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                continue
        return await _exchange(client, _pinned(request, addresses[-1]))


async def _exchange(client: httpx2.AsyncClient, request: httpx2.Request) -> Reply:
    response = await client.send(request, stream=True, follow_redirects=False)
    try:
        body = bytearray()
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > MAX_REPLY:
                break
    finally:
        await response.aclose()
    text = bytes(body[:MAX_REPLY]).decode(codec_of(response.charset_encoding), "replace").replace("\0", "")
    return Reply(status=response.status_code, headers=dict(response.headers), body=text)


def _pinned(request: httpx2.Request, address: str) -> httpx2.Request:
    """The same request to a checked address; host header and certificate name stay those of the host."""
    return httpx2.Request(
        request.method,
        request.url.copy_with(host=address),
        headers=request.headers,  # with the Host of the original
        content=request.content or None,
        extensions={"sni_hostname": request.url.host},
    )


def _port(url: httpx2.URL) -> int:
    default = 443 if url.scheme == "https" else 80
    return default if url.port is None else url.port


@cache
def _tls() -> ssl.SSLContext:
    """Shared, because loading the certificates takes 20 ms."""
    return httpx2.create_ssl_context()


def _is_expected(status: int, expect: Expected) -> bool:
    wanted = expect if isinstance(expect, list) else [expect]
    return any(status == item or f"{status // 100}xx" == item for item in wanted)


def _check(reply: Reply, expect: Expected) -> None:
    status = reply["status"]
    if _is_expected(status, expect):
        return
    message = f"status {status}: {reply['body'][:500]}".rstrip(": ")
    if status in REDIRECTS:
        message = (
            f"status {status}: the redirect to {reply['headers'].get('location', 'nowhere')[:500]} is not followed"
        )
    if status < 500 and status not in RETRYABLE:
        raise Rejected(message)
    after = reply["headers"].get("retry-after", "")
    if after.isascii() and after.isdigit():
        raise Throttled(min(int(after[:9]), MAX_RETRY_AFTER), message)
    raise UnexpectedStatus(message)
