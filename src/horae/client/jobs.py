"""`client.jobs`: create, find, change and stop jobs."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from itertools import islice
from typing import Any, Literal, Unpack, cast

from horae.client.call import Call, Pages, Steps, act, get, given, keyed, pages, place, with_header
from horae.client.fields import JobChanges, JobFields, NewJob
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
from horae.client.models import Backfill, BatchItem, BatchResult, Job, Page, Run, Slot, Status, Upcoming
from horae.client.runs import RunStatus, log_source
from horae.client.streams import Source

BATCH = 10_000  # jobs in one request

JobStatus = Literal["scheduled", "paused", "finished", "cancelled"]
LastRunStatus = Literal["queued", "running", "retrying", "succeeded", "failed", "cancelled", "skipped"]


def create(task: str, *, idempotency_key: str | None = None, **fields: Unpack[JobFields]) -> Call[Job]:
    """Create a job; only its task is required. It is safe against lost answers, by a key of its own or yours."""
    return keyed(place("jobs"), Job, {"task": task, **_written(fields)}, idempotency_key)


def batch(jobs: Iterable[NewJob], *, progress: Callable[[int], None] | None = None) -> Steps[BatchResult]:
    """Create many jobs, 10,000 a request; one that is wrong does not stop the others.

    `progress` is told, after each request, how many were dealt with so far.
    """
    items: list[BatchItem] = []
    accepted = 0
    source = iter(jobs)
    while chunk := [_written(job) for job in islice(source, BATCH)]:
        answer: BatchResult = yield keyed(place("jobs", "batch"), BatchResult, {"jobs": chunk}, None)
        items += answer.items
        accepted += answer.accepted
        if progress is not None:
            progress(len(items))
    return BatchResult(items=items, accepted=accepted, rejected=len(items) - accepted)


def listed(
    *,
    status: JobStatus | None = None,
    last_run_status: LastRunStatus | None = None,
    task: str | None = None,
    name: str | None = None,
    key: str | None = None,
    queue: str | None = None,
    label: str | None = None,
    owner: str | None = None,
    q: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Pages[Job]:
    """Jobs, newest first. `label` is `name` or `name:value`, `q` looks into texts, `limit` is the size of a page."""
    return pages(
        place("jobs"),
        Job,
        status=status,
        last_run_status=last_run_status,
        task=task,
        name=name,
        key=key,
        queue=queue,
        label=label,
        owner=owner,
        q=q,
        limit=limit,
        cursor=cursor,
    )


def show(job_id: str) -> Call[Job]:
    """The job."""
    return get(place("jobs", job_id), Job)


def put(job_id: str, task: str, *, if_match: int | None = None, **fields: Unpack[JobFields]) -> Call[Job]:
    """Replace the definition as a whole: what is left out takes its default, but for `secrets`, which are kept.

    With `if_match` (the revision that you know) it raises Outdated when somebody changed the job first.
    """
    call = act("PUT", place("jobs", job_id), Job, {"task": task, **_written(fields)}, repeatable=if_match is None)
    return with_header(call, "If-Match", _tag(if_match))


def patch(job_id: str, *, if_match: int | None = None, **changes: Unpack[JobChanges]) -> Call[Job]:
    """Change some fields; None sets one back to its default.

    With `if_match` (the revision that you know) it raises Outdated when somebody changed the job first.
    """
    return with_header(act("PATCH", place("jobs", job_id), Job, _written(changes)), "If-Match", _tag(if_match))


def upsert(key: str, /, task: str, **fields: Unpack[JobFields]) -> Call[Job]:
    """Create the job that holds a key, or replace its definition."""
    body = {"task": task, **_written(fields)}
    return act("PUT", place("jobs", "by-key", key), Job, body, repeatable=True)


def delete(job_id: str, *, running: Literal["cancel", "keep"] | None = None) -> Call[Job]:
    """Cancel the job, its waiting runs and, unless they are to be kept, its running ones."""
    return act("DELETE", place("jobs", job_id), Job, running=running)


def run(job_id: str, *, params: Mapping[str, Any] | None = None, idempotency_key: str | None = None) -> Call[Run]:
    """Run it now, whatever its schedule, also while it is paused; `params` replace those of the job for this run."""
    return keyed(place("jobs", job_id, "run"), Run, given(params=params), idempotency_key)


def pause(job_id: str) -> Call[Job]:
    """Start no more runs until it is resumed; what is already due still runs."""
    return act("POST", place("jobs", job_id, "pause"), Job, {}, repeatable=True)


def resume(job_id: str, *, missed: Literal["skip", "once", "all"] | None = None) -> Call[Job]:
    """Let it go on; `missed` says what becomes of the slots that came due in the pause (`skip`)."""
    return act("POST", place("jobs", job_id, "resume"), Job, given(missed=missed))


def backfill(job_id: str, *, start: datetime, end: datetime, idempotency_key: str | None = None) -> Call[Backfill]:
    """Run the slots from `start` to `end`, both included, as if they had been missed."""
    return keyed(place("jobs", job_id, "backfill"), Backfill, {"start": start, "end": end}, idempotency_key)


def status(job_id: str) -> Call[Status]:
    """How its latest run that is already due stands."""
    return get(place("jobs", job_id, "status"), Status)


def runs(
    job_id: str, *, status: RunStatus | None = None, limit: int | None = None, cursor: str | None = None
) -> Pages[Run]:
    """Its runs by due time, latest first."""
    return pages(place("jobs", job_id, "runs"), Run, status=status, limit=limit, cursor=cursor)


def logs(job_id: str, *, follow: bool = False) -> Source[str]:
    """The lines that its latest run wrote; with `follow` also those to come, to the end of the run."""
    return log_source(place("jobs", job_id, "logs"), follow=follow)


def upcoming(job_id: str, *, count: int = 10) -> Steps[list[Upcoming]]:
    """When it runs next."""
    page: Page[Upcoming] = yield get(place("jobs", job_id, "next"), Page[Upcoming], count=count)
    return page.items


def slots(
    job_id: str,
    *,
    start: datetime | None = None,
    end: datetime | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Pages[Slot]:
    """The ledger: what became of each slot from `start` (its creation) to `end` (now)."""
    return pages(place("jobs", job_id, "slots"), Slot, start=start, end=end, limit=limit, cursor=cursor)


class Jobs(Group):
    """Jobs: what to run, and when."""

    create = does(create)
    batch = does(batch)
    list = lists(listed)
    page = shows_page(listed)
    get = does(show)
    put = does(put)
    patch = does(patch)
    upsert = does(upsert)
    delete = does(delete)
    run = does(run)
    pause = does(pause)
    resume = does(resume)
    backfill = does(backfill)
    status = does(status)
    runs = lists(runs)
    logs = streams(logs)
    next = does(upcoming)
    slots = lists(slots)


class AsyncJobs(AsyncGroup):
    """Jobs: what to run, and when."""

    create = async_does(create)
    batch = async_does(batch)
    list = async_lists(listed)
    page = async_shows_page(listed)
    get = async_does(show)
    put = async_does(put)
    patch = async_does(patch)
    upsert = async_does(upsert)
    delete = async_does(delete)
    run = async_does(run)
    pause = async_does(pause)
    resume = async_does(resume)
    backfill = async_does(backfill)
    status = async_does(status)
    runs = async_lists(runs)
    logs = async_streams(logs)
    next = async_does(upcoming)
    slots = async_lists(slots)


def _written(fields: Mapping[str, Any] | JobFields | JobChanges | NewJob) -> dict[str, Any]:
    """The fields as the wire takes them; a schedule made by `cron` or `every` becomes its object."""
    body = dict(cast(Mapping[str, Any], fields))
    if "schedule" in body:
        body["schedule"] = wire_schedule(body["schedule"])
    return body


def wire_schedule(schedule: Any) -> Any:
    """A schedule as the wire takes it."""
    if schedule is None or isinstance(schedule, str | datetime | Mapping):
        return schedule
    from horae.core.schedule.parse import schedule_to_wire  # here, for most schedules are texts and need no parser

    return schedule_to_wire(schedule)


def _tag(revision: int | None) -> str | None:
    return None if revision is None else f'"{revision}"'
