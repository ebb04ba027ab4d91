"""Whose token it is: the signature, times, audience and claims of a JWT."""

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jwt

from horae.api.auth.jwks import Keys, Ring

MAX_TOKEN = 16_384  # bytes
MAX_NAME = 200  # characters of an owner or subject
MAX_REMEMBERED = 10_000  # verified tokens; the one that was verified first makes room
SKEW_SECONDS = 30.0  # by which an issuer's clock may be ahead; a token is never good after its end

_SIGNATURE_ONLY = {
    f"verify_{claim}": False for claim in ("exp", "nbf", "iat", "aud", "iss", "sub", "jti")
}  # the times are those of the store's clock, so the claims are checked here


class InvalidToken(Exception):
    """A token that says nothing; the message may be shown to its sender."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Claims:
    """What a good token says; one is found again by what it is, not by what it holds."""

    owner: str
    subject: str
    scopes: frozenset[str]
    expires_at: float  # seconds since 1970


class Tokens:
    """Verifies tokens, and remembers those that it has verified."""

    def __init__(
        self, keys: Keys, *, now: Callable[[], float], audience: str | None = None, owner_claim: str = "sub"
    ) -> None:
        """`now` answers seconds since 1970."""
        self._keys = keys
        self._now = now
        self._audience = audience
        self._owner_claim = owner_claim
        self._verified: dict[bytes, Claims] = {}
        self._version = 0

    async def verify(self, token: str) -> Claims:
        """The claims of a good token; raises InvalidToken, or Unavailable when there are no keys."""
        if len(token) > MAX_TOKEN:
            raise _invalid()
        ring = await self._keys.current()
        if ring.version != self._version:
            self._verified.clear()  # a key may have been withdrawn
            self._version = ring.version
        digest = hashlib.sha256(token.encode("utf-8", "replace")).digest()
        claims = self._verified.get(digest)
        if claims is None:
            claims = self._read(await self._payload(token, ring))
            self._remember(digest, claims)
        if self._now() >= claims.expires_at:
            raise InvalidToken("the token has expired; get a new one")
        return claims

    def _remember(self, digest: bytes, claims: Claims) -> None:
        if len(self._verified) >= MAX_REMEMBERED:
            del self._verified[next(iter(self._verified))]
        self._verified[digest] = claims

    async def _payload(self, token: str, ring: Ring) -> Mapping[str, Any]:
        """What the token says, if one of our keys has signed it."""
        try:
            header = jwt.get_unverified_header(token)
        except (jwt.InvalidTokenError, ValueError, RecursionError) as exc:
            raise _invalid() from exc
        kid, algorithm = header.get("kid"), str(header.get("alg"))
        payload = _signed_payload(token, ring, kid, algorithm)
        if payload is None and not ring.knows(kid):
            payload = _signed_payload(token, await self._keys.renewed(), kid, algorithm)
        if payload is None:
            raise _invalid()
        return payload

    def _read(self, payload: Mapping[str, Any]) -> Claims:
        """The claims, checked; what is told about them is told only to somebody with a signed token."""
        now = self._now()
        expires_at = _time(payload, "exp")
        if expires_at is None:
            raise InvalidToken("the token has no end (exp); get one that expires")
        for name in ("nbf", "iat"):
            if (_time(payload, name) or 0.0) > now + SKEW_SECONDS:
                raise InvalidToken(f"the token is not valid yet ({name})")
        if self._audience is not None and self._audience not in _texts(payload.get("aud")):
            raise InvalidToken("the token is for somebody else (aud)")
        owner = _name(payload, self._owner_claim)
        subject = _name(payload, "sub") if "sub" in payload else owner
        scopes = payload.get("scope", payload.get("scp"))
        return Claims(owner=owner, subject=subject, scopes=frozenset(_texts(scopes, split=True)), expires_at=expires_at)


def _signed_payload(token: str, ring: Ring, kid: str | None, algorithm: str) -> Mapping[str, Any] | None:
    for key in ring.fitting(kid, algorithm):
        try:
            return jwt.decode(token, key, algorithms=[key.algorithm_name], options=_SIGNATURE_ONLY)  # type: ignore[arg-type]
        except (jwt.InvalidTokenError, jwt.InvalidKeyError, ValueError, RecursionError):
            continue
    return None


def _invalid() -> InvalidToken:
    return InvalidToken("the token is not valid here")


def _time(payload: Mapping[str, Any], name: str) -> float | None:
    value = payload.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidToken(f"the token has a time that is none ({name})")
    return float(min(value, 1e15))


def _texts(value: object, *, split: bool = False) -> list[str]:
    """A claim that may be one text or a list of them."""
    if isinstance(value, str):
        return value.split() if split else [value]
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _name(payload: Mapping[str, Any], claim: str) -> str:
    value = payload.get(claim)
    if not isinstance(value, str) or not value.strip() or len(value) > MAX_NAME or not _can_be_kept(value):
        raise InvalidToken(f"the token does not say whose it is ({claim}: a text of 1 to {MAX_NAME} characters)")
    return value


def _can_be_kept(text: str) -> bool:
    """Whether every store can hold the text: no NUL, and no half of a surrogate pair."""
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)
