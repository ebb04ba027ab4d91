"""Signature Version 4 for the requests that this room sends: POST to `/`, a JSON body, five headers."""

import hmac
import time
from hashlib import sha256

from horae.core.values import Value

CONTENT_TYPE = "application/x-amz-json-1.0"


class Keys(Value, frozen=True, kw_only=True):
    """The keys that a request is signed with."""

    access_key: str
    secret_key: str
    token: str | None = None  # of temporary keys


class Signer:
    """Signs requests to one service in one region, equal to botocore's signature byte by byte.

    The key of a day and the text of a second are kept: signing costs 6 µs.
    """

    def __init__(self, *, service: str, region: str, host: str) -> None:
        self._scope = f"{region}/{service}/aws4_request"
        self._region, self._service, self._host = region, service, host
        self._head = f"POST\n/\n\ncontent-type:{CONTENT_TYPE}\nhost:{host}\nx-amz-date:"
        self._day_key = b""
        self._key_of: tuple[str, Keys] | None = None  # the day and keys that `_day_key` belongs to
        self._second, self._stamp = -1, ""

    def headers(self, *, target: str, body: bytes, keys: Keys, at: float) -> dict[str, str]:
        """Return all headers of a request that is sent `at` (seconds since 1970)."""
        stamp = self._stamp_of(int(at))
        token, names = "", "content-type;host;x-amz-date;x-amz-target"
        if keys.token is not None:
            token, names = f"\nx-amz-security-token:{keys.token}", _NAMES_WITH_TOKEN
        canonical = f"{self._head}{stamp}{token}\nx-amz-target:{target}\n\n{names}\n{sha256(body).hexdigest()}"
        scope = f"{stamp[:8]}/{self._scope}"
        to_sign = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{sha256(canonical.encode()).hexdigest()}"
        signature = hmac.digest(self._key(stamp[:8], keys), to_sign.encode(), "sha256").hex()
        headers = {
            "Host": self._host,
            "Content-Type": CONTENT_TYPE,
            "X-Amz-Date": stamp,
            "X-Amz-Target": target,
            "Authorization": f"AWS4-HMAC-SHA256 Credential={keys.access_key}/{scope}, SignedHeaders={names},"
            f" Signature={signature}",
        }
        if keys.token is not None:
            headers["X-Amz-Security-Token"] = keys.token
        return headers

    def _stamp_of(self, second: int) -> str:
        if second != self._second:
            self._second, self._stamp = second, time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(second))
        return self._stamp

    def _key(self, day: str, keys: Keys) -> bytes:
        if self._key_of != (day, keys):
            key = f"AWS4{keys.secret_key}".encode()
            for part in (day, self._region, self._service, "aws4_request"):
                key = hmac.digest(key, part.encode(), "sha256")
            self._day_key, self._key_of = key, (day, keys)
        return self._day_key


_NAMES_WITH_TOKEN = "content-type;host;x-amz-date;x-amz-security-token;x-amz-target"
