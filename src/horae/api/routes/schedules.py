"""The route that tries out schedules."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from horae.api.dispatch.context import answer, resource, services_of
from horae.api.http.body import decode, read_body
from horae.api.http.operation import Scope, operation
from horae.api.schemas.requests import PreviewBody
from horae.api.schemas.responses import FireView, PreviewView
from horae.core.schedule.describe import describe
from horae.core.schedule.evaluate import parse_schedule, parse_timestamp, preview, refuse_never_firing, warnings

_PREVIEW = msgspec.json.Decoder(PreviewBody)


@operation(scope=Scope.READ, tag="schedules", body=PreviewBody, answers={200: PreviewView})
async def show_preview(request: Request) -> Response:
    """Tell what a schedule means: in words, its next times, and what may surprise."""
    body = decode(await read_body(request), PreviewBody, _PREVIEW)
    now = services_of(request).clock.now()
    schedule = parse_schedule(body.schedule, now=now)
    refuse_never_firing(schedule, now)
    after = now if body.from_ is None else parse_timestamp(body.from_, "/from")
    fires = preview(schedule, after, body.count)
    return answer(
        PreviewView(
            description=describe(schedule),
            fires=[FireView(at=fire.at, note=fire.note) for fire in fires],
            warnings=warnings(schedule, after),
        )
    )


ROUTES = [resource("/v1/schedules/preview", POST=show_preview)]
