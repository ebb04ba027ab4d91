"""Refuses requests that another web site sends through a visitor's browser (CSRF and DNS rebinding).

A server without authentication listens on loopback only, but every page that its user visits can send requests there.
Browsers send the Origin of the page; other clients do not, and are not affected. DNS rebinding makes a page's own name
resolve to loopback, so its Origin matches the Host; a server without authentication refuses a Host that is not local.
"""

from ipaddress import ip_address

from starlette.types import Scope

from horae.api.http.problems import Forbidden

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


def refuse_foreign_origin(scope: Scope) -> None:
    """Raise Forbidden for a change that a page of another site requests."""
    origin = None if scope["method"] in SAFE else _header(scope, b"origin")
    if origin is not None and origin.partition("://")[2] != _header(scope, b"host"):
        raise Forbidden("pages of other sites may not send this request")


def refuse_foreign_host(scope: Scope) -> None:
    """Raise Forbidden for a request to a name that is not one of this machine's loopback."""
    host = _header(scope, b"host")
    if host is not None and not _is_local(host):
        raise Forbidden(
            f"without authentication this server accepts only requests to localhost, not to {host[:100]}; set"
            " HORAE_AUTH=jwt, or let the proxy that authenticates send Host: localhost"
        )


def _header(scope: Scope, name: bytes) -> str | None:
    for key, value in scope["headers"]:
        if key == name:
            return str(value, "latin-1")
    return None


def _is_local(host: str) -> bool:
    name = host.partition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]
    return is_loopback(name)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine's loopback."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
