"""The servers that an address of PostgreSQL names: one, or several of which one at a time takes writes."""

from collections.abc import Mapping
from urllib.parse import SplitResult, urlencode

from horae.core.errors import Misconfigured


def each_server(parts: SplitResult, options: Mapping[str, str]) -> list[str]:
    """An address for every server, in the order in which they are named: `a:5432,b:5433`, or `?host=/a,/b&port=1,2`."""
    scheme = "postgresql" if parts.scheme.startswith("postgres") else parts.scheme
    places = _listed(parts.netloc, options) if "," in options.get("host", "") else _named(parts.netloc, options)
    if len(places) > 1:  # a standby is of no use before it is promoted
        places = [(netloc, {"target_session_attrs": "read-write", **found}) for netloc, found in places]
    return [
        SplitResult(scheme, netloc, parts.path, urlencode(found, safe="/:,"), parts.fragment).geturl()
        for netloc, found in places
    ]


def _named(netloc: str, options: Mapping[str, str]) -> list[tuple[str, Mapping[str, str]]]:
    user, at, hosts = netloc.rpartition("@")
    return [(f"{user}{at}{host}", options) for host in hosts.split(",")]


def _listed(netloc: str, options: Mapping[str, str]) -> list[tuple[str, Mapping[str, str]]]:
    hosts = options["host"].split(",")
    if "port" not in options:
        return [(netloc, {**options, "host": host}) for host in hosts]
    ports = options["port"].split(",")
    if len(ports) not in (1, len(hosts)):
        raise Misconfigured(
            f"HORAE_STORE names {len(hosts)} hosts and {len(ports)} ports: one for all, or one for each"
        )
    ports = ports * len(hosts) if len(ports) == 1 else ports
    return [(netloc, {**options, "host": host, "port": port}) for host, port in zip(hosts, ports, strict=True)]
