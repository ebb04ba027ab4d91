"""Which addresses a request may go to: public ones, unless the operator allows more."""

import asyncio
import contextlib
import ipaddress
import socket
import threading
from collections.abc import Sequence
from typing import Any

from horae.core.errors import Fatal
from horae.tasks.errors import TaskFailure

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

MAX_LOOKUPS = 200  # at a time; one whose name server is silent takes up to half a minute
_free_lookups = threading.Semaphore(MAX_LOOKUPS)
_UNICAST = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_ISATAP = (0x0000_5EFE, 0x0200_5EFE)  # before an IPv4 address in the lower half of an IPv6 address
_NOT_PUBLIC = [  # although `is_global` may be true for them, depending on the version of Python
    ipaddress.ip_network(text)
    for text in (
        "192.0.0.0/24",  # protocol assignments; some clouds keep their metadata here
        "192.88.99.0/24",  # relays of 6to4
        "168.63.129.16/32",  # where Azure's hosts answer their own machines
        "2002::/16",  # 6to4, which nobody uses any more: it would go wherever the IPv4 address in it says
        "3fff::/20",  # for examples
    )
]


class BlockedAddress(Fatal):
    """The request would have gone to an internal address."""


class UnknownHost(TaskFailure):
    """The name of the host cannot be resolved."""


async def permitted_addresses(host: str, port: int, allow: Sequence[str]) -> list[str]:
    """Resolve a host once, and answer where to connect to; raises BlockedAddress if any answer is internal.

    The caller must connect to one of these addresses: to ask for the name again may bring another answer.
    """
    found = await _resolve(host, port)
    if host.lower().rstrip(".") in (entry.lower().rstrip(".") for entry in allow):
        return found
    if not all(_permitted(address, allow) for address in found):
        raise BlockedAddress(
            f"{host} is not at a public address; "
            "HORAE_HTTP_ALLOW names hosts and networks that may be reached nevertheless"
        )
    return found


async def _resolve(host: str, port: int) -> list[str]:
    try:
        answers = await _look_up(host, port)
    except (OSError, UnicodeError, ValueError) as exc:
        raise UnknownHost(f"the host {host} cannot be found: {exc}") from exc
    return list(dict.fromkeys(str(address[0]) for *_, address in answers))


async def _look_up(host: str, port: int) -> list[Any]:
    """What the resolver of the machine says.

    Each question has a thread of its own, so that silent name servers keep nobody waiting but those who ask them: the
    event loop has a few threads for all lookups, those of the store's own connections among them.
    """
    loop, free = asyncio.get_running_loop(), _free_lookups
    answer: asyncio.Future[list[Any]] = loop.create_future()

    def tell(found: list[Any], error: Exception | None) -> None:
        if answer.done():
            return  # nobody waits for it any more
        if error is None:
            answer.set_result(found)
        else:
            answer.set_exception(error)

    def ask() -> None:
        found: list[Any] = []
        error: Exception | None = None
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except Exception as exc:  # noqa: BLE001 - told to who asked
            error = exc
        finally:
            free.release()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(tell, found, error)

    if not free.acquire(blocking=False):
        raise UnknownHost(f"{host} cannot be looked up now: too many names are")
    try:
        threading.Thread(target=ask, name="horae-lookup", daemon=True).start()
    except RuntimeError:
        free.release()
        raise
    return await answer


def _permitted(text: str, allow: Sequence[str]) -> bool:
    networks = _networks(allow)
    return all(
        _is_public_itself(address) or any(address in network for network in networks)
        for address in _destinations(ipaddress.ip_address(text))
    )


def is_public(address: Address) -> bool:
    """Whether an address is a single one on the open internet, and so is every one that it carries."""
    return all(_is_public_itself(one) for one in _destinations(address))


def _is_public_itself(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address) and address not in _UNICAST:
        return False
    special = address.is_multicast or address.is_reserved or any(address in network for network in _NOT_PUBLIC)
    return address.is_global and not special


def _destinations(address: Address) -> list[Address]:
    """Where a packet to an address may end up: there, or at the IPv4 address that is written in it."""
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    lower = int(address) & 0xFFFF_FFFF_FFFF_FFFF
    carried = ipaddress.IPv4Address(lower & 0xFFFF_FFFF)
    if address.ipv4_mapped is not None or address in _NAT64:
        return [carried]
    found: list[Address] = [address]
    if address.sixtofour is not None:
        found.append(address.sixtofour)
    if lower >> 32 in _ISATAP:
        found.append(carried)
    return found


def _networks(allow: Sequence[str]) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    networks = []
    for entry in allow:
        try:
            networks.append(ipaddress.ip_network(entry, strict=False))
        except ValueError:  # the name of a host
            continue
    return networks
