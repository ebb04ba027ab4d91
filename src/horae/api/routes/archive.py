"""Routes of the archive."""

from datetime import date
from typing import Annotated

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from horae.api.auth.guard import principal
from horae.api.dispatch.context import Services, services_of
from horae.api.dispatch.responses import PageView, json_response, page_response
from horae.api.dispatch.router import resource
from horae.api.http.body import decode, read_body
from horae.api.http.operation import Operation, Param, Scope
from horae.api.http.problems import Problem
from horae.api.http.query import Count, Cursor, Query
from horae.api.schemas.ids import read_run_ids
from horae.archive.manifest import Manifest
from horae.archive.restore import MOST, Restorer
from horae.core.errors import Conflict, Invalid

DAYS, MAX_DAYS = 31, 400  # on a page
PAGING = (
    Param("limit", Count, f"the maximum number of days on a page; default {DAYS}, at most {MAX_DAYS}"),
    Param("cursor", Cursor, "`next_cursor` of the previous page"),
)


class ArchivedDayView(Struct):
    """A day of ended runs in the archive."""

    day: date
    runs: int
    bytes: int
    parts: int


class RestoreBody(Struct, forbid_unknown_fields=True):
    """What to restore: runs by `ids`, or those that ended on a `day` (UTC)."""

    ids: Annotated[list[str], Meta(max_length=MOST)] | None = None
    day: date | None = None
    cursor: str | None = None


class RestoredView(Struct):
    """What was restored; what was in the store already counts. A `cursor` continues a day in the next request."""

    restored: int
    missing: list[str]
    cursor: str | None


@Operation(
    scope=Scope.ADMIN,
    tag="archive",
    params=PAGING,
    answers={200: PageView[ArchivedDayView], 409: Problem},
    listing=True,
)
async def list_days(request: Request) -> Response:
    """List the days that are archived, the latest first, with the number of their runs."""
    archive = _services(request).archive
    query = Query(request)
    limit = query.number("limit", DAYS, MAX_DAYS)
    before = _day(query.cursor)
    days = [] if archive is None else [day for day in await archive.days() if day < before][::-1]
    manifests = [] if archive is None else [await archive.manifest(day) for day in days[:limit]]
    views = [_view(manifest) for manifest in manifests if manifest is not None]
    return page_response(views, days[limit - 1].isoformat() if len(days) > limit else None)


@Operation(scope=Scope.WRITE, tag="archive", body=RestoreBody, answers={200: RestoredView, 404: Problem, 409: Problem})
async def restore(request: Request) -> Response:
    """Restore archived runs, for as long as history is kept."""
    restorer, who = _restorer(request), principal(request)
    body = decode(await read_body(request), RestoreBody)
    if (body.ids is None) == (body.day is None):
        raise Invalid("give either ids or a day", pointer="/ids")
    if body.day is not None:
        done = await restorer.day(body.day, owner=who.reach, cursor=body.cursor)
    else:
        done = await restorer.runs(read_run_ids(body.ids or ()), owner=who.reach)
    missing = [f"run_{run_id}" for run_id in done.missing]
    return json_response(RestoredView(restored=done.runs, missing=missing, cursor=done.cursor))


ROUTES = [resource("/v1/archive", GET=list_days), resource("/v1/archive/restore", POST=restore)]


def _services(request: Request) -> Services:
    services = services_of(request)
    if services.archive is None:
        raise Conflict("ended runs are not archived here: set HORAE_ARCHIVE on every node")
    return services


def _restorer(request: Request) -> Restorer:
    restorer = _services(request).restorer
    assert restorer is not None, "there is an archive"
    return restorer


def _day(cursor: str | None) -> date:
    try:
        return date.max if cursor is None else date.fromisoformat(cursor)
    except ValueError as exc:
        raise Invalid(
            "the cursor is not one that this server gave out; begin again without it", pointer="/cursor"
        ) from exc


def _view(manifest: Manifest) -> ArchivedDayView:
    return ArchivedDayView(manifest.day, manifest.runs, manifest.bytes, len(manifest.parts))
