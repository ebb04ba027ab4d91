"""`client.runs`: what became of each occurrence of a job."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from horae.client.call import Call, Pages, act, get, given, keyed, pages, place
from horae.client.methods import (
    AsyncGroup,
    Group,
    async_does,
    async_lists,
    async_shows_page,
    async_streams,
    does,
    lists,
    shows_page,
    streams,
)
from horae.client.models import Run, Why
from horae.client.streams import LogSource, Source, TextSource

RunStatus = Literal[
    "scheduled", "queued", "running", "retrying", "cancelling", "succeeded", "failed", "cancelled", "skipped"
]


def listed(
    *,
    job_id: str | None = None,
    status: RunStatus | None = None,
    owner: str | None = None,
    task: str | None = None,
    queue: str | None = None,
    start_time: datetime | None = None,
    end_time: datetime | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Pages[Run]:
    """Runs by due time, latest first; due from `start_time` on and before `end_time`. `limit` is the size of a page."""
    return pages(
        place("runs"),
        Run,
        job_id=job_id,
        status=status,
        owner=owner,
        task=task,
        queue=queue,
        start_time=start_time,
        end_time=end_time,
        limit=limit,
        cursor=cursor,
    )


def show(run_id: str) -> Call[Run]:
    """The run and its attempts."""
    return get(place("runs", run_id), Run)


def cancel(run_id: str) -> Call[Run]:
    """Stop it: `cancelled` promises that nothing starts any more, `cancelling` that it was asked for."""
    return act("POST", place("runs", run_id, "cancel"), Run, {})


def retry(run_id: str, *, params: Mapping[str, Any] | None = None, idempotency_key: str | None = None) -> Call[Run]:
    """A failed run again, as a new run; `params` change some of its parameters."""
    return keyed(place("runs", run_id, "retry"), Run, given(params=params), idempotency_key)


def logs(run_id: str, *, follow: bool = False) -> Source[str]:
    """The lines that it wrote; with `follow` also those to come, to its end."""
    return log_source(place("runs", run_id, "logs"), follow=follow)


def why(run_id: str) -> Call[Why]:
    """Why it has not started."""
    return get(place("runs", run_id, "why"), Why)


def log_source(path: str, *, follow: bool) -> Source[str]:
    """The lines of a log."""
    if follow:
        return LogSource(Call(method="GET", path=path, read=bytes, query=(("follow", 1),)))
    return TextSource(Call(method="GET", path=path, read=bytes))


class Runs(Group):
    """Runs: the occurrences of jobs."""

    list = lists(listed)
    page = shows_page(listed)
    get = does(show)
    cancel = does(cancel)
    retry = does(retry)
    logs = streams(logs)
    why = does(why)


class AsyncRuns(AsyncGroup):
    """Runs: the occurrences of jobs."""

    list = async_lists(listed)
    page = async_shows_page(listed)
    get = async_does(show)
    cancel = async_does(cancel)
    retry = async_does(retry)
    logs = async_streams(logs)
    why = async_does(why)
