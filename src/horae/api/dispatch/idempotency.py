"""Idempotency-Key: a repeated request is executed once and gets the same response again."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from horae.api.auth.guard import Principal
from horae.api.dispatch.context import services_of
from horae.api.http.operation import header_values
from horae.core.errors import Conflict, Invalid
from horae.core.records import IdempotencyRecord
from horae.jobs.idempotency import Ask, Issue, answer_of, asked

HEADER = "Idempotency-Key"
_HEADER = HEADER.lower().encode()
REPLAYED = "Idempotency-Replayed"
MAX_KEY = 200  # characters

T = TypeVar("T")


class StoredResponse(msgspec.Struct):
    """A response as it is stored with an idempotency record."""

    status: int
    headers: dict[str, str]
    body: str


_STORED = msgspec.json.Decoder(StoredResponse)


async def run_once(
    request: Request,
    who: Principal,
    data: bytes,
    act: Callable[[Issue[T] | None], Awaitable[T | IdempotencyRecord]],
    respond: Callable[[T], Awaitable[Response]],
) -> Response:
    """Execute `act` once per Idempotency-Key and return the response that `respond` makes of its outcome.

    With a key, `act` stores its outcome and the idempotency record in one write.
    """
    ask = _ask(request, who, data)
    if ask is None:
        done = await act(None)
        assert not isinstance(done, IdempotencyRecord)
        return await respond(done)
    idempotency = services_of(request).jobs.idempotency
    if (earlier := await idempotency.earlier(ask)) is not None:
        return _replayed(earlier)
    responses: list[Response] = []

    async def issue(outcome: T) -> IdempotencyRecord:
        responses.append(await respond(outcome))
        return idempotency.of(ask, _stored(responses[-1]))

    try:
        done = await act(issue)
    except Conflict:
        if (earlier := await idempotency.earlier(ask)) is None:
            raise
        return _replayed(earlier)  # it conflicted with an earlier copy of the same request
    return _replayed(answer_of(done, ask)) if isinstance(done, IdempotencyRecord) else responses[-1]


async def run_once_in_steps(
    request: Request, who: Principal, data: bytes, act: Callable[[Ask | None], Awaitable[Response]]
) -> Response:
    """Like `run_once`, for an act of many steps that are safe to repeat; its response is stored at the end."""
    ask = _ask(request, who, data)
    if ask is None:
        return await act(None)
    idempotency = services_of(request).jobs.idempotency
    if (earlier := await idempotency.earlier(ask)) is not None:
        return _replayed(earlier)
    with idempotency.in_flight(ask):
        response = await act(ask)
        mine = _stored(response)
        kept = await idempotency.keep(ask, mine)
    return response if kept == mine else _replayed(kept)


def _ask(request: Request, who: Principal, data: bytes) -> Ask | None:
    keys = header_values(request, _HEADER)
    if not keys:
        return None
    key = keys[0].strip()
    if len(keys) > 1 or not 0 < len(key) <= MAX_KEY or not (key.isascii() and key.isprintable()):
        raise Invalid(f"{HEADER} must be sent once, with 1 to {MAX_KEY} printable ASCII characters")
    return asked(who.owner, key, request.method.encode(), request.url.path.encode(), data)


def _stored(response: Response) -> str:
    headers = {name: response.headers[name] for name in ("ETag", "Location") if name in response.headers}
    stored = StoredResponse(status=response.status_code, headers=headers, body=bytes(response.body).decode())
    return msgspec.json.encode(stored).decode()


def _replayed(answer: str) -> Response:
    """Return the stored response, byte for byte, marked as replayed."""
    stored = _STORED.decode(answer)
    return Response(
        stored.body.encode(),
        status_code=stored.status,
        media_type="application/json",
        headers={**stored.headers, REPLAYED: "true"},
    )
