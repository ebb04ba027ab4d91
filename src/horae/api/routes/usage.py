"""The route that shows how much an owner keeps, and its limits."""

from datetime import datetime

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from horae.api.auth.guard import Guard, Principal, principal
from horae.api.dispatch.context import services_of
from horae.api.dispatch.responses import json_response
from horae.api.dispatch.router import resource
from horae.api.http.operation import Operation, Param, Scope
from horae.api.http.query import Query, Text
from horae.api.quotas.account import Account
from horae.api.quotas.meter import RECENT
from horae.api.schemas.filters import queried_owner
from horae.core.decisions.quotas import UNLIMITED, Limits
from horae.core.errors import Invalid

OWNER = Param("owner", Text, "whose; another owner than one's own needs the scope admin")


class ResourceView(Struct):
    """How much of something an owner keeps, and how much it may."""

    used: int
    limit: int | None  # null: any amount


class UsageView(Struct):
    """What an owner keeps: counted by this node a short while ago, plus what it accepted since."""

    owner: str
    waiting: ResourceView  # runs that have not ended: one-shot jobs, and what others have planned
    recurring: ResourceView  # jobs that have not ended
    queues: ResourceView  # that these runs and jobs are in
    stored_bytes: ResourceView  # of parameters, labels, secrets and results, ended runs included
    counted_at: datetime | None  # null: the first count is in progress, and what it found so far is not shown


@Operation(scope=Scope.READ, tag="usage", params=(OWNER,), answers={200: UsageView})
async def show(request: Request) -> Response:
    """Show how much an owner keeps, and its limits."""
    who, guard = principal(request), request.app.guard
    owner = queried_owner(Query(request), who)
    if owner is None:
        raise Invalid("usage is of one owner; name it", pointer="/owner")
    account = await services_of(request).usage.measured(owner, RECENT)
    return json_response(_view(account, _limits(guard, who, owner)))


ROUTES = [resource("/v1/usage", GET=show)]


def _limits(guard: Guard, who: Principal, owner: str) -> Limits:
    """Return one's own limits, or those that tokens of another owner have unless they say others."""
    own = who.limits if owner == who.owner else None
    return own or guard.limits or UNLIMITED


def _view(account: Account, limits: Limits) -> UsageView:
    counts = (account.jobs.counted_at, account.bytes.counted_at)
    return UsageView(
        owner=account.owner,
        waiting=_resource(account.waiting, limits.waiting),
        recurring=_resource(account.recurring, limits.recurring),
        queues=_resource(len(account.queues), limits.queues),
        stored_bytes=_resource(account.stored_bytes, limits.stored_bytes),
        counted_at=None if None in counts else min(at for at in counts if at is not None),
    )


def _resource(used: int, limit: int) -> ResourceView:
    return ResourceView(used=max(used, 0), limit=limit or None)
