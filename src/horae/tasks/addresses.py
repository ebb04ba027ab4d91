"""Which addresses a request may go to: public ones, unless the operator allows more."""

import asyncio
import ipaddress
import socket
from collections.abc import Sequence

from horae.core.errors import Fatal
from horae.tasks.failures import TaskFailure

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# `is_global` is true for all of these, or for what they carry in Python 3.11
_UNICAST = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_RELAYS = ipaddress.IPv4Network("192.88.99.0/24")


class BlockedAddress(Fatal):
    """The request would have gone to an internal address."""


class UnknownHost(TaskFailure):
    """The name of the host cannot be resolved."""


async def permitted_addresses(host: str, port: int, allow: Sequence[str]) -> list[str]:
    """Resolve a host once, and answer where to connect to; raises BlockedAddress if any answer is internal.

    The caller must connect to one of these addresses: to ask for the name again may bring another answer.
    """
    found = await _resolve(host, port)
    if host.lower().rstrip(".") in (entry.lower() for entry in allow):
        return found
    for address in found:
        if not _permitted(address, allow):
            raise BlockedAddress(
                f"{host} is at {address}, which is not a public address; "
                "HORAE_HTTP_ALLOW names hosts and networks that may be reached nevertheless"
            )
    return found


async def _resolve(host: str, port: int) -> list[str]:
    try:
        answers = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as exc:
        raise UnknownHost(f"the host {host} cannot be found: {exc}") from exc
    return list(dict.fromkeys(str(address[0]) for *_, address in answers))


def _permitted(text: str, allow: Sequence[str]) -> bool:
    address = _unwrapped(ipaddress.ip_address(text))
    return is_public(address) or any(address in network for network in _networks(allow))


def is_public(address: Address) -> bool:
    """Whether an address is a single one on the open internet."""
    plain = _unwrapped(address)
    if isinstance(plain, ipaddress.IPv6Address):
        return plain in _UNICAST and plain.is_global
    return plain.is_global and not plain.is_multicast and not plain.is_reserved and plain not in _RELAYS


def _unwrapped(address: Address) -> Address:
    """The IPv4 address that an IPv6 address stands for (mapped, NAT64, 6to4), or the address itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


def _networks(allow: Sequence[str]) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    networks = []
    for entry in allow:
        try:
            networks.append(ipaddress.ip_network(entry, strict=False))
        except ValueError:  # the name of a host
            continue
    return networks
