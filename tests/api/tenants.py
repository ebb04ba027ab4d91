"""Tenants of the API in process: requests with the token of an owner."""

from dataclasses import dataclass
from typing import Any

import httpx2

from horae.api.app import create_app
from horae.api.auth.guard import Guard
from horae.api.auth.jwks import SecretKey
from horae.api.auth.tokens import TokenVerifier
from horae.api.dispatch.context import Services
from tests.api.harness import START
from tests.api.tokens import AUDIENCE, SECRET, by_secret, claims


@dataclass(frozen=True, slots=True)
class Tenant:
    """Sends requests with one token."""

    client: httpx2.AsyncClient
    headers: dict[str, str]

    async def ask(self, method: str, path: str, body: Any = None, **keywords: Any) -> httpx2.Response:
        given = {} if body is None else {"json": body}
        return await self.client.request(method, path, headers=self.headers, **given, **keywords)

    async def done(self, method: str, path: str, body: Any = None) -> Any:
        """Return the answer of a request that must succeed."""
        answer = await self.ask(method, path, body)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json()

    async def refused(self, status: int, method: str, path: str, body: Any = None) -> Any:
        """Return the problem of a request that must be refused."""
        answer = await self.ask(method, path, body)
        assert answer.status_code == status, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json()

    async def create(self, task: str = "demo.echo", **fields: Any) -> Any:
        return await self.done("POST", "/v1/jobs", {"task": task, **fields})


def tenant(client: httpx2.AsyncClient, sub: str, scope: str = "jobs:read jobs:write", **claimed: Any) -> Tenant:
    """Return a tenant whose token has these claims."""
    token = by_secret(claims(START.timestamp(), sub, scope, **claimed))
    return Tenant(client, {"Authorization": f"Bearer {token}"})


def tenants_client(services: Services, **options: Any) -> httpx2.AsyncClient:
    """Return a client of an API that checks tokens; the options are those of the guard."""
    verifier = TokenVerifier(SecretKey(SECRET), now=START.timestamp, audience=AUDIENCE)
    app = create_app(services, guard=Guard(verifier, **options))
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost")
