"""Encrypts secret parameters at rest, and merges them into the parameters when an attempt starts.

Sealed text is `v1:<key id>:<base64 of nonce and AES-256-GCM>` with a key, and `plain:<JSON>` without one.
"""

import base64
import binascii
import hashlib
import json
import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from horae.core.drafts import Secrets, SecretsPatch, Unchanged
from horae.core.errors import Conflict, Invalid, Misconfigured, TooLarge
from horae.core.merge_patch import merge_patch
from horae.secrets.redaction import values_of

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

MAX_SECRETS = 64 * 1024  # bytes of JSON; they are kept in the rows that are claimed
MAX_VALUES = 200  # each is searched for in everything that a task logs or returns
MIN_KEY_TEXT = 16  # characters of a key that is a passphrase instead of base64 of 32 bytes
_KEY_BYTES = 32
_NONCE_BYTES = 12
_SEALED = re.compile(r"v1:(?P<key>[0-9a-f]{8}):(?P<data>[A-Za-z0-9+/=]+)")
_PLAIN = "plain:"
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])


class SecretsLocked(Conflict):
    """The secrets were sealed with a key that this process does not have."""

    code = "secrets_locked"

    def __init__(self, why: str) -> None:
        super().__init__(
            f"the secrets cannot be opened: {why}; set HORAE_ENCRYPTION_KEY to the key that sealed them"
            " (several keys may be given, separated by commas), or set all secrets again"
        )


@dataclass(frozen=True, slots=True)
class Opened:
    """Secrets as JSON text, and as they are stored."""

    text: str = field(repr=False)
    sealed: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class _Key:
    id: str
    cipher: "AESGCM"


class Sealer:
    """Encrypts with the first of its keys, and decrypts with any of them."""

    def __init__(self, keys: str = "") -> None:
        """Take keys as HORAE_ENCRYPTION_KEY has them: separated by commas, empty for none."""
        self._keys = [_key(text.strip()) for text in keys.split(",") if text.strip()]

    def revised(self, wanted: Secrets, before: str | None = None) -> "Opened | None":
        """Return the wanted secrets, given the sealed ones that the job has so far; None if there are none.

        Secrets that did not change keep their sealed text. Raises SecretsLocked if the result depends on secrets that
        cannot be opened.
        """
        match wanted:
            case None:
                return None
            case Unchanged():
                return None if before is None else Opened(self.open(before), before)
            case SecretsPatch():
                text = patched(None if before is None else self.open(before), wanted.text)
            case str():
                text = wanted
        _refuse_invalid(text)
        return Opened(text, self._unchanged(text, before) or self.seal(text)) if json.loads(text) else None

    def _unchanged(self, text: str, before: str | None) -> str | None:
        try:
            return before if before is not None and same(self.open(before), text) else None
        except SecretsLocked:
            return None  # a full set of secrets replaces the old ones without reading them

    def seal(self, secrets: str) -> str:
        """Encrypt the JSON text of an object."""
        if not self._keys:
            return f"{_PLAIN}{secrets}"
        key, nonce = self._keys[0], os.urandom(_NONCE_BYTES)
        data = nonce + key.cipher.encrypt(nonce, secrets.encode(), key.id.encode())
        return f"v1:{key.id}:{base64.b64encode(data).decode()}"

    def open(self, sealed: str) -> str:
        """Decrypt to JSON text; raises SecretsLocked."""
        if sealed.startswith(_PLAIN):
            return sealed.removeprefix(_PLAIN)
        from cryptography.exceptions import InvalidTag  # late: most processes decrypt nothing

        match = _SEALED.fullmatch(sealed)
        if match is None:
            raise SecretsLocked("this version of Horae does not know their format")
        key = next((key for key in self._keys if key.id == match["key"]), None)
        if key is None:
            raise SecretsLocked(f"they were sealed with another key ({match['key']})")
        try:
            data = base64.b64decode(match["data"], validate=True)
            return key.cipher.decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], key.id.encode()).decode()
        except (InvalidTag, binascii.Error, ValueError) as exc:
            raise SecretsLocked("their stored text was modified") from exc


def _refuse_invalid(secrets: str) -> None:
    size = len(secrets.encode())
    if size > MAX_SECRETS:
        raise TooLarge(f"the secrets have {size} bytes of JSON; {MAX_SECRETS} are allowed: pass large data in params")
    try:
        _OBJECT.decode(secrets)
    except msgspec.MsgspecError as exc:
        raise Invalid("secrets must be an object of named parameters", pointer="/secrets") from exc
    if (count := len(values_of(secrets))) > MAX_VALUES:
        detail = f"the secrets have {count} values; {MAX_VALUES} are allowed: pass what may be seen in params"
        raise Invalid(detail, pointer="/secrets")


def _key(text: str) -> _Key:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # late: most processes have no key

    data = _random_key(text) or _derived_key(text)
    return _Key(hashlib.sha256(b"horae key id" + data).hexdigest()[:8], AESGCM(data))


def _random_key(text: str) -> bytes | None:
    """Return the bytes of a key that is given as base64, or None if the text is a passphrase."""
    try:
        data = base64.b64decode(text.replace("-", "+").replace("_", "/"), validate=True)
    except (binascii.Error, ValueError):
        return None
    return data if len(data) == _KEY_BYTES else None


def _derived_key(text: str) -> bytes:
    if len(text) < MIN_KEY_TEXT:
        raise Misconfigured(
            f"a key in HORAE_ENCRYPTION_KEY is shorter than {MIN_KEY_TEXT} characters;"
            " make one with: openssl rand -base64 32"
        )
    return hashlib.scrypt(text.encode(), salt=b"horae secrets v1", n=2**14, r=8, p=1, dklen=_KEY_BYTES)


# --- merging


def merged(params: str, secrets: str) -> str:
    """Return the parameters of an attempt: objects in both are merged, and otherwise the secret value wins."""
    return msgspec.json.encode(_merged(params.encode(), secrets.encode())).decode()


def _merged(params: bytes | msgspec.Raw, secrets: bytes | msgspec.Raw) -> dict[str, Any]:
    values: dict[str, Any] = _OBJECT.decode(params)
    for name, secret in _OBJECT.decode(secrets).items():
        plain = values.get(name)
        if plain is not None and _is_object(plain) and _is_object(secret):
            values[name] = _merged(plain, secret)
        else:
            values[name] = secret
    return values


def _is_object(raw: msgspec.Raw) -> bool:
    return bytes(raw).lstrip().startswith(b"{")


def patched(secrets: str | None, patch: str) -> str:
    """Return the secrets after a JSON merge patch."""
    return json.dumps(merge_patch(json.loads(secrets or "{}"), json.loads(patch)), ensure_ascii=False)


def keeps_some(wanted: Secrets, before: str) -> bool:
    """Return whether one of the secrets before (JSON text) stays without being given again."""
    match wanted:
        case Unchanged():
            return True
        case SecretsPatch():
            return _leaves_some(json.loads(wanted.text), json.loads(before))
    return False


def _leaves_some(patch: dict[str, Any], before: dict[str, Any]) -> bool:
    for name, value in before.items():
        given = patch.get(name)
        if name not in patch or (isinstance(given, dict) and isinstance(value, dict) and _leaves_some(given, value)):
            return True
    return False


def same(one: str, other: str) -> bool:
    """Return whether two JSON texts have the same value."""
    return bool(json.loads(one) == json.loads(other))
