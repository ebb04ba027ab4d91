"""The keys that verify tokens: one shared secret, or the public keys of an issuer (JWKS), which change over time."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import httpx2
import structlog
from jwt import PyJWK, PyJWTError
from jwt.utils import base64url_encode

from horae.api.http.origin import is_loopback
from horae.core.errors import Misconfigured, Unavailable

log = structlog.get_logger(__name__)

ALGORITHMS = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"})
MIN_RSA_BITS = 2048
MAX_DOCUMENT = 1_000_000  # bytes of a JWKS
FETCH_SECONDS = 5.0
URL_FRESH_SECONDS = 300.0  # how long fetched keys are used before they are fetched again
FILE_FRESH_SECONDS = 5.0
PAUSE_SECONDS = 10.0  # the minimum between two fetches, whatever tokens arrive
FIRST_PAUSE_SECONDS = 1.0  # the same while no keys are known
_PUBLIC = ("kty", "kid", "alg", "crv", "n", "e", "x", "y")  # private parts of a key are ignored


@dataclass(frozen=True, slots=True)
class KeyRing:
    """The keys at one moment; `version` changes whenever they change."""

    keys: tuple[PyJWK, ...]
    version: int = 0

    def candidates(self, kid: str | None, algorithm: str) -> Sequence[PyJWK]:
        """Return the keys that may have signed a token; a key is only used with its own algorithm."""
        return [
            key for key in self.keys if key.algorithm_name == algorithm and (kid is None or key.key_id in (kid, None))
        ]

    def has(self, kid: str | None) -> bool:
        """Whether a key has this id, so that fetching newer keys is pointless."""
        return kid is not None and any(key.key_id == kid for key in self.keys)


class KeySource(Protocol):
    """Provides the keys that verify tokens."""

    async def current(self) -> KeyRing:
        """Return the last known keys; raises Unavailable when there are none."""

    async def refreshed(self) -> KeyRing:
        """Return the keys after fetching them again, unless that was done recently."""


class SecretKey:
    """One secret that the issuer and Horae share (HS256)."""

    def __init__(self, secret: str) -> None:
        encoded = base64url_encode(secret.encode()).decode()
        self._ring = KeyRing((PyJWK({"kty": "oct", "k": encoded}, algorithm="HS256"),))

    async def current(self) -> KeyRing:
        return self._ring

    async def refreshed(self) -> KeyRing:
        return self._ring


class KeySet:
    """The public keys of an issuer; old keys stay in use while new ones cannot be read."""

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
        self._ring: KeyRing | None = None
        self._document = b""
        self._read_at = self._tried_at = float("-inf")
        self._reading: asyncio.Task[None] | None = None

    async def current(self) -> KeyRing:
        if self._ring is None:
            await self._refresh_and_wait(FIRST_PAUSE_SECONDS)
            if self._ring is None:
                raise Unavailable("the keys that verify tokens cannot be read (HORAE_JWKS); retry later")
        elif self._elapsed() - self._read_at > self._fresh_seconds:
            self._start_refresh(PAUSE_SECONDS)  # in the background: the old keys are used until it is done
        return self._ring

    async def refreshed(self) -> KeyRing:
        await self._refresh_and_wait(min(PAUSE_SECONDS, self._fresh_seconds))
        return await self.current()

    async def _refresh_and_wait(self, pause: float) -> None:
        self._start_refresh(pause)
        if self._reading is not None:
            await asyncio.shield(self._reading)

    def _start_refresh(self, pause: float) -> None:
        if self._reading is None and self._elapsed() - self._tried_at >= pause:
            self._tried_at = self._elapsed()
            self._reading = asyncio.create_task(self._refresh())
            self._reading.add_done_callback(self._refresh_done)

    def _refresh_done(self, reading: asyncio.Task[None]) -> None:
        self._reading = None

    async def _refresh(self) -> None:
        try:
            document = await self._read()
            if document != self._document:
                version = 0 if self._ring is None else self._ring.version + 1
                self._ring = KeyRing(parse_keys(document), version)
                self._document = document
        except (Misconfigured, Unavailable) as exc:
            log.warning("jwks_read_failed", error=str(exc), keeps_old_keys=self._ring is not None)
            return
        self._read_at = self._elapsed()


def jwks_at(place: str) -> KeySet:
    """Return the keys of a JWKS in a file or at a URL."""
    if is_url(place):
        return KeySet(lambda: _fetch(place), fresh_seconds=URL_FRESH_SECONDS)
    return KeySet(lambda: asyncio.to_thread(read_file, place), fresh_seconds=FILE_FRESH_SECONDS)


def is_url(place: str) -> bool:
    """Whether a JWKS is fetched over the network."""
    return urlsplit(place).scheme in ("http", "https")


def read_file(place: str) -> bytes:
    """Return a JWKS from a file, whose name may start with file://; raises Misconfigured."""
    try:
        return Path(place.removeprefix("file://")).read_bytes()
    except OSError as exc:
        raise Misconfigured(f"HORAE_JWKS = {place}: the file cannot be read: {exc.strerror}") from exc


def parse_keys(document: bytes) -> tuple[PyJWK, ...]:
    """Return the keys of a JWKS that can verify signatures; raises Misconfigured when there is none."""
    try:
        listed = json.loads(document)["keys"]
        found = [key for key in listed if isinstance(key, dict)]
    except (ValueError, KeyError, TypeError, RecursionError) as exc:
        raise Misconfigured('HORAE_JWKS is not a JWKS: it must be JSON such as {"keys": [...]}') from exc
    keys = tuple(key for data in found if (key := _usable(data)) is not None)
    if not keys:
        raise Misconfigured(
            "HORAE_JWKS has no public key that can verify signatures: RSA (2048 bits or more), EC or Ed25519"
        )
    return keys


def _usable(data: Mapping[str, Any]) -> PyJWK | None:
    """Return a key, or None when it cannot verify signatures; shared secrets in a public document are ignored."""
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
        raise ValueError("not a public key for signatures")
    key = PyJWK({name: data[name] for name in _PUBLIC if name in data})
    if key.algorithm_name not in ALGORITHMS or (data["kty"] == "RSA" and key.key.key_size < MIN_RSA_BITS):
        raise ValueError("too weak, or not supported")
    return key


async def _fetch(url: str) -> bytes:
    """Fetch a JWKS; redirects are not followed, because they could lead anywhere."""
    local = is_loopback(urlsplit(url).hostname or "")
    try:
        async with (
            asyncio.timeout(FETCH_SECONDS),
            httpx2.AsyncClient(timeout=FETCH_SECONDS, trust_env=not local) as client,
            client.stream("GET", url, headers={"Accept": "application/json"}) as response,
        ):
            if response.status_code != 200:
                raise Unavailable(f"{_redacted(url)} responded with {response.status_code}")
            return await _read_limited(response)
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as exc:
        raise Unavailable(f"{_redacted(url)} did not respond: {type(exc).__name__}") from exc


async def _read_limited(response: httpx2.Response) -> bytes:
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > MAX_DOCUMENT:
            raise Unavailable(f"the JWKS is larger than {MAX_DOCUMENT} bytes")
    return bytes(body)


def _redacted(url: str) -> str:
    """Return a URL without user, password, port and query, which may be secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}{parts.path}"
