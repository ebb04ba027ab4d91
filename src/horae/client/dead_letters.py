"""`client.dead_letters`: failed runs that nobody has resolved yet."""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Any, TypedDict

from horae.client.call import Call, Pages, Steps, act, get, given, keyed, pages, place
from horae.client.methods import AsyncGroup, Group, async_does, async_lists, async_shows_page, does, lists, shows_page
from horae.client.models import DeadLetterGroup, Page, Resolved, Run


class LetterFilter(TypedDict, total=False):
    """Which dead letters are meant."""

    job_id: str
    task: str
    queue: str
    owner: str
    error: str  # its type
    start_time: datetime
    end_time: datetime


Which = Sequence[str] | AbstractSet[str] | LetterFilter  # no dict is taken for a collection of ids
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
    """Dead letters by due time, latest first. `error` is a type of error, `limit` the size of a page."""
    return pages(
        place("dead-letters"),
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
    """Dead letters by task and error, the most frequent first."""
    page: Page[DeadLetterGroup] = yield get(
        place("dead-letters"),
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
    """Try dead letters again, each as a new run: those with some ids, or those that fit a filter.

    One request takes up to 10,000; with `repeat` there are more until none is left. `params` change some parameters of
    each. `progress` is told the figures so far after each request.
    """
    body = {**_which(which), **given(params=params)}
    return _until_done(lambda: keyed(place("dead-letters", "requeue"), Resolved, body, None), repeat, progress)


def discard(which: Which, *, repeat: bool = False, progress: Progress | None = None) -> Steps[Resolved]:
    """Give dead letters up: those with some ids, or those that fit a filter.

    One request takes up to 10,000; with `repeat` there are more until none is left. `progress` is told the figures so
    far after each request.
    """
    body = _which(which)
    path = place("dead-letters", "discard")
    return _until_done(lambda: act("POST", path, Resolved, body, repeatable=True), repeat, progress)


class DeadLetters(Group):
    """Failed runs that nobody has resolved yet."""

    list = lists(listed)
    page = shows_page(listed)
    groups = does(groups)
    requeue = does(requeue)
    discard = does(discard)


class AsyncDeadLetters(AsyncGroup):
    """Failed runs that nobody has resolved yet."""

    list = async_lists(listed)
    page = async_shows_page(listed)
    groups = async_does(groups)
    requeue = async_does(requeue)
    discard = async_does(discard)


def _which(which: Which) -> dict[str, Any]:
    if isinstance(which, str):
        return {"ids": [which]}
    return {"filter": which} if isinstance(which, Mapping) else {"ids": [*which]}


def _until_done(call: Callable[[], Call[Resolved]], repeat: bool, progress: Progress | None) -> Steps[Resolved]:
    """Ends also when a request got nothing done: what is left then needs a look."""
    matched = done = 0
    while True:
        answer: Resolved = yield call()
        matched, done = matched + answer.matched, done + answer.done
        total = Resolved(matched=matched, done=done, remaining=answer.remaining)
        if progress is not None:
            progress(total)
        if not repeat or not answer.remaining or not answer.done:
            return total
