"""The keys that tokens are checked with: one shared secret, or the public keys of an issuer, which come and go."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import httpx2
import structlog
from jwt import PyJWK, PyJWTError
from jwt.utils import base64url_encode

from horae.core.errors import Misconfigured, Unavailable

log = structlog.get_logger(__name__)

ALGORITHMS = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"})
MIN_RSA_BITS = 2048
MAX_DOCUMENT = 1_000_000  # bytes of a JWKS
FETCH_SECONDS = 5.0
URL_FRESH_SECONDS = 300.0  # how long fetched keys are believed without asking again
FILE_FRESH_SECONDS = 5.0
PAUSE_SECONDS = 10.0  # at least so long between two fetches, whatever tokens come meanwhile
FIRST_PAUSE_SECONDS = 1.0  # while there are no keys at all
_PUBLIC = ("kty", "kid", "alg", "crv", "n", "e", "x", "y")  # a document with private parts is read without them


@dataclass(frozen=True, slots=True)
class Ring:
    """Keys that hold at one moment; `version` changes with them."""

    keys: tuple[PyJWK, ...]
    version: int = 0

    def fitting(self, kid: str | None, algorithm: str) -> Sequence[PyJWK]:
        """The keys that may have signed a token; the algorithm belongs to the key, the token only says which."""
        return [
            key for key in self.keys if key.algorithm_name == algorithm and (kid is None or key.key_id in (kid, None))
        ]

    def knows(self, kid: str | None) -> bool:
        """Whether a key of that name is here, so that asking for newer ones is no use."""
        return kid is not None and any(key.key_id == kid for key in self.keys)


class Keys(Protocol):
    """Where the keys come from."""

    async def current(self) -> Ring:
        """The keys as last seen; raises Unavailable when they were never seen."""

    async def renewed(self) -> Ring:
        """The keys after a look for newer ones, if there was none lately."""


class SecretKey:
    """One secret that the issuer and Horae share (HS256)."""

    def __init__(self, secret: str) -> None:
        encoded = base64url_encode(secret.encode()).decode()
        self._ring = Ring((PyJWK({"kty": "oct", "k": encoded}, algorithm="HS256"),))

    async def current(self) -> Ring:
        return self._ring

    async def renewed(self) -> Ring:
        return self._ring


class KeySet:
    """The public keys of an issuer: kept while they are fresh, and also while their source does not answer."""

    def __init__(
        self,
        read: Callable[[], Awaitable[bytes]],
        *,
        fresh_seconds: float,
        elapsed: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._fresh_seconds = fresh_seconds
        self._elapsed = elapsed
        self._ring: Ring | None = None
        self._document = b""
        self._read_at = self._tried_at = float("-inf")
        self._reading: asyncio.Task[None] | None = None

    async def current(self) -> Ring:
        if self._ring is None:
            await self._look(FIRST_PAUSE_SECONDS)
            if self._ring is None:
                raise Unavailable("the keys that tokens are checked with cannot be read (HORAE_JWKS); try again later")
        elif self._elapsed() - self._read_at > self._fresh_seconds:
            self._begin_look(PAUSE_SECONDS)  # nobody waits for it: the old keys hold until then
        return self._ring

    async def renewed(self) -> Ring:
        await self._look(min(PAUSE_SECONDS, self._fresh_seconds))
        return await self.current()

    async def _look(self, pause: float) -> None:
        self._begin_look(pause)
        if self._reading is not None:
            await asyncio.shield(self._reading)

    def _begin_look(self, pause: float) -> None:
        if self._reading is None and self._elapsed() - self._tried_at >= pause:
            self._tried_at = self._elapsed()
            self._reading = asyncio.create_task(self._refresh())
            self._reading.add_done_callback(self._looked)

    def _looked(self, reading: asyncio.Task[None]) -> None:
        self._reading = None

    async def _refresh(self) -> None:
        try:
            document = await self._read()
            if document != self._document:
                version = 0 if self._ring is None else self._ring.version + 1
                self._ring = Ring(parse_keys(document), version)
                self._document = document
        except (Misconfigured, Unavailable) as exc:
            log.warning("jwks_not_read", error=str(exc), keeps_old_keys=self._ring is not None)
            return
        self._read_at = self._elapsed()


def keys_at(place: str) -> KeySet:
    """The keys of a JWKS, whose place is a file or an address."""
    if is_url(place):
        return KeySet(lambda: _fetched(place), fresh_seconds=URL_FRESH_SECONDS)
    return KeySet(lambda: asyncio.to_thread(read_file, place), fresh_seconds=FILE_FRESH_SECONDS)


def is_loopback(host: str) -> bool:
    """Whether only this machine answers there."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_url(place: str) -> bool:
    """Whether a JWKS is fetched over the network."""
    return urlsplit(place).scheme in ("http", "https")


def read_file(place: str) -> bytes:
    """A JWKS in a file, whose name may be written as file:///…, too."""
    try:
        return Path(place.removeprefix("file://")).read_bytes()
    except OSError as exc:
        raise Misconfigured(f"HORAE_JWKS = {place}: the file cannot be read: {exc.strerror}") from exc


def parse_keys(document: bytes) -> tuple[PyJWK, ...]:
    """The keys of a JWKS that can check signatures; raises Misconfigured when there is none."""
    try:
        listed = json.loads(document)["keys"]
        found = [key for key in listed if isinstance(key, dict)]
    except (ValueError, KeyError, TypeError, RecursionError) as exc:
        raise Misconfigured('HORAE_JWKS is no JWKS: it must be JSON such as {"keys": [...]}') from exc
    keys = tuple(key for data in found if (key := _usable(data)) is not None)
    if not keys:
        raise Misconfigured(
            "HORAE_JWKS holds no key that can check signatures: RSA (2048 bits or more), EC or Ed25519, public"
        )
    return keys


def _usable(data: Mapping[str, Any]) -> PyJWK | None:
    """The key, unless it is for something else; a shared secret has no place in a public document."""
    if data.get("use", "sig") != "sig" or "verify" not in data.get("key_ops", ["verify"]):
        return None
    try:
        key = _public_key(data)
    except (PyJWTError, ValueError, TypeError) as exc:
        log.warning("jwks_key_ignored", kid=str(data.get("kid")), error=f"{type(exc).__name__}: {exc}")
        return None
    return key


def _public_key(data: Mapping[str, Any]) -> PyJWK:
    if data.get("kty") not in ("RSA", "EC", "OKP") or data.get("alg", "RS256") not in ALGORITHMS:
        raise ValueError("not for signatures by public keys")
    key = PyJWK({name: data[name] for name in _PUBLIC if name in data})
    if key.algorithm_name not in ALGORITHMS or (data["kty"] == "RSA" and key.key.key_size < MIN_RSA_BITS):
        raise ValueError("too weak, or not supported")
    return key


async def _fetched(url: str) -> bytes:
    """The document; redirects are not followed, for they could lead anywhere."""
    try:
        async with (
            asyncio.timeout(FETCH_SECONDS),
            httpx2.AsyncClient(timeout=FETCH_SECONDS, trust_env=not _is_loopback(url)) as client,
            client.stream("GET", url, headers={"Accept": "application/json"}) as response,
        ):
            if response.status_code != 200:
                raise Unavailable(f"{_shown(url)} answered {response.status_code}")
            return await _limited(response)
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as exc:
        raise Unavailable(f"{_shown(url)} did not answer: {type(exc).__name__}") from exc


def _is_loopback(url: str) -> bool:
    return is_loopback(urlsplit(url).hostname or "")


async def _limited(response: httpx2.Response) -> bytes:
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > MAX_DOCUMENT:
            raise Unavailable(f"the JWKS is larger than {MAX_DOCUMENT} bytes")
    return bytes(body)


def _shown(url: str) -> str:
    """The address without what may be secret in it."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}{parts.path}"
