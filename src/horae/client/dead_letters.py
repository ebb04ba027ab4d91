"""`client.dead_letters`: lists, requeues and discards failed runs that are not resolved yet."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypedDict, Unpack

from horae.client.bulk import Ids, selection
from horae.client.call import Call, Pages, Steps, change, get, given, keyed, pages, path_to
from horae.client.methods import Methods, TransportT, call_method, list_method, page_method
from horae.client.models import DeadLetterGroup, Page, Resolved, Run


class LetterFilter(TypedDict, total=False):
    """Selects dead letters, without fields all of one's own; None is the same as leaving a field out."""

    job_id: str | None
    task: str | None
    queue: str | None
    owner: str | None
    error: str | None  # the type of the error
    start_time: datetime | None
    end_time: datetime | None


Which = Ids | LetterFilter
Progress = Callable[[Resolved], None]


def listed(*, limit: int | None = None, cursor: str | None = None, **filters: Unpack[LetterFilter]) -> Pages[Run]:
    """List dead letters by due time, latest first. `error` is the type of the error, `limit` the size of a page."""
    return pages(path_to("dead-letters"), Run, limit=limit, cursor=cursor, **filters)


def groups(**filters: Unpack[LetterFilter]) -> Steps[list[DeadLetterGroup]]:
    """Return dead letters grouped by task and error, the most frequent first."""
    page: Page[DeadLetterGroup] = yield get(path_to("dead-letters"), Page[DeadLetterGroup], group="error", **filters)
    return page.items


def requeue(
    which: Which, *, params: Mapping[str, Any] | None = None, repeat: bool = False, progress: Progress | None = None
) -> Steps[Resolved]:
    """Run dead letters again, each as a new run; `which` is a list of ids or a filter.

    One request requeues up to 10,000; with `repeat` requests are sent until none is left. `params` is a merge patch of
    each run's parameters. `progress` is called with the totals after each request.
    """
    body = {**selection(which), **given(params=params)}
    return _until_done(lambda: keyed(path_to("dead-letters", "requeue"), Resolved, body, None), repeat, progress)


def discard(which: Which, *, repeat: bool = False, progress: Progress | None = None) -> Steps[Resolved]:
    """Resolve dead letters without running them again; `which` is a list of ids or a filter.

    One request discards up to 10,000; with `repeat` requests are sent until none is left. `progress` is called with the
    totals after each request.
    """
    body = selection(which)
    path = path_to("dead-letters", "discard")
    return _until_done(lambda: change("POST", path, Resolved, body, repeatable=True), repeat, progress)


class DeadLetterMethods(Methods[TransportT]):
    """Failed runs that are not resolved yet."""

    list = list_method(listed)
    page = page_method(listed)
    groups = call_method(groups)
    requeue = call_method(requeue)
    discard = call_method(discard)


def _until_done(call: Callable[[], Call[Resolved]], repeat: bool, progress: Progress | None) -> Steps[Resolved]:
    """Send requests until none is left, or one resolved nothing: the rest then needs a person's attention."""
    matched = done = 0
    while True:
        response: Resolved = yield call()
        matched, done = matched + response.matched, done + response.done
        total = Resolved(matched=matched, done=done, remaining=response.remaining)
        if progress is not None:
            progress(total)
        if not repeat or not response.remaining or not response.done:
            return total
