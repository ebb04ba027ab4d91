"""Connections to Redis or Valkey (one server, one that Sentinel names, or a cluster), and the door for their errors."""

import contextlib
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import redis.asyncio as redis
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import ConstantBackoff
from redis.exceptions import RedisError

from horae.core.errors import Misconfigured, Unavailable

SECONDS = 2.0  # that an answer, or a connection, may take
CONNECTIONS = 16
SENTINEL_PORT = 26379
DEFAULT_PREFIX = "horae"
KEPT = frozenset(  # options of a cluster's connections that one to a single server takes, too
    {"username", "password", "ssl_cert_reqs", "ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_check_hostname"}
    | {"protocol", "connection_class"}
)

Client = Any  # of a server or of a cluster, which have no type in common


@contextlib.contextmanager
def door() -> Iterator[None]:
    """Raise whatever goes wrong with Redis as Unavailable."""
    try:
        yield
    except (TimeoutError, RedisError, OSError, EOFError) as exc:
        raise Unavailable(f"Redis did not answer: {exc or type(exc).__name__}") from exc
    except RuntimeError as exc:
        if "closed" not in str(exc):
            raise
        # uvloop, of a connection that was cut while we wrote: "the handler is closed", or "TCPTransport closed=True"
        raise Unavailable(f"the connection to Redis was cut: {exc}") from exc


class RedisAddress:
    """An address of a queue on Redis, and what its options ask for.

    `redis://host:6379/0` is one server, with `cluster=1` any server of a cluster; `redis+sentinel://host:26379,other/name`
    asks Sentinel for the server of that name; `rediss` instead of `redis` encrypts. `prefix` is for deployments that
    share a server.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        self.prefix = "{" + (options.pop("prefix", "") or DEFAULT_PREFIX) + "}"  # a hash tag: one slot of a cluster
        self._cluster = options.pop("cluster", "0") in ("1", "true", "yes")
        self._sentinel = parts.scheme.endswith("+sentinel")
        self._sentinel_password = options.pop("sentinel_password", None)
        self._sentinels: list[Client] = []  # that were asked
        self._parts = parts
        self._url = urlunsplit(parts._replace(query=urlencode(options)))
        if not parts.hostname:
            raise Misconfigured("HORAE_QUEUE: the address names no host; use redis://host:6379/0")

    def client(self) -> Client:
        """Return a client, which connects when it is used."""
        common: dict[str, Any] = {
            "socket_timeout": SECONDS,
            "socket_connect_timeout": SECONDS,
            "retry": Retry(ConstantBackoff(0.01), 1),  # once: a connection of before a restart is found to be broken
            "protocol": 2,
        }
        try:
            if self._sentinel:
                return self._of_sentinel(common)
            if self._cluster:
                return RedisCluster.from_url(self._url, require_full_coverage=False, **common)
            return redis.Redis.from_url(self._url, max_connections=CONNECTIONS, **common)
        except (ValueError, TypeError, RedisError) as exc:
            raise Misconfigured(f"HORAE_QUEUE: this is no address of Redis: {exc}") from exc

    def _of_sentinel(self, common: dict[str, Any]) -> Client:
        parts = self._parts
        _, _, hosts = parts.netloc.rpartition("@")
        name, _, database = parts.path.strip("/").partition("/")
        if not name:
            raise Misconfigured("HORAE_QUEUE: name the service: redis+sentinel://host:26379,other:26379/NAME")
        sentinels = [
            (host or "localhost", int(port or SENTINEL_PORT)) for host, port in map(_host_and_port, hosts.split(","))
        ]
        login: dict[str, Any] = {
            "username": unquote(parts.username) if parts.username else None,
            "password": unquote(parts.password) if parts.password else None,
            "ssl": parts.scheme.startswith("rediss"),
        }
        asked = {
            "socket_timeout": SECONDS,
            "socket_connect_timeout": SECONDS,
            "ssl": login["ssl"],
            "password": self._sentinel_password,
            "retry": Retry(ConstantBackoff(0), 0),  # the next Sentinel is asked instead
        }
        sentinel: Any = Sentinel(sentinels, sentinel_kwargs=asked)  # type: ignore[no-untyped-call]
        self._sentinels = list(sentinel.sentinels)
        return sentinel.master_for(name, db=int(database or 0), **login, **common)

    async def close(self, client: Client) -> None:
        """Close the connections of a client, and those by which its server was found."""
        for each in (client, *self._sentinels):
            await each.aclose()

    async def listening_client(self, client: Client) -> Client:
        """Return a client for messages, of one server: each server of a cluster passes them on to the others."""
        if not isinstance(client, RedisCluster):
            return client
        await client.initialize()
        node = client.get_random_node()
        kept = (
            "username",
            "password",
            "ssl",
            "ssl_cert_reqs",
            "ssl_ca_certs",
            "ssl_certfile",
            "ssl_keyfile",
            "protocol",
        )
        options = {name: value for name, value in client.connection_kwargs.items() if name in kept}
        if issubclass(options.pop("connection_class", object), redis.SSLConnection):
            options["ssl"] = True
        return redis.Redis(host=node.host, port=int(node.port), socket_connect_timeout=SECONDS, **options)


def _host_and_port(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":") if ":" in text else (text, "", "")
    return host or "localhost", int(port or SENTINEL_PORT)
