"""Which addresses `http.request` may connect to: public ones, and those that the operator allows."""

import ipaddress
from collections.abc import Sequence

from horae.core.errors import Fatal
from horae.tasks.errors import TaskFailure
from horae.tasks.name_lookups import NameLookups

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_UNICAST = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_ISATAP = (0x0000_5EFE, 0x0200_5EFE)  # before an IPv4 address in the lower half of an IPv6 address
_NOT_PUBLIC = [  # `is_global` may be true for these, depending on the version of Python
    ipaddress.ip_network(text)
    for text in (
        "192.0.0.0/24",  # protocol assignments; some clouds serve metadata here
        "192.88.99.0/24",  # relays of 6to4
        "168.63.129.16/32",  # the Azure host, as seen from its own virtual machines
        "2002::/16",  # 6to4, which is obsolete and leads to the IPv4 address inside
        "3fff::/20",  # documentation
    )
]


class BlockedAddress(Fatal):
    """The address is internal and not allowed."""


class UnknownHost(TaskFailure):
    """The host name cannot be resolved."""


async def permitted_addresses(
    host: str, port: int, allow: Sequence[str], *, lookups: NameLookups, owner: str
) -> list[str]:
    """Resolve a host once and return its addresses; raises BlockedAddress if any of them is internal.

    The caller must connect to one of these addresses, because resolving the name again may give another answer.
    """
    try:
        found = await lookups.addresses(host, port, owner=owner)
    except TimeoutError as exc:
        raise UnknownHost(f"the host {host} cannot be found: its name servers do not answer") from exc
    except (OSError, UnicodeError, ValueError) as exc:
        raise UnknownHost(f"the host {host} cannot be found: {exc}") from exc
    if host.lower().rstrip(".") in (entry.lower().rstrip(".") for entry in allow):
        return found
    if not all(is_permitted(address, allow) for address in found):
        raise BlockedAddress(
            f"{host} does not have a public address; to allow internal hosts or networks, list them in HORAE_HTTP_ALLOW"
        )
    return found


def is_permitted(text: str, allow: Sequence[str]) -> bool:
    """Whether an address, and every address embedded in it, is public or in an allowed network."""
    networks = _networks(allow)
    return all(
        _is_public(address) or any(address in network for network in networks)
        for address in _destinations(ipaddress.ip_address(text))
    )


def _is_public(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address) and address not in _UNICAST:
        return False
    special = address.is_multicast or address.is_reserved or any(address in network for network in _NOT_PUBLIC)
    return address.is_global and not special


def _destinations(address: Address) -> list[Address]:
    """The addresses that a packet may reach: the address itself, or an IPv4 address embedded in it."""
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    lower = int(address) & 0xFFFF_FFFF_FFFF_FFFF
    embedded = ipaddress.IPv4Address(lower & 0xFFFF_FFFF)
    if address.ipv4_mapped is not None or address in _NAT64:
        return [embedded]
    found: list[Address] = [address]
    if address.sixtofour is not None:
        found.append(address.sixtofour)
    if lower >> 32 in _ISATAP:
        found.append(embedded)
    return found


def _networks(allow: Sequence[str]) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    networks = []
    for entry in allow:
        try:
            networks.append(ipaddress.ip_network(entry, strict=False))
        except ValueError:  # a host name
            continue
    return networks
