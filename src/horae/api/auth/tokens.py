"""Verifies tokens: the signature, times, audience and claims of a JWT."""

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jwt

from horae.api.auth.grants import Grants, read_grants
from horae.api.auth.jwks import KeyRing, KeySource
from horae.core.owners import EVERY_OWNER

MAX_TOKEN = 16_384  # bytes
MAX_NAME = 200  # characters of an owner or subject
MAX_CACHED = 10_000  # verified tokens; the oldest entry is dropped
SKEW_SECONDS = 30.0  # how far an issuer's clock may be ahead; no tolerance applies to `exp`

_SIGNATURE_ONLY = {
    f"verify_{claim}": False for claim in ("exp", "nbf", "iat", "aud", "iss", "sub", "jti")
}  # the claims are checked here, against the store's clock


class InvalidToken(Exception):
    """A token that is not accepted; the message may be shown to its sender."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TokenClaims:
    """The claims of a valid token; compared by identity, which makes them cheap keys of a cache."""

    owner: str
    subject: str
    scopes: frozenset[str]
    expires_at: float  # Unix time in seconds
    grants: Grants


class TokenVerifier:
    """Verifies tokens, and caches the verified ones."""

    def __init__(
        self, keys: KeySource, *, now: Callable[[], float], audience: str | None = None, owner_claim: str = "sub"
    ) -> None:
        """Create a verifier; `now` returns Unix time."""
        self._keys = keys
        self._now = now
        self._audience = audience
        self._owner_claim = owner_claim
        self._verified: dict[bytes, TokenClaims] = {}
        self._version = 0

    async def verify(self, token: str) -> TokenClaims:
        """Return the claims of a valid token; raises InvalidToken, or Unavailable when there are no keys."""
        if len(token) > MAX_TOKEN:
            raise _invalid()
        ring = await self._keys.current()
        if ring.version != self._version:
            self._verified.clear()  # a key may have been revoked
            self._version = ring.version
        digest = hashlib.sha256(token.encode("utf-8", "replace")).digest()
        claims = self._verified.get(digest)
        if claims is None:
            claims = self._read(await self._payload(token, ring))
            self._cache(digest, claims)
        if self._now() >= claims.expires_at:
            raise InvalidToken("the token has expired; get a new one")
        return claims

    def _cache(self, digest: bytes, claims: TokenClaims) -> None:
        if len(self._verified) >= MAX_CACHED:
            del self._verified[next(iter(self._verified))]
        self._verified[digest] = claims

    async def _payload(self, token: str, ring: KeyRing) -> Mapping[str, Any]:
        """Return the payload of a token that one of the keys has signed; raises InvalidToken."""
        try:
            header = jwt.get_unverified_header(token)
        except (jwt.InvalidTokenError, ValueError, RecursionError) as exc:
            raise _invalid() from exc
        kid, algorithm = header.get("kid"), str(header.get("alg"))
        payload = _signed_payload(token, ring, kid, algorithm)
        if payload is None and not ring.has(kid):
            payload = _signed_payload(token, await self._keys.refreshed(), kid, algorithm)
        if payload is None:
            raise _invalid()
        return payload

    def _read(self, payload: Mapping[str, Any]) -> TokenClaims:
        """Check and return the claims; the messages may be specific, because the token is known to be signed."""
        now = self._now()
        expires_at = _time(payload, "exp")
        if expires_at is None:
            raise InvalidToken("the token has no expiry (exp); get one that expires")
        for name in ("nbf", "iat"):
            if (_time(payload, name) or 0.0) > now + SKEW_SECONDS:
                raise InvalidToken(f"the token is not valid yet ({name})")
        if self._audience is not None and self._audience not in _texts(payload.get("aud")):
            raise InvalidToken("the token is for another audience (aud)")
        owner = _name(payload, self._owner_claim)
        subject = _name(payload, "sub") if "sub" in payload else owner
        scopes = payload.get("scope", payload.get("scp"))
        return TokenClaims(
            owner=owner,
            subject=subject,
            scopes=frozenset(_texts(scopes, split=True)),
            expires_at=expires_at,
            grants=_grants(payload),
        )


def _grants(payload: Mapping[str, Any]) -> Grants:
    try:
        return read_grants(payload)
    except ValueError as exc:
        raise InvalidToken(str(exc)) from exc


def _signed_payload(token: str, ring: KeyRing, kid: str | None, algorithm: str) -> Mapping[str, Any] | None:
    for key in ring.candidates(kid, algorithm):
        try:
            return jwt.decode(token, key, algorithms=[key.algorithm_name], options=_SIGNATURE_ONLY)  # type: ignore[arg-type]
        except (jwt.InvalidTokenError, jwt.InvalidKeyError, ValueError, RecursionError):
            continue
    return None


def _invalid() -> InvalidToken:
    return InvalidToken("the token is not valid")


def _time(payload: Mapping[str, Any], name: str) -> float | None:
    value = payload.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidToken(f"the token has an invalid time ({name})")
    return float(min(value, 1e15))


def _texts(value: object, *, split: bool = False) -> list[str]:
    """Return the texts of a claim that may be one text or a list."""
    if isinstance(value, str):
        return value.split() if split else [value]
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _name(payload: Mapping[str, Any], claim: str) -> str:
    value = payload.get(claim)
    if not isinstance(value, str) or not value.strip() or len(value) > MAX_NAME or not _is_storable(value):
        raise InvalidToken(f"the token does not name its owner ({claim}: a text of 1 to {MAX_NAME} characters)")
    if value == EVERY_OWNER:
        raise InvalidToken(f"the token names its owner {value!r} ({claim}), which stands for every owner")
    return value


def _is_storable(text: str) -> bool:
    """Whether every store can hold a text: no NUL and no unpaired surrogate."""
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)
