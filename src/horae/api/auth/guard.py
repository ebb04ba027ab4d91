"""Authenticates and authorizes requests: the one place where a request gets its principal."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from starlette.requests import Request

from horae.api.auth.grants import Grants
from horae.api.auth.jwks import KeySource, SecretKey, jwks_at
from horae.api.auth.safety import refuse_unsafe_auth
from horae.api.auth.tokens import MAX_CACHED, InvalidToken, TokenClaims, TokenVerifier
from horae.api.http.operation import Scope, header_values
from horae.api.http.problems import Forbidden, RateLimited, Unauthorized
from horae.api.http.rate_limit import RateLimit
from horae.config import Settings
from horae.core.decisions.quotas import UNLIMITED, Limits
from horae.core.limits import MAX_PRIORITY
from horae.core.model import LOCAL
from horae.core.values import replace

EVERY_SCOPE = frozenset(Scope)
TENANT_PRIORITY = 0  # the highest of a token that is no administrator's and does not say another
_IMPLIED = {Scope.ADMIN: frozenset({Scope.READ, Scope.WRITE, Scope.ADMIN})}  # not the shell


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who sent a request, and what they may do."""

    owner: str
    subject: str  # who acts, for `created_by`
    scopes: frozenset[Scope] = frozenset()
    expires_at: float | None = None  # Unix time in seconds; None: never
    tasks: tuple[str, ...] | None = None  # names or patterns of tasks that may be run; None: any
    max_priority: int = MAX_PRIORITY  # of jobs, unless their task declares a higher one
    limits: Limits | None = None  # of what the owner may keep; None: any amount

    @property
    def admin(self) -> bool:
        return Scope.ADMIN in self.scopes

    @property
    def reach(self) -> str | None:
        """The owner whose jobs and runs the principal may access; None means every owner."""
        return None if self.admin else self.owner


EVERYBODY = Principal(owner=LOCAL, subject=LOCAL, scopes=EVERY_SCOPE)


class Guard:
    """Admits requests that have a valid token and the needed scope and are within the rate limit."""

    def __init__(
        self,
        tokens: TokenVerifier | None = None,
        limit: RateLimit | None = None,
        *,
        everybody: Principal = EVERYBODY,
        limits: Limits | None = None,
    ) -> None:
        """Without `tokens` (loopback only, or in an application that authenticates) every request is `everybody`.

        `limits` are the quotas of owners whose tokens are no administrators' and say no others; None: there are none.
        """
        self._tokens = tokens
        self._limit = limit
        self._everybody = everybody
        self.limits = limits

    async def admit(self, authorization: list[str], scope: Scope) -> Principal:
        """Return the principal of these `Authorization` headers; raises Unauthorized, Forbidden or RateLimited."""
        who = self._everybody
        if self._tokens is not None:
            who = _principal(await _verified(self._tokens, authorization), self.limits)
        if scope not in who.scopes:
            raise Forbidden(f"the token needs the scope {scope}", scope=scope)
        if self._limit is not None and (seconds := self._limit.wait(who.owner)):
            raise RateLimited(seconds)
        return who


OPEN = Guard()


def guard_of(settings: Settings, now: Callable[[], float]) -> Guard:
    """Return the guard for some settings; `now` returns Unix time. Raises Misconfigured."""
    refuse_unsafe_auth(settings)
    limit = RateLimit(settings.rate_limit) if settings.rate_limit else None
    if settings.auth == "off":
        return Guard(None, limit)
    keys: KeySource = SecretKey(settings.jwt_secret) if settings.jwt_secret else jwks_at(settings.jwks)
    audience = settings.jwt_audience or None
    tokens = TokenVerifier(keys, now=now, audience=audience, owner_claim=settings.jwt_owner_claim)
    return Guard(tokens, limit, limits=limits_of(settings))


def limits_of(settings: Settings) -> Limits:
    """Return the quotas that the settings name."""
    return Limits(
        waiting=settings.max_waiting,
        recurring=settings.max_recurring,
        queues=settings.max_queues,
        stored_bytes=settings.max_stored_bytes,
    )


async def authorize(request: Request, scope: Scope | None) -> None:
    """Raise unless the sender of a request has a scope; None needs no token."""
    if scope is not None:
        guard: Guard = request.app.guard
        request.scope["horae.principal"] = await guard.admit(header_values(request, b"authorization"), scope)


def principal(request: Request) -> Principal:
    """Return the principal of an authorized request."""
    who: Principal = request.scope["horae.principal"]
    return who


async def _verified(tokens: TokenVerifier, authorization: list[str]) -> TokenClaims:
    scheme, _, token = authorization[0].strip().partition(" ") if len(authorization) == 1 else ("", "", "")
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthorized("send a token in the header Authorization: Bearer …")
    try:
        return await tokens.verify(token.strip())
    except InvalidToken as exc:
        raise Unauthorized(str(exc), error="invalid_token") from exc


@lru_cache(MAX_CACHED)  # by the identity of the claims, which the verifier caches
def _principal(claims: TokenClaims, limits: Limits | None) -> Principal:
    given = {Scope(name) for name in claims.scopes if name in EVERY_SCOPE}
    grants = claims.grants
    usual_priority = MAX_PRIORITY if Scope.ADMIN in given else TENANT_PRIORITY
    return Principal(
        owner=claims.owner,
        subject=claims.subject,
        scopes=frozenset().union(*(_IMPLIED.get(scope, {scope}) for scope in given)),
        expires_at=claims.expires_at,
        tasks=grants.tasks,
        max_priority=usual_priority if grants.max_priority is None else grants.max_priority,
        limits=_limits(grants, None if Scope.ADMIN in given else limits),
    )


def _limits(grants: Grants, usual: Limits | None) -> Limits | None:
    """Return the limits that a token says, and for the rest the usual ones."""
    return replace(usual or UNLIMITED, **grants.limits) if grants.limits else usual
