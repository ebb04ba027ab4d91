"""Pages of lists: the range that a filter asks for, cursors, and the page that is cut from what statements find.

A list merges streams, each of which is the range of an index. A page looks at a bounded number of rows of each stream;
the last row that a stream looked at is its edge. Above all edges nothing is missing, so a page ends there.
"""

import base64
import heapq
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Generic, TypeVar

import msgspec
from msgspec import Meta

from horae.core.decisions.quotas import Amount
from horae.core.errors import Invalid, Unavailable
from horae.ports.reader import Kept, RunFilter

T = TypeVar("T")

EARLIEST = datetime.min.replace(tzinfo=UTC)
LATEST = datetime.max.replace(tzinfo=UTC)
WHOLE = 2**40  # rows: more than any list has
LAST_NUMBER = 2**63 - 1  # of a row, and of a position in the event log
COMMIT_MARGIN = timedelta(minutes=1)  # by which the times of events may differ from the order of their commits
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

Position = tuple[str | int, ...]  # in a list, as its cursor names it
Ident = Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
Micros = Annotated[
    int, Meta(ge=(EARLIEST - _EPOCH) // _MICROSECOND, le=(LATEST - _EPOCH) // _MICROSECOND)
]  # since 1970
Number = Annotated[int, Meta(ge=0, le=LAST_NUMBER)]  # of a row


def due_range(which: RunFilter) -> tuple[datetime, datetime]:
    """The due times that a filter asks for: from the first on, and before the second."""
    start, end = which.start_at or EARLIEST, which.end_at or LATEST
    if which.due is not None and which.now is not None:
        after_now = which.now + _MICROSECOND
        return (start, min(end, after_now)) if which.due else (max(start, after_now), end)
    return start, end


def share(look: int | None, streams: int, limit: int) -> int:
    """How many rows each of some streams may look at when all together may look at so many; None means any number.

    They are enough to fill the page if all of them fit.
    """
    return WHOLE if look is None else max(look // streams, limit)


@dataclass(frozen=True, slots=True)
class Cut(Generic[T]):
    """The rows of a page, the cursor that continues after it, and the edge if that is why the page ends."""

    rows: Sequence[T]
    cursor: str | None
    edge: Position | None = None


def page(found: Iterable[T], limit: int, position: Callable[[T], Position], edges: Iterable[Position] = ()) -> Cut[T]:
    """The first `limit` by their positions, greatest first, down to the first of the edges of their streams."""
    edge = max(edges, default=None)
    certain = found if edge is None else [row for row in found if position(row) >= edge]
    first = heapq.nlargest(limit + 1, certain, key=position)
    if len(first) > limit:
        return Cut(first[:limit], encode_cursor(*position(first[limit - 1])))
    return Cut(first, None if edge is None else encode_cursor(*edge), edge)


def too_slow(seconds: float) -> Unavailable:
    """The error for a list that took too long."""
    return Unavailable(f"the list took longer than {seconds:g} s; ask for fewer items, a shorter time or one queue")


def encode_cursor(*position: str | int) -> str:
    """A position in a list as an opaque token."""
    return base64.urlsafe_b64encode(msgspec.json.encode(position)).decode().rstrip("=")


def decode_cursor(token: str, *shape: object) -> tuple[Any, ...]:
    """The inverse of `encode_cursor`; anything that we did not make is refused."""
    try:
        position = msgspec.json.decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        return msgspec.convert(position, tuple[shape])  # type: ignore[valid-type]
    except (ValueError, msgspec.MsgspecError) as exc:
        raise Invalid(
            "the cursor is not one that this server gave out; start again without it", pointer="/cursor"
        ) from exc


def amount_of(part: Kept, rows: Iterable[Sequence[Any]]) -> Amount:
    """What the rows of a page amount to: for each queue how many have not ended, and the bytes of all."""
    counts = [(queue, lives, size) for queue, lives, size in rows]
    lives = sum(lives for _, lives, _ in counts)
    return Amount(
        waiting=lives if part is Kept.LIVE else 0,
        recurring=lives if part is Kept.JOBS else 0,
        queues=frozenset(queue for queue, lives, _ in counts if lives),
        stored_bytes=sum(size for *_, size in counts),
    )


def event_position(text: str) -> int:
    """The position in the event log that a client sent; Invalid for what cannot be one."""
    if text.isascii() and text.isdigit() and len(text) <= len(str(LAST_NUMBER)) and int(text) <= LAST_NUMBER:
        return int(text)
    raise Invalid("the position is not one that this server gave out; begin without it")


async def last_position_before(
    before: datetime, last: int, first_after: Callable[[int], Awaitable[datetime | None]]
) -> int:
    """The last position of an event log before a time, by bisection: positions and times have the same order.

    `first_after` returns the time of the first event after a position. Events of other transactions may be committed a
    little later than those after them, so a margin is left.
    """
    low, high = 0, last
    while low < high:
        middle = (low + high) // 2
        at = await first_after(middle)
        if at is not None and at < before - COMMIT_MARGIN:
            low = middle + 1
        else:
            high = middle
    return low


def micros_of(moment: datetime) -> int:
    """A time as a cursor names it: in microseconds since 1970."""
    return (moment - _EPOCH) // _MICROSECOND


def time_of(micros: int) -> datetime:
    """The inverse of `micros_of`."""
    return _EPOCH + micros * _MICROSECOND
