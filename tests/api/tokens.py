"""Keys and tokens for tests: good ones, and every kind of bad one."""

import base64
import hashlib
import hmac
import json
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

SECRET = "a secret that only the issuer and horae know, and that is long enough for HS512, too"
AUDIENCE = "horae-tests"
RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
WEAK_RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=1024)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
ED_KEY = ed25519.Ed25519PrivateKey.generate()

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


def public_jwk(key: PrivateKey, kid: str | None = None) -> dict[str, Any]:
    """Return the public part of a key as a JWK."""
    match key:
        case rsa.RSAPrivateKey():
            data = RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
        case ec.EllipticCurvePrivateKey():
            data = ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
        case _:
            data = OKPAlgorithm.to_jwk(key.public_key(), as_dict=True)
    return {name: value for name, value in data.items() if name != "key_ops"} | ({} if kid is None else {"kid": kid})


def document(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": list(keys)}).encode()


def claims(now: float, sub: str = "ann", scope: str = "jobs:read jobs:write", **more: Any) -> dict[str, Any]:
    """Return the claims of a valid token; a claim of None is left out."""
    claimed = {"sub": sub, "scope": scope, "iat": int(now), "exp": int(now) + 600, "aud": AUDIENCE, **more}
    return {name: value for name, value in claimed.items() if value is not None}


def by_secret(claimed: dict[str, Any], secret: str = SECRET) -> str:
    return jwt.encode(claimed, secret, algorithm="HS256")


def by_key(
    claimed: dict[str, Any], key: PrivateKey = RSA_KEY, kid: str | None = "main", algorithm: str = "RS256"
) -> str:
    return jwt.encode(claimed, key, algorithm=algorithm, headers=None if kid is None else {"kid": kid})


def unsigned(claimed: dict[str, Any], alg: str = "none") -> str:
    """Return a token with `alg: none` in some spelling."""
    return f"{_part({'alg': alg, 'typ': 'JWT'})}.{_part(claimed)}."


def by_public_key(claimed: dict[str, Any], key: PrivateKey = RSA_KEY, kid: str | None = "main") -> str:
    """Return a token with HS256, signed with the public key as the secret."""
    pem = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    head = {"alg": "HS256", "typ": "JWT"} | ({} if kid is None else {"kid": kid})
    signed = f"{_part(head)}.{_part(claimed)}"
    return f"{signed}.{_encoded(hmac.new(pem, signed.encode(), hashlib.sha256).digest())}"


def by_nothing(claimed: dict[str, Any], kid: object) -> str:
    """Return a token with HS256 and an empty secret, which an injected key id (a file or a row) could lead to."""
    signed = f"{_part({'alg': 'HS256', 'typ': 'JWT', 'kid': kid})}.{_part(claimed)}"
    return f"{signed}.{_encoded(hmac.new(b'', signed.encode(), hashlib.sha256).digest())}"


def tampered(token: str) -> str:
    """Return a token with one character of its signature changed."""
    changed = "A" if token[-6] != "A" else "B"
    return f"{token[:-6]}{changed}{token[-5:]}"


def _part(value: dict[str, Any]) -> str:
    return _encoded(json.dumps(value).encode())


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
