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
    """The public part of a key, as an issuer publishes it."""
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
    """What a good token says; a claim that is given as None is left out."""
    said = {"sub": sub, "scope": scope, "iat": int(now), "exp": int(now) + 600, "aud": AUDIENCE, **more}
    return {name: value for name, value in said.items() if value is not None}


def by_secret(said: dict[str, Any], secret: str = SECRET) -> str:
    return jwt.encode(said, secret, algorithm="HS256")


def by_key(said: dict[str, Any], key: PrivateKey = RSA_KEY, kid: str | None = "main", algorithm: str = "RS256") -> str:
    return jwt.encode(said, key, algorithm=algorithm, headers=None if kid is None else {"kid": kid})


def unsigned(said: dict[str, Any], alg: str = "none") -> str:
    """`alg: none`, in the spelling that is wished."""
    return f"{_part({'alg': alg, 'typ': 'JWT'})}.{_part(said)}."


def by_public_key(said: dict[str, Any], key: PrivateKey = RSA_KEY, kid: str | None = "main") -> str:
    """HS256, signed with what everybody knows: the public key as the server could have it at hand."""
    pem = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    head = {"alg": "HS256", "typ": "JWT"} | ({} if kid is None else {"kid": kid})
    signed = f"{_part(head)}.{_part(said)}"
    return f"{signed}.{_encoded(hmac.new(pem, signed.encode(), hashlib.sha256).digest())}"


def by_nothing(said: dict[str, Any], kid: object) -> str:
    """HS256 with an empty secret, which is what a name of a file or of a row leads to when there is nothing in it."""
    signed = f"{_part({'alg': 'HS256', 'typ': 'JWT', 'kid': kid})}.{_part(said)}"
    return f"{signed}.{_encoded(hmac.new(b'', signed.encode(), hashlib.sha256).digest())}"


def tampered(token: str) -> str:
    """The same token with another last character but a few of its signature."""
    changed = "A" if token[-6] != "A" else "B"
    return f"{token[:-6]}{changed}{token[-5:]}"


def _part(value: dict[str, Any]) -> str:
    return _encoded(json.dumps(value).encode())


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
