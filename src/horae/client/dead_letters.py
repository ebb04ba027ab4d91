"""`client.dead_letters`: lists, requeues and discards failed runs that are not resolved yet."""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Any, TypedDict

from horae.client.call import Call, Pages, Steps, change, get, given, keyed, pages, path_to
from horae.client.methods import (
    AsyncMethods,
    Methods,
    async_call_method,
    async_list_method,
    async_page_method,
    call_method,
    list_method,
    page_method,
)
from horae.client.models import DeadLetterGroup, Page, Resolved, Run


class LetterFilter(TypedDict, total=False):
    """Selects dead letters; without fields, all of one's own."""

    job_id: str
    task: str
    queue: str
    owner: str
    error: str  # the type of the error
    start_time: datetime
    end_time: datetime


Which = Sequence[str] | AbstractSet[str] | LetterFilter  # not Collection[str], which a filter would match as well
Progress = Callable[[Resolved], None]


def listed(
    *,
    job_id: str | None = None,
    task: str | None = None,
    queue: str | None = None,
    owner: str | None = None,
    error: str | None = None,
    start_time: datetime | None = None,
    end_time: datetime | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Pages[Run]:
    """List dead letters by due time, latest first. `error` is the type of the error, `limit` the size of a page."""
    return pages(
        path_to("dead-letters"),
        Run,
        job_id=job_id,
        task=task,
        queue=queue,
        owner=owner,
        error=error,
        start_time=start_time,
        end_time=end_time,
        limit=limit,
        cursor=cursor,
    )


def groups(
    *,
    job_id: str | None = None,
    task: str | None = None,
    queue: str | None = None,
    owner: str | None = None,
    error: str | None = None,
    start_time: datetime | None = None,
    end_time: datetime | None = None,
) -> Steps[list[DeadLetterGroup]]:
    """Return dead letters grouped by task and error, the most frequent first."""
    page: Page[DeadLetterGroup] = yield get(
        path_to("dead-letters"),
        Page[DeadLetterGroup],
        group="error",
        job_id=job_id,
        task=task,
        queue=queue,
        owner=owner,
        error=error,
        start_time=start_time,
        end_time=end_time,
    )
    return page.items


def requeue(
    which: Which, *, params: Mapping[str, Any] | None = None, repeat: bool = False, progress: Progress | None = None
) -> Steps[Resolved]:
    """Run dead letters again, each as a new run; `which` is a list of ids or a filter.

    One request requeues up to 10,000; with `repeat` requests are sent until none is left. `params` is a merge patch of
    each run's parameters. `progress` is called with the totals after each request.
    """
    body = {**_which(which), **given(params=params)}
    return _until_done(lambda: keyed(path_to("dead-letters", "requeue"), Resolved, body, None), repeat, progress)


def discard(which: Which, *, repeat: bool = False, progress: Progress | None = None) -> Steps[Resolved]:
    """Resolve dead letters without running them again; `which` is a list of ids or a filter.

    One request discards up to 10,000; with `repeat` requests are sent until none is left. `progress` is called with the
    totals after each request.
    """
    body = _which(which)
    path = path_to("dead-letters", "discard")
    return _until_done(lambda: change("POST", path, Resolved, body, repeatable=True), repeat, progress)


class DeadLetterMethods(Methods):
    """Failed runs that are not resolved yet."""

    list = list_method(listed)
    page = page_method(listed)
    groups = call_method(groups)
    requeue = call_method(requeue)
    discard = call_method(discard)


class AsyncDeadLetterMethods(AsyncMethods):
    """Failed runs that are not resolved yet."""

    list = async_list_method(listed)
    page = async_page_method(listed)
    groups = async_call_method(groups)
    requeue = async_call_method(requeue)
    discard = async_call_method(discard)


def _which(which: Which) -> dict[str, Any]:
    if isinstance(which, str):
        return {"ids": [which]}
    return {"filter": which} if isinstance(which, Mapping) else {"ids": [*which]}


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
