"""Idempotency-Key: a request that its sender repeats is done once and answered the same way again."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from horae.api.auth.guard import Principal
from horae.api.dispatch.context import services_of
from horae.api.http.operation import header_values
from horae.core.errors import Conflict, Invalid
from horae.core.records import Receipt
from horae.jobs.idempotency import Ask, Issue, answer_of, fingerprint

HEADER = "Idempotency-Key"
_HEADER = HEADER.lower().encode()
REPLAYED = "Idempotency-Replayed"
MAX_KEY = 200  # characters

T = TypeVar("T")


class Kept(msgspec.Struct):
    """An answer as it is kept with a receipt."""

    status: int
    headers: dict[str, str]
    body: str


_KEPT = msgspec.json.Decoder(Kept)


async def once(
    request: Request,
    who: Principal,
    data: bytes,
    act: Callable[[Issue[T] | None], Awaitable[T | Receipt]],
    told: Callable[[T], Awaitable[Response]],
) -> Response:
    """Answer what `told` makes of what `act` did, which with a key is written together with its receipt."""
    ask = _ask(request, who, data)
    if ask is None:
        done = await act(None)
        assert not isinstance(done, Receipt)
        return await told(done)
    receipts = services_of(request).jobs.receipts
    if (earlier := await receipts.earlier(ask)) is not None:
        return _again(earlier)
    answers: list[Response] = []

    async def issue(outcome: T) -> Receipt:
        answers.append(await told(outcome))
        return receipts.of(ask, _kept(answers[-1]))

    try:
        done = await act(issue)
    except Conflict:
        if (earlier := await receipts.earlier(ask)) is None:
            raise
        return _again(earlier)  # what stood in the way is what the same request did a moment ago
    return _again(answer_of(done, ask)) if isinstance(done, Receipt) else answers[-1]


async def once_in_steps(
    request: Request, who: Principal, data: bytes, act: Callable[[Ask | None], Awaitable[Response]]
) -> Response:
    """As `once`, for an act of many steps, each of which is harmless to repeat; its answer is kept at the end."""
    ask = _ask(request, who, data)
    if ask is None:
        return await act(None)
    receipts = services_of(request).jobs.receipts
    if (earlier := await receipts.earlier(ask)) is not None:
        return _again(earlier)
    with receipts.in_flight(ask):
        response = await act(ask)
        mine = _kept(response)
        kept = await receipts.keep(ask, mine)
    return response if kept == mine else _again(kept)


def _ask(request: Request, who: Principal, data: bytes) -> Ask | None:
    keys = header_values(request, _HEADER)
    if not keys:
        return None
    key = keys[0].strip()
    if len(keys) > 1 or not 0 < len(key) <= MAX_KEY or not (key.isascii() and key.isprintable()):
        raise Invalid(f"{HEADER} is given once and has from 1 to {MAX_KEY} printable ASCII characters")
    return Ask(
        owner=who.owner,
        key=key,
        fingerprint=fingerprint(request.method.encode(), request.url.path.encode(), data),
    )


def _kept(response: Response) -> str:
    headers = {name: response.headers[name] for name in ("ETag", "Location") if name in response.headers}
    kept = Kept(status=response.status_code, headers=headers, body=bytes(response.body).decode())
    return msgspec.json.encode(kept).decode()


def _again(answer: str) -> Response:
    """The earlier answer, to the byte."""
    kept = _KEPT.decode(answer)
    return Response(
        kept.body.encode(),
        status_code=kept.status,
        media_type="application/json",
        headers={**kept.headers, REPLAYED: "true"},
    )
