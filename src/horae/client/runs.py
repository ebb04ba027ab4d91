"""`client.runs`: lists, shows, cancels and retries runs."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, TypedDict, Unpack

from horae.client.bulk import BulkProgress, Ids, bulk_requests, selection
from horae.client.call import Call, Pages, Steps, change, get, given, keyed, pages, path_to
from horae.client.methods import Methods, TransportT, call_method, list_method, page_method, stream_method
from horae.client.models import BulkResult, Run, Why
from horae.client.streams import LogStream, Stream, TextStream

RunStatus = Literal[
    "scheduled", "queued", "running", "retrying", "cancelling", "succeeded", "failed", "cancelled", "skipped"
]

Trigger = Literal["schedule", "manual", "backfill", "requeue"]


class RunFilters(TypedDict, total=False):
    """Selects runs; None is the same as leaving one out."""

    job_id: str | None
    status: RunStatus | None
    owner: str | None
    task: str | None
    queue: str | None
    start_time: datetime | None
    end_time: datetime | None
    trigger: Trigger | None
    label: str | None  # `name` or `name:value`
    q: str | None  # part of a name, task or key
    worker_id: str | None
    error_type: str | None
    min_lateness_ms: int | None
    due: bool | None  # True: only runs whose due time has come
    id_prefix: str | None  # the first digits of the id; only with `owner`


def listed(*, limit: int | None = None, cursor: str | None = None, **filters: Unpack[RunFilters]) -> Pages[Run]:
    """List runs by due time, latest first; due from `start_time` on and before `end_time`. `limit` is a page's size.

    `label` is `name` or `name:value`, `q` part of a name, task or key, `error_type` that of the last attempt's error.
    """
    return pages(path_to("runs"), Run, limit=limit, cursor=cursor, **filters)


def show(run_id: str) -> Call[Run]:
    """Return a run and its attempts."""
    return get(path_to("runs", run_id), Run)


def cancel(run_id: str) -> Call[Run]:
    """Cancel a run; it is `cancelling` until its worker confirms, and only `cancelled` means that it has stopped."""
    return change("POST", path_to("runs", run_id, "cancel"), Run, {})


def retry(run_id: str, *, params: Mapping[str, Any] | None = None, idempotency_key: str | None = None) -> Call[Run]:
    """Run a failed run again, as a new run; `params` is a merge patch of its parameters."""
    return keyed(path_to("runs", run_id, "retry"), Run, given(params=params), idempotency_key)


def bulk(
    action: Literal["cancel", "retry"],
    which: Ids | RunFilters,
    *,
    dry_run: bool = False,
    repeat: bool = False,
    progress: BulkProgress | None = None,
) -> Steps[BulkResult]:
    """Cancel runs, or retry failed ones; `which` is a list of ids or a filter, and `dry_run` only counts.

    One request acts on up to 10,000; with `repeat` requests are sent until all were looked at. `progress` is called
    with the totals after each request.
    """
    body = {"action": action, **selection(which), **given(dry_run=dry_run or None)}
    return bulk_requests(path_to("runs", "bulk"), body, repeat=repeat, progress=progress)


def logs(run_id: str, *, follow: bool = False) -> Stream[str]:
    """Iterate over the log lines of a run; with `follow` until the run has ended."""
    return log_stream(path_to("runs", run_id, "logs"), follow=follow)


def why(run_id: str) -> Call[Why]:
    """Explain why a run has not started."""
    return get(path_to("runs", run_id, "why"), Why)


def log_stream(path: str, *, follow: bool) -> Stream[str]:
    """Return the stream of a log."""
    if follow:
        return LogStream(Call(method="GET", path=path, read=bytes, query=(("follow", 1),)))
    return TextStream(Call(method="GET", path=path, read=bytes))


class RunMethods(Methods[TransportT]):
    """Methods for runs."""

    list = list_method(listed)
    page = page_method(listed)
    get = call_method(show)
    cancel = call_method(cancel)
    retry = call_method(retry)
    bulk = call_method(bulk)
    logs = stream_method(logs)
    why = call_method(why)
