"""Keys and endpoints as botocore finds them: environment, profiles, containers, web identity, IAM roles.

botocore waits for files and networks while it looks, so it always works in a thread.
"""

import asyncio
import time
from typing import Any
from urllib.parse import urlsplit

from horae.aws_api.address import is_loopback
from horae.aws_api.errors import AccessDenied
from horae.aws_api.signing import Keys
from horae.core.errors import Misconfigured, Unavailable
from horae.core.values import Value

DUMMY = Keys(access_key="local", secret_key="local")  # emulators on this machine ask for keys, and take any
LOOK_EVERY = 10.0  # seconds between looks at whether temporary keys need to be renewed
# What only a machine of Amazon's has, and others wait seconds for.
REMOTE_PROVIDERS = ("container-role", "iam-role")


class Endpoint(Value, frozen=True, kw_only=True):
    """Where a service is."""

    url: str
    host: str  # with the port, unless it is the usual one
    is_local: bool


class Credentials:
    """The keys of this process, renewed before they expire; each event loop has its own."""

    def __init__(self, *, is_local: bool = False) -> None:
        self._is_local = is_local  # an emulator's: keys that do not exist are made up
        self._source: Any = None  # botocore's credentials
        self._keys: Keys | None = None
        self._look_at = 0.0
        self._renewal: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Find the keys; raises `AccessDenied` when there are none."""
        self._source = await asyncio.to_thread(_find_credentials, local=self._is_local)
        if self._source is None and not self._is_local:
            raise AccessDenied("found no AWS credentials in the environment, in a profile, or from a role")
        await self.renew()

    async def close(self) -> None:
        """Wait for a renewal that is under way."""
        if self._renewal is not None:
            await asyncio.gather(self._renewal, return_exceptions=True)

    async def keys(self) -> Keys:
        """Return keys that are valid now."""
        if self._keys is None:
            await self.open()
        elif self._source is not None and time.monotonic() >= self._look_at:
            await self._look()
        assert self._keys is not None
        return self._keys

    async def renew(self) -> None:
        """Read the keys again: what a service refused as expired may have been replaced."""
        if self._source is None:
            self._keys = DUMMY
            return
        try:
            frozen = await asyncio.to_thread(self._source.get_frozen_credentials)
        except Exception as exc:  # botocore raises dozens of classes, of its own and of others
            raise Unavailable(f"AWS credentials could not be renewed: {exc}") from exc
        self._keys = Keys(access_key=frozen.access_key, secret_key=frozen.secret_key, token=frozen.token)

    async def _look(self) -> None:
        """Renew keys in the background when they expire in a quarter of an hour, and wait for it when they expired."""
        self._look_at = time.monotonic() + LOOK_EVERY
        needed = getattr(self._source, "refresh_needed", None)  # only temporary keys have it
        if needed is None or not needed():
            return
        if needed(refresh_in=60):
            await self.renew()
        elif self._renewal is None or self._renewal.done():
            self._renewal = asyncio.create_task(self._renew_quietly(), name="aws-credentials")

    async def _renew_quietly(self) -> None:
        try:
            await self.renew()
        except Unavailable:
            return  # the present keys are still valid; the next look tries again


def local_endpoint(url: str) -> Endpoint:
    """Return an endpoint that an address names."""
    parts = urlsplit(url)
    usual = {"http": 80, "https": 443}[parts.scheme]
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else str(parts.hostname)
    named = host if parts.port in (None, usual) else f"{host}:{parts.port}"
    return Endpoint(url=f"{parts.scheme}://{parts.netloc}/", host=named, is_local=is_loopback(url))


async def find_endpoint(service: str, region: str, given: str | None) -> Endpoint:
    """Return the endpoint of a service in a region, or the one that an address names."""
    if given is not None:
        return local_endpoint(given)
    return local_endpoint(f"https://{await asyncio.to_thread(_regional_host, service, region)}")


def _find_credentials(*, local: bool) -> Any:
    from botocore.exceptions import BotoCoreError

    session = _session()
    if local:
        resolver = session.get_component("credential_provider")
        for provider in REMOTE_PROVIDERS:
            resolver.remove(provider)
    try:
        return session.get_credentials()
    except BotoCoreError as exc:
        raise AccessDenied(f"AWS credentials: {exc}") from exc


def _regional_host(service: str, region: str) -> str:
    session = _session()
    from botocore.regions import EndpointResolver

    resolver = EndpointResolver(session.get_component("data_loader").load_data("endpoints"))
    fips = session.get_config_variable("use_fips_endpoint") in (True, "true")
    found = resolver.construct_endpoint(service, region, use_fips_endpoint=fips)
    if found is None:
        raise Misconfigured(f"Amazon has no region {region!r} with the service {service}")
    return str(found["hostname"])


def ca_bundle() -> str | None:
    """Return the file of certificates that botocore would trust instead of the machine's, if one is set."""
    found = _session().get_config_variable("ca_bundle")
    return str(found) if found else None


def _session() -> Any:
    try:
        from botocore.session import get_session
    except ImportError as exc:
        raise Misconfigured("Amazon's services need their drivers: install Horae with the extra `aws`") from exc
    return get_session()
