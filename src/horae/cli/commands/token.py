"""`horae token`: create tokens for a server that checks them with a secret."""

import time
from collections.abc import Sequence
from typing import Annotated

from cyclopts import App, Parameter

from horae.cli.arguments import Several, pairs
from horae.cli.output import print_text
from horae.core.errors import Malformed, Misconfigured
from horae.core.owners import refuse_reserved_owner

SCOPES = ("jobs:read", "jobs:write", "shell", "admin")
DEFAULT_SCOPES = ("jobs:read", "jobs:write")
MAX_SUBJECT = 200  # characters

app = App(name="token", help="Create tokens for a server that checks them with a secret.")


@app.command
def create(
    *,
    sub: Annotated[str, Parameter(help="The owner of everything that is created with this token.")],
    scope: Annotated[
        list[str] | None,
        Several,
        Parameter(help="jobs:read, jobs:write, shell or admin; several as a,b or repeated (default: read and write)."),
    ] = None,
    ttl: Annotated[str, Parameter(help="How long it is valid, such as 90s, 12h or 30d.")] = "1h",
    audience: Annotated[str | None, Parameter(help="The audience it is for (HORAE_JWT_AUDIENCE).")] = None,
    tasks: Annotated[
        list[str] | None,
        Several,
        Parameter(help="Tasks that it may run, such as mail.*; several as a,b or repeated (default: any)."),
    ] = None,
    max_priority: Annotated[
        int | None,
        Parameter(
            help="The highest priority of its jobs, -100 to 100 (default: 0; admin: 100).", allow_leading_hyphen=True
        ),
    ] = None,
    limit: Annotated[
        list[str] | None,
        Several,
        Parameter(help="A limit of what its owner keeps, such as waiting=1000, instead of the server's."),
    ] = None,
) -> None:
    """Print a token that is signed with HORAE_JWT_SECRET, and nothing else."""
    import jwt  # late: no other command needs it

    from horae.config import load_settings, refuse_short_secret

    settings = load_settings({"jwt_audience": audience})
    if not settings.jwt_secret:
        raise Misconfigured(_explain_missing_secret(settings.jwks))
    refuse_short_secret(settings.jwt_secret)
    now = int(time.time())
    claims = {
        "sub": _subject(sub),
        settings.jwt_owner_claim: sub,
        "scope": " ".join(_scopes(scope)),
        "iat": now,
        "exp": now + _seconds(ttl),
        **({"aud": settings.jwt_audience} if settings.jwt_audience else {}),
        **({} if tasks is None else {"tasks": _listed(tasks)}),
        **({} if max_priority is None else {"max_priority": _priority(max_priority)}),
        **({} if limit is None else {"limits": _limits(limit)}),
    }
    print_text(jwt.encode(claims, settings.jwt_secret, algorithm="HS256"))


def _explain_missing_secret(jwks: str) -> str:
    if jwks:
        return (
            "only HORAE_JWKS is set, and its public keys can check tokens, but not sign them;"
            " get a token from the issuer of those keys"
        )
    return "set HORAE_JWT_SECRET to the secret of the server; it signs the token"


def _subject(sub: str) -> str:
    if not sub.strip() or len(sub) > MAX_SUBJECT or "\0" in sub:
        raise Malformed(f"--sub must be a name of 1 to {MAX_SUBJECT} characters")
    refuse_reserved_owner(sub)
    return sub


def _scopes(given: Sequence[str] | None) -> Sequence[str]:
    if given is None:
        return DEFAULT_SCOPES
    names = _listed(given)
    unknown = [name for name in names if name not in SCOPES]
    if unknown or not names:
        raise Malformed(f"--scope {' '.join(unknown)!r}: the scopes are {', '.join(SCOPES)}")
    return list(dict.fromkeys(names))


def _listed(given: Sequence[str]) -> list[str]:
    return [name for part in given for name in part.replace(",", " ").split()]


def _priority(given: int) -> int:
    from horae.core.limits import MAX_PRIORITY, MIN_PRIORITY

    if not MIN_PRIORITY <= given <= MAX_PRIORITY:
        raise Malformed(f"--max-priority {given}: priorities are from {MIN_PRIORITY} to {MAX_PRIORITY}")
    return given


def _limits(given: Sequence[str]) -> dict[str, int]:
    from horae.core.decisions.quotas import Limits

    limits, known = pairs(given, "--limit"), Limits.__struct_fields__
    for name, value in limits.items():
        if name not in known or isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise Malformed(f"--limit {name}={value}: the limits are whole numbers, 0 for none: {', '.join(known)}")
    return limits


def _seconds(ttl: str) -> int:
    from horae.config import parse_duration

    try:
        seconds = int(parse_duration(ttl).total_seconds())
    except (ValueError, OverflowError) as exc:
        raise Malformed(f"--ttl {ttl!r}: {exc}") from exc
    if seconds < 1:
        raise Malformed(f"--ttl {ttl!r}: must be at least a second")
    return seconds
