"""Acts on many jobs, runs or dead letters, by ids or a filter, in as many requests as they need."""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from horae.client.call import Steps, given, keyed
from horae.client.models import BulkResult

Ids = Sequence[str] | AbstractSet[str]  # not Collection[str], which a filter would match as well
BulkProgress = Callable[[BulkResult], None]


def selection(which: Ids | Mapping[str, object]) -> dict[str, Any]:
    """Return the part of a body that selects: by one id, several ids, or a filter."""
    if isinstance(which, str):
        return {"ids": [which]}
    return {"filter": which} if isinstance(which, Mapping) else {"ids": [*which]}


def bulk_requests(
    path: str, body: Mapping[str, Any], *, repeat: bool, progress: BulkProgress | None
) -> Steps[BulkResult]:
    """Send a request, and with `repeat` further ones until all that was selected has been looked at."""
    matched = done = 0
    cursor: str | None = None
    while True:
        response: BulkResult = yield keyed(path, BulkResult, {**body, **given(cursor=cursor)}, None)
        matched, done, cursor = matched + response.matched, done + response.done, response.cursor
        left = matched - done if cursor is None else response.remaining
        total = BulkResult(matched=matched, done=done, remaining=left, cursor=cursor)
        if progress is not None:
            progress(total)
        if not repeat or cursor is None:
            return total
