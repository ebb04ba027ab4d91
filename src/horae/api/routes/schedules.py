"""The route that previews schedules."""

from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from horae.api.dispatch.context import services_of
from horae.api.dispatch.responses import json_response
from horae.api.dispatch.router import resource
from horae.api.http.body import decode, read_body
from horae.api.http.operation import Operation, Scope
from horae.core.schedule.describe import describe
from horae.core.schedule.evaluate import refuse_never_firing
from horae.core.schedule.parse import parse_schedule
from horae.core.schedule.preview import preview, warnings
from horae.core.schedule.timestamps import parse_timestamp

FireCount = Annotated[int, Meta(ge=1, le=1000)]


class PreviewBody(Struct, forbid_unknown_fields=True):
    """A schedule to preview."""

    schedule: str | dict[str, Any]
    count: FireCount = 10
    from_: str | None = msgspec.field(default=None, name="from")


class FireView(Struct, omit_defaults=True):
    """A time at which a schedule fires."""

    at: datetime
    note: str | None = None


class PreviewView(Struct):
    """A schedule in words, and the times at which it fires."""

    description: str
    fires: list[FireView]
    warnings: list[str]


@Operation(scope=Scope.READ, tag="schedules", body=PreviewBody, answers={200: PreviewView})
async def show_preview(request: Request) -> Response:
    """Preview a schedule: its description, its next times, and warnings."""
    body = decode(await read_body(request), PreviewBody)
    now = services_of(request).clock.now()
    schedule = parse_schedule(body.schedule, now=now)
    refuse_never_firing(schedule, now)
    after = now if body.from_ is None else parse_timestamp(body.from_, "/from")
    fires = preview(schedule, after, body.count)
    return json_response(
        PreviewView(
            description=describe(schedule),
            fires=[FireView(at=fire.at, note=fire.note) for fire in fires],
            warnings=warnings(schedule, after),
        )
    )


ROUTES = [resource("/v1/schedules/preview", POST=show_preview)]
