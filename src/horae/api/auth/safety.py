"""Refuses unsafe settings before the server listens, with a message that says what to change."""

from collections.abc import Collection
from urllib.parse import urlsplit

from horae.api.auth.jwks import is_url, parse_keys, read_file
from horae.api.http.origin import is_loopback
from horae.config import MAKE_SECRET, Settings, refuse_short_secret, without_password
from horae.core.errors import Misconfigured
from horae.secrets.sealer import Sealer


def refuse_unsafe(settings: Settings, *, roles: Collection[str], local: bool = False) -> None:
    """Raise Misconfigured unless a node with these settings is safe; `local` means `horae dev` on one's own machine."""
    Sealer(settings.encryption_key)
    if "api" not in roles:
        return
    refuse_unsafe_auth(settings)
    if settings.auth == "off":
        _refuse_forgotten_auth(settings, local=local)
        _refuse_beyond_loopback(settings)


def refuse_unsafe_auth(settings: Settings) -> None:
    """Raise Misconfigured unless the settings allow tokens to be verified."""
    if settings.auth != "jwt":
        return
    if settings.jwt_secret and settings.jwks:
        raise Misconfigured(
            "HORAE_JWT_SECRET and HORAE_JWKS are both set, but tokens are verified with only one; unset the other"
        )
    if settings.jwt_secret:
        refuse_short_secret(settings.jwt_secret)
    elif settings.jwks:
        _refuse_unsafe_jwks(settings.jwks)
    else:
        raise Misconfigured(
            "HORAE_AUTH = jwt needs a key to verify tokens: set HORAE_JWT_SECRET, or set HORAE_JWKS to the file or URL"
            f" of your issuer's keys; to try it out with a secret of your own, {MAKE_SECRET}"
        )


def _refuse_unsafe_jwks(place: str) -> None:
    """Raise Misconfigured for keys that come over an open network, where an attacker could replace them."""
    if not is_url(place):
        if "://" in place and not place.startswith("file://"):
            raise Misconfigured(f"HORAE_JWKS = {without_password(place)!r}: must be a file or an https:// URL")
        parse_keys(read_file(place))
        return
    parts = urlsplit(place)
    if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
        raise Misconfigured(
            f"HORAE_JWKS = {without_password(place)!r}: the keys must come over https or from a file,"
            " because an attacker on the network could replace them"
        )


def _refuse_forgotten_auth(settings: Settings, *, local: bool) -> None:
    given = [name for name in ("jwt_secret", "jwks") if getattr(settings, name)]
    if given and not local:
        raise Misconfigured(
            f"HORAE_{given[0].upper()} is set, but HORAE_AUTH is off, so no token would be required;"
            f" set HORAE_AUTH=jwt, or unset HORAE_{given[0].upper()}"
        )


def _refuse_beyond_loopback(settings: Settings) -> None:
    if is_loopback(settings.host):
        return
    who = "anybody could run programs (HORAE_ALLOW_SHELL)" if settings.allow_shell else "anybody could do anything"
    raise Misconfigured(
        f"without authentication Horae listens on loopback only, not on {settings.host}, where {who};"
        " set HORAE_AUTH=jwt with HORAE_JWT_SECRET or HORAE_JWKS,"
        " or put a proxy that authenticates, and sends Host: localhost, in front of 127.0.0.1"
    )
