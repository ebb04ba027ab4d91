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
    """Which runs to list; None means any. `owner` None is for administrators and the engine itself."""

    owner: str | None = None
    job_id: JobId | None = None
    states: frozenset[State] | None = None
    due: bool | None = None  # among waiting runs: whether `due_at` has come (`now` must be given)
    stopping: bool | None = None  # whether a cancel is being confirmed
    task: str | None = None
    queue: str | None = None
    start_at: datetime | None = None  # due_at >= start_at
    end_at: datetime | None = None  # due_at < end_at
    dead_letters: bool = False  # only failed runs that nobody has resolved
    error_type: str | None = None  # with `dead_letters`: of the last attempt
    now: datetime | None = None


class ErrorGroup(Value, frozen=True, kw_only=True):
    """Dead letters that failed alike."""

    error: JobError
    count: int
    oldest_at: datetime  # by due time
    newest_at: datetime
    task: str
    example: RunId  # the newest


class JobFilter(Value, frozen=True, kw_only=True):
    """Which jobs to list, one-shots among them; None means any."""

    owner: str | None = None
    status: JobStatus | None = None
    last_run_states: frozenset[State] | None = None
    task: str | None = None
    name: str | None = None
    key: str | None = None
    queue: str | None = None
    label: tuple[str, str | None] | None = None  # name, and value unless any will do
    text: str | None = None  # part of name, task or key, in any case
    now: datetime | None = None  # with `last_run_states`: a run that is due later is not the last one


class Listing(Value, Generic[T], frozen=True, kw_only=True):
    """One page; `cursor` continues after its last item, None at the end. Opaque to everyone but the store."""

    items: Sequence[T]
    cursor: str | None


class Ledger(Value, frozen=True, kw_only=True):
    """What is known of the slots of a job within a range, oldest first."""

    runs: Sequence[Run]  # of the schedule (backfills by users and manual runs fill no slot)
    skips: Sequence[Skip]
    backfills: Sequence[Backfill]  # slots still to be turned into runs, also those that users fill


class QueueDepth(Value, frozen=True, kw_only=True):
    """The state of one queue."""

    queue: str
    depth: int  # due and not started, counted up to 10,000
    oldest_due_at: datetime | None
    running: int
    paused: bool = False
    concurrency: int | None = None  # at most so many of its runs are held by all nodes together; None: any number


class Reader(Protocol):
    """Look-ups and lists; `owner` None means any owner's."""

    async def job(self, job_id: JobId, *, owner: str | None) -> Job | None:
        """The job; a one-shot comes with its run, whether it is alive or ended."""

    async def run(self, run_id: RunId, *, owner: str | None) -> Run | None:
        """The run, alive or ended."""

    async def runs(self, run_ids: Sequence[RunId]) -> Mapping[RunId, Run]:
        """Many runs, alive or ended, whoever owns them; those that are not there are left out."""

    async def ended(self, run_ids: Sequence[RunId]) -> list[Run]:
        """Those of the runs that have ended, in any order: for whoever waits for many."""

    async def jobs(self, job_ids: Sequence[JobId]) -> Mapping[JobId, Job]:
        """Many jobs, whoever owns them; those that are not there are left out."""

    async def attempts(self, run_id: RunId) -> list[Attempt]:
        """The attempts of a run that did not succeed, oldest first."""

    async def last_runs(self, job_ids: Sequence[JobId], *, now: datetime) -> Mapping[JobId, Run]:
        """For each job its latest run that is already due, if there is one."""

    async def list_jobs(self, which: JobFilter, *, cursor: str | None, limit: int) -> Listing[Job]:
        """Newest first."""

    async def list_runs(self, which: RunFilter, *, cursor: str | None, limit: int) -> Listing[Run]:
        """By due time, latest first."""

    async def ledger(self, job_id: JobId, *, start: datetime, end: datetime, limit: int) -> Ledger:
        """What is known of the slots with start <= slot <= end; at most `limit` runs, the oldest."""

    async def nodes(self) -> list[Node]:
        """Every node that is registered, dead ones that nobody buried yet included."""

    async def tasks(self) -> Mapping[str, str]:
        """Every task that a node ever registered, with the JSON schema of its parameters."""

    async def queues(self, *, now: datetime, owner: str | None = None) -> list[QueueDepth]:
        """The queues that have live runs (of an owner), and without an owner also those that have settings."""

    async def queue_lateness(self, *, since: datetime, owner: str | None = None) -> Mapping[str, timedelta]:
        """For each queue the 99th percentile of the lateness of runs that ended lately.

        Looked at are at most 1,000 runs a queue, the latest that were due after `since` and did start.
        """

    async def queue_settings(self, queue: str) -> QueueSettings:
        """What was said about a queue; the defaults when nothing was."""

    async def job_by_key(self, owner: str, key: str) -> Job | None:
        """The unfinished job that holds a key."""

    async def attempts_of(self, run_ids: Sequence[RunId]) -> Mapping[RunId, Sequence[Attempt]]:
        """The attempts of many runs that did not succeed, oldest first; runs without any are left out."""

    async def ahead_of(self, run: Run, *, limit: int = 10) -> list[Run]:
        """What a waiting run waits for in its gate, earliest first.

        Live runs before it or held in its gate, and dead letters before it that block it.
        """

    async def dead_letter_groups(self, which: RunFilter) -> list[ErrorGroup]:
        """Dead letters by task and error, the most frequent first; of at most 10,000 letters, the latest."""

    async def receipt(self, owner: str, key: str, *, now: datetime) -> Receipt | None:
        """The receipt of an earlier request under this key, while it is valid."""

    async def events(self, *, after: str | None, owner: str | None, limit: int) -> list[EventBatch]:
        """Batches in an order that never changes, those after a position; None begins with the oldest that is kept.

        A batch is listed only when nothing can still be committed before it.
        """

    async def last_event(self) -> str:
        """A position such that `events` after it brings what happens from now on."""

    async def declarations(self, owner: str) -> list[Declaration]:
        """Every version of every declared schedule of an owner that was not forgotten."""

    async def dead_letters(self) -> int:
        """How many failed runs nobody has resolved, counted up to 10,000."""
