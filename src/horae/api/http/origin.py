"""Refuses acts that another web page makes a visitor's browser ask for.

A server without authentication listens on loopback only, but every page that its user visits can send requests there.
Browsers name the page that a request comes from; other clients do not, and are not concerned. A page whose own name was
made to point at loopback comes from the right place under the wrong name: `local_names` knows no name but localhost.
"""

from ipaddress import ip_address

from starlette.types import Scope

from horae.api.http.problems import Forbidden

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


def refuse_other_pages(scope: Scope, *, local_names: bool) -> None:
    """Raise Forbidden unless it is a page of this server itself that changes anything."""
    origin = None if scope["method"] in SAFE else _header(scope, b"origin")
    if origin is not None and origin.partition("://")[2] != _header(scope, b"host"):
        raise Forbidden("a page of another site may not do this")
    host = _header(scope, b"host") if local_names else None
    if host is not None and not _is_local(host):
        raise Forbidden(f"this server is for this machine only, under the name localhost, not {host[:100]}")


def _header(scope: Scope, name: bytes) -> str | None:
    for key, value in scope["headers"]:
        if key == name:
            return str(value, "latin-1")
    return None


def _is_local(host: str) -> bool:
    name = host.partition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]
    if name == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False
