"""Object stores of Amazon, Google and Microsoft by address, and the translation of their errors.

`s3://BUCKET/PREFIX?region=…&endpoint=URL&sse=s3|kms&kms_key=ID`, `gs://BUCKET/PREFIX`, `az://CONTAINER/PREFIX?account=…`.
"""

import re
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from horae.aws_api.address import is_loopback
from horae.aws_api.credentials import Credentials
from horae.core.errors import HoraeError, InternalError, Misconfigured, Unavailable

SCHEMES = ("s3", "gs", "az")
OPTIONS = {
    "s3": ("endpoint", "region", "sse", "kms_key"),
    "gs": ("endpoint",),
    "az": ("endpoint", "account"),
}
TIMEOUTS = {"connect_timeout": timedelta(seconds=5), "timeout": timedelta(seconds=30)}
RETRIES = {  # of requests that got no answer or a 5xx; what is not safe to repeat is conditional or replaces the same
    "max_retries": 5,
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=2), "base": 2},
    "retry_timeout": timedelta(seconds=20),
}
KEYS_VALID = timedelta(minutes=6)  # obstore asks again five minutes before they expire: so every minute

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,221}")
_KEY = re.compile(r"(?!\.{1,2}(?:/|$))[A-Za-z0-9_.=-]+(?:/(?!\.{1,2}(?:/|$))[A-Za-z0-9_.=-]+)*", re.ASCII)
# What services say, and what to do about it; the first that is found in the text of an error counts.
_ADVICE = (
    (
        r"NoSuchBucket|bucket does not exist|ContainerNotFound",
        "there is no such bucket: create it, or correct the address",
    ),
    (
        r"AuthorizationHeaderMalformed|PermanentRedirect|IllegalLocationConstraint|301 Moved",
        "the bucket is in another region: add ?region=… to the address",
    ),
    (r"InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken", "the credentials are wrong or expired"),
    (r"KMS", "the key for the encryption cannot be used: permit kms:GenerateDataKey and kms:Decrypt"),
    (
        r"AccessDenied|Forbidden|PermissionDenied|403",
        "access is denied: see the actions in docs/operations/object-storage.md",
    ),
)


class Bucket(NamedTuple):
    """A bucket, or a prefix of it, that is ready to use."""

    store: Any  # an obstore store, whose paths are relative to the prefix
    address: str  # for messages

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Raise errors of the object store as Unavailable, with a sentence that says what to do."""
        from obstore.exceptions import BaseError

        try:
            yield
        except (BaseError, OSError) as exc:
            raise Unavailable(f"{self.address}: {advice_on(str(exc))}") from exc

    def path(self, key: str) -> str:
        """Return a key as a path; the keys are Horae's own, so another shape is a bug."""
        if _KEY.fullmatch(key) is None:
            raise InternalError(f"{key!r} cannot be the key of an object")
        return key


def is_object_store(address: str) -> bool:
    """Whether an address is that of an object store."""
    return urlsplit(address).scheme in SCHEMES


def open_bucket(address: str, variable: str) -> Bucket:
    """Return the bucket of an address, without asking it anything; raises Misconfigured, naming the setting."""
    try:
        from obstore import store
    except ImportError as exc:
        raise Misconfigured(
            f"{variable}: object stores need their driver, obstore: install Horae with the extra `aws`"
        ) from exc
    parts = urlsplit(address)
    options = _options(address, variable)
    kind, configure = {"s3": (store.S3Store, _s3), "gs": (store.GCSStore, _gs), "az": (store.AzureStore, _az)}[
        parts.scheme
    ]
    shown = f"{parts.scheme}://{parts.netloc}{parts.path}"
    prefix = unquote(parts.path).strip("/") or None
    endpoint = options.get("endpoint", "")
    client = {**TIMEOUTS, "allow_http": endpoint.startswith("http://")}
    try:
        made = kind(parts.netloc, prefix=prefix, client_options=client, retry_config=RETRIES, **configure(options))
    except HoraeError:
        raise
    except Exception as exc:  # obstore raises classes of its own and ValueError for what it cannot use
        raise Misconfigured(f"{variable} = {shown!r}: {exc}") from exc
    return Bucket(made, shown)


def advice_on(text: str) -> str:
    """Return a sentence about an error of an object store, with the beginning of what it said."""
    said = " ".join(text.split())[:300]
    for pattern, advice in _ADVICE:
        if re.search(pattern, text, re.IGNORECASE):
            return f"{advice} ({said})"
    return f"the object store did not answer as expected ({said})"


def _options(address: str, variable: str) -> Mapping[str, str]:
    parts = urlsplit(address)
    if parts.scheme not in SCHEMES or _BUCKET.fullmatch(parts.netloc) is None:
        raise Misconfigured(f"{variable} = {address!r}: must be like s3://bucket/prefix, gs://… or az://…")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := options.keys() - {*OPTIONS[parts.scheme]}:
        known = ", ".join(OPTIONS[parts.scheme])
        raise Misconfigured(f"{variable}: {parts.scheme}:// has no option {min(unknown)!r}; its options are {known}")
    endpoint = options.get("endpoint")
    if endpoint is not None and urlsplit(endpoint).scheme not in ("http", "https"):
        raise Misconfigured(f"{variable}: endpoint={endpoint} must be http://HOST:PORT or https://HOST")
    return options


def _s3(options: Mapping[str, str]) -> dict[str, Any]:
    endpoint = options.get("endpoint")
    found: dict[str, Any] = {"credential_provider": _aws_keys(is_local=endpoint is not None and is_loopback(endpoint))}
    if endpoint is not None:
        found |= {"endpoint": endpoint.rstrip("/"), "virtual_hosted_style_request": False}
    if "region" in options:
        found["region"] = options["region"]
    match options.get("sse"), options.get("kms_key"):
        case None, None:
            pass
        case "s3", None:
            found["server_side_encryption"] = "AES256"
        case "kms", None:
            found |= {"server_side_encryption": "aws:kms", "sse_bucket_key_enabled": True}
        case "kms", str(key):
            found |= {"server_side_encryption": "aws:kms", "sse_kms_key_id": key, "sse_bucket_key_enabled": True}
        case _:
            raise Misconfigured("sse must be s3 or kms, and kms_key=ID goes with sse=kms")
    return found


def _gs(options: Mapping[str, str]) -> dict[str, Any]:
    """Google's own rules find the credentials: GOOGLE_APPLICATION_CREDENTIALS, or the machine's service account."""
    endpoint = options.get("endpoint")
    if endpoint is None:
        return {}
    return {"base_url": endpoint.rstrip("/")} | ({"skip_signature": True} if is_loopback(endpoint) else {})


def _az(options: Mapping[str, str]) -> dict[str, Any]:
    """Microsoft's own rules find the credentials: AZURE_STORAGE_…, workload identity, or a managed identity."""
    found: dict[str, Any] = {"account_name": options["account"]} if "account" in options else {}
    if "endpoint" in options:
        found["endpoint"] = options["endpoint"].rstrip("/")
    return found


def _aws_keys(*, is_local: bool) -> Callable[[], Coroutine[Any, Any, dict[str, Any]]]:
    """Return what supplies keys as botocore finds them: environment, profiles, containers, web identity, roles."""
    credentials = Credentials(is_local=is_local)

    async def keys() -> dict[str, Any]:
        found = await credentials.keys()
        return {
            "access_key_id": found.access_key,
            "secret_access_key": found.secret_key,
            "token": found.token,
            "expires_at": datetime.now(UTC) + KEYS_VALID,
        }

    return keys
