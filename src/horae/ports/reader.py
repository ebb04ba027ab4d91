"""The read port: look-ups and lists over jobs, runs, queues and nodes."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Generic, Protocol, TypeVar

from horae.core.model import Attempt, Backfill, Job, JobError, JobId, JobStatus, Node, Run, RunId, Skip, State
from horae.core.records import Declaration, QueueSettings, Receipt
from horae.core.values import Value
from horae.ports.events import EventBatch

T = TypeVar("T", covariant=True)


class RunFilter(Value, frozen=True, kw_only=True):
    """Which runs to list; None means any. Only administrators and the engine leave `owner` None."""

    owner: str | None = None
    job_id: JobId | None = None
    states: frozenset[State] | None = None
    due: bool | None = None  # among waiting runs: whether `due_at` has come (`now` must be given)
    stopping: bool | None = None  # whether a cancel is being confirmed
    task: str | None = None
    queue: str | None = None
    start_at: datetime | None = None  # due_at >= start_at
    end_at: datetime | None = None  # due_at < end_at
    dead_letters: bool = False  # only failed runs that are not resolved
    error_type: str | None = None  # of the last attempt; only with `dead_letters`
    now: datetime | None = None


class ErrorGroup(Value, frozen=True, kw_only=True):
    """Dead letters with the same task and error."""

    error: JobError
    count: int
    oldest_at: datetime  # by due time
    newest_at: datetime
    task: str
    example: RunId  # the newest


class JobFilter(Value, frozen=True, kw_only=True):
    """Which jobs to list, one-shots included; None means any."""

    owner: str | None = None
    status: JobStatus | None = None
    last_run_states: frozenset[State] | None = None
    task: str | None = None
    name: str | None = None
    key: str | None = None
    queue: str | None = None
    label: tuple[str, str | None] | None = None  # its name, and its value or None for any
    text: str | None = None  # part of the name, task or key, in upper or lower case
    now: datetime | None = None  # only with `last_run_states`: runs that are due later do not count


class Listing(Value, Generic[T], frozen=True, kw_only=True):
    """One page of a list; `cursor`, which only the store can read, continues after it and is None at the end."""

    items: Sequence[T]
    cursor: str | None


class Ledger(Value, frozen=True, kw_only=True):
    """The runs, skips and backfills of the slots of a job in a range, oldest first."""

    runs: Sequence[Run]  # by the schedule; backfills by users and manual runs fill no slot
    skips: Sequence[Skip]
    backfills: Sequence[Backfill]  # slots that are still to be turned into runs, by users' backfills as well


class QueueDepth(Value, frozen=True, kw_only=True):
    """The state of one queue."""

    queue: str
    depth: int  # due and not started, counted up to 10,000
    oldest_due_at: datetime | None
    running: int
    paused: bool = False
    concurrency: int | None = None  # how many of its runs all nodes together may hold; None means any number


class Reader(Protocol):
    """Look-ups and lists; `owner` None means any owner."""

    async def job(self, job_id: JobId, *, owner: str | None) -> Job | None:
        """Return the job; a one-shot comes with its run, live or ended."""

    async def run(self, run_id: RunId, *, owner: str | None) -> Run | None:
        """Return the run, live or ended."""

    async def runs(self, run_ids: Sequence[RunId]) -> Mapping[RunId, Run]:
        """Return runs of any owner, live or ended; missing ones are left out."""

    async def ended(self, run_ids: Sequence[RunId]) -> list[Run]:
        """Return those of the runs that have ended, in any order."""

    async def jobs(self, job_ids: Sequence[JobId]) -> Mapping[JobId, Job]:
        """Return jobs of any owner; missing ones are left out."""

    async def attempts(self, run_id: RunId) -> list[Attempt]:
        """Return the attempts of a run that did not succeed, oldest first."""

    async def last_runs(self, job_ids: Sequence[JobId], *, now: datetime) -> Mapping[JobId, Run]:
        """Return for each job its latest run that is already due, if there is one."""

    async def list_jobs(self, which: JobFilter, *, cursor: str | None, limit: int) -> Listing[Job]:
        """Return a page of jobs, newest first."""

    async def list_runs(self, which: RunFilter, *, cursor: str | None, limit: int) -> Listing[Run]:
        """Return a page of runs, the latest `due_at` first."""

    async def ledger(self, job_id: JobId, *, start: datetime, end: datetime, limit: int) -> Ledger:
        """Return the ledger of the slots with start <= slot <= end, with at most `limit` runs, the oldest."""

    async def nodes(self) -> list[Node]:
        """Return every registered node, including dead ones that are not removed yet."""

    async def tasks(self) -> Mapping[str, str]:
        """Return every task that a node ever registered, with the JSON schema of its parameters."""

    async def queues(self, *, now: datetime, owner: str | None = None) -> list[QueueDepth]:
        """Return the queues that have live runs (of an owner); without an owner also those that have settings."""

    async def queue_lateness(self, *, since: datetime, owner: str | None = None) -> Mapping[str, timedelta]:
        """Return for each queue the 99th percentile of the lateness of runs that ended recently.

        It is that of the latest 1,000 runs of a queue that were due after `since` and did start.
        """

    async def queue_settings(self, queue: str) -> QueueSettings:
        """Return the settings of a queue, or the defaults."""

    async def job_by_key(self, owner: str, key: str) -> Job | None:
        """Return the unfinished job that holds a key."""

    async def attempts_of(self, run_ids: Sequence[RunId]) -> Mapping[RunId, Sequence[Attempt]]:
        """Return the attempts of many runs that did not succeed, oldest first; runs without any are left out."""

    async def ahead_of(self, run: Run, *, limit: int = 10) -> list[Run]:
        """Return what a run waits for in its gate, earliest first.

        These are live runs that come before it or are held, and earlier dead letters that block it.
        """

    async def dead_letter_groups(self, which: RunFilter) -> list[ErrorGroup]:
        """Group the latest 10,000 dead letters by task and error, the most frequent first."""

    async def receipt(self, owner: str, key: str, *, now: datetime) -> Receipt | None:
        """Return the idempotency record of an earlier request with this key, unless it expired."""

    async def events(self, *, after: str | None, owner: str | None, limit: int) -> list[EventBatch]:
        """Return the batches after a position, in an order that never changes; None starts with the oldest.

        A batch is returned only when none can be committed before it any more.
        """

    async def last_event(self) -> str:
        """Return a position after which `events` returns everything that is committed from now on."""

    async def declarations(self, owner: str) -> list[Declaration]:
        """Return every stored version of the declared schedules of an owner."""

    async def dead_letters(self) -> int:
        """Count failed runs that are not resolved, up to 10,000."""
