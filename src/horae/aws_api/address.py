"""Addresses of Amazon's services: `dynamodb://REGION/PREFIX?endpoint=URL`, `sqs://REGION/PREFIX?endpoint=URL`."""

import re
from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import parse_qsl, unquote, urlsplit

from horae.core.errors import Misconfigured
from horae.core.values import Value

_REGION = re.compile(r"[a-z0-9-]{1,40}")
_PREFIX = re.compile(r"[A-Za-z0-9_-]{1,40}")


class AwsAddress(Value, frozen=True, kw_only=True):
    """What an address says."""

    region: str
    prefix: str  # of the names of tables or queues, so that several installations share an account
    endpoint: str | None  # None: the one of the region
    options: Mapping[str, str]  # whatever else stands behind the question mark


def parse_address(url: str, *, scheme: str, variable: str) -> AwsAddress:
    """Read an address; raises Misconfigured, naming the setting that it comes from."""
    parts = urlsplit(url)
    shape = f"{variable} = {url!r}: must be {scheme}://REGION/PREFIX or {scheme}://REGION/PREFIX?endpoint=URL"
    prefix = unquote(parts.path).strip("/")
    if parts.scheme != scheme or not _REGION.fullmatch(parts.netloc):
        raise Misconfigured(shape)
    if not _PREFIX.fullmatch(prefix):
        raise Misconfigured(f"{shape}; PREFIX has up to 40 letters, digits, - and _")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    endpoint = options.pop("endpoint", None)
    if endpoint is not None and not _is_endpoint(endpoint):
        raise Misconfigured(f"{shape}; an endpoint is http://HOST:PORT or https://HOST")
    return AwsAddress(region=parts.netloc, prefix=prefix, endpoint=endpoint, options=options)


def is_loopback(url: str) -> bool:
    """Whether a URL names this machine, where emulators listen."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _is_endpoint(url: str) -> bool:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.path in ("", "/") and not parts.query
