"""Who asks, and whether they may: the one place where a request becomes a principal."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from starlette.requests import Request

from horae.api.auth.jwks import Keys, SecretKey, keys_at
from horae.api.auth.safety import refuse_unsafe_auth
from horae.api.auth.tokens import MAX_REMEMBERED, Claims, InvalidToken, Tokens
from horae.api.http.operation import Scope, header_values
from horae.api.http.problems import Forbidden, RateLimited, Unauthorized
from horae.api.http.rate_limit import RateLimit
from horae.config import Settings
from horae.core.model import LOCAL

SHELL_TASK = "shell.run"
EVERY_SCOPE = frozenset(Scope)
_IMPLIED = {Scope.ADMIN: frozenset({Scope.READ, Scope.WRITE, Scope.ADMIN})}  # the shell must be said


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Somebody, and what they may reach."""

    owner: str
    subject: str  # who acts, for `created_by`
    scopes: frozenset[Scope] = frozenset()
    expires_at: float | None = None  # seconds since 1970; None: never

    @property
    def admin(self) -> bool:
        return Scope.ADMIN in self.scopes

    @property
    def reach(self) -> str | None:
        """The owner whose things may be looked up; None means anybody's."""
        return None if self.admin else self.owner


EVERYBODY = Principal(owner=LOCAL, subject=LOCAL, scopes=EVERY_SCOPE)


class Guard:
    """Lets requests in: with a token, the scope, and not too often."""

    def __init__(
        self, tokens: Tokens | None = None, limit: RateLimit | None = None, *, everybody: Principal = EVERYBODY
    ) -> None:
        """Without `tokens` (loopback only, or behind a host that let them in) all are `everybody`."""
        self._tokens = tokens
        self._limit = limit
        self._everybody = everybody

    async def admit(self, authorization: list[str], scope: Scope) -> Principal:
        """Who sends these `Authorization` headers; raises Unauthorized, Forbidden or RateLimited."""
        who = self._everybody if self._tokens is None else await _identified(self._tokens, authorization)
        if scope not in who.scopes:
            raise Forbidden(f"this needs a token with the scope {scope}", scope=scope)
        if self._limit is not None and (seconds := self._limit.wait(who.owner)):
            raise RateLimited(seconds)
        return who


OPEN = Guard()


def guard_of(settings: Settings, now: Callable[[], float]) -> Guard:
    """The guard that the settings ask for; `now` answers seconds since 1970. Raises Misconfigured."""
    refuse_unsafe_auth(settings)
    limit = RateLimit(settings.rate_limit) if settings.rate_limit else None
    if settings.auth == "off":
        return Guard(None, limit)
    keys: Keys = SecretKey(settings.jwt_secret) if settings.jwt_secret else keys_at(settings.jwks)
    audience = settings.jwt_audience or None
    return Guard(Tokens(keys, now=now, audience=audience, owner_claim=settings.jwt_owner_claim), limit)


async def authorize(request: Request, scope: Scope | None) -> None:
    """Refuse a request whose sender may not do this; None is open to everybody."""
    if scope is not None:
        guard: Guard = request.app.guard
        request.scope["horae.principal"] = await guard.admit(header_values(request, b"authorization"), scope)


def principal(request: Request) -> Principal:
    """Who sent a request that was authorized."""
    who: Principal = request.scope["horae.principal"]
    return who


def refuse_shell(who: Principal, task: str) -> None:
    """Whoever makes programs run, by whatever way, needs the scope for it."""
    if task == SHELL_TASK and Scope.SHELL not in who.scopes:
        raise Forbidden(f"{SHELL_TASK} needs a token with the scope {Scope.SHELL}", scope=Scope.SHELL)


async def _identified(tokens: Tokens, authorization: list[str]) -> Principal:
    scheme, _, token = authorization[0].strip().partition(" ") if len(authorization) == 1 else ("", "", "")
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthorized("send a token with the request: Authorization: Bearer …")
    try:
        claims = await tokens.verify(token.strip())
    except InvalidToken as exc:
        raise Unauthorized(str(exc), error="invalid_token") from exc
    return _principal(claims)


@lru_cache(MAX_REMEMBERED)  # by the claims themselves, which are remembered as well
def _principal(claims: Claims) -> Principal:
    given = {Scope(name) for name in claims.scopes if name in EVERY_SCOPE}
    return Principal(
        owner=claims.owner,
        subject=claims.subject,
        scopes=frozenset().union(*(_IMPLIED.get(scope, {scope}) for scope in given)),
        expires_at=claims.expires_at,
    )
