"""The read port: look-ups and lists over jobs, runs, queues and nodes."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Generic, Protocol, TypeVar

from horae.core.decisions.quotas import Amount
from horae.core.model import (
    Attempt,
    Backfill,
    Job,
    JobError,
    JobId,
    JobStatus,
    Node,
    NodeId,
    Run,
    RunId,
    Skip,
    State,
    Trigger,
)
from horae.core.records import Record
from horae.core.values import FastStrEnum, Value

MAX_QUEUES = 1_000  # in one answer

T = TypeVar("T", covariant=True)
R = TypeVar("R", bound=Record)


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
    error_type: str | None = None  # of the last attempt
    trigger: Trigger | None = None
    node: NodeId | None = None  # that holds the run or held it last
    min_lateness: timedelta | None = None  # from the due time to the first start
    label: tuple[str, str | None] | None = None  # its name, and its value or None for any
    text: str | None = None  # part of the name, task or key, in upper or lower case
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
    """One page of a list; `cursor`, which only the store can read, continues after it and is None at the end.

    A page that ended early, because it had looked at as many rows as it may, says up to which time it has searched.
    """

    items: Sequence[T]
    cursor: str | None
    searched_to: datetime | None = None


class Ledger(Value, frozen=True, kw_only=True):
    """The runs, skips and backfills of the slots of a job in a range, oldest first."""

    runs: Sequence[Run]  # by the schedule; backfills by users and manual runs fill no slot
    skips: Sequence[Skip]
    backfills: Sequence[Backfill]  # slots that are still to be turned into runs, by users' backfills as well


class QueueDepth(Value, frozen=True, kw_only=True):
    """The state of one queue."""

    queue: str
    depth: int  # due and not started, counted up to 10,000; to less where very many queues have something due
    oldest_due_at: datetime | None
    running: int
    paused: bool = False
    concurrency: int | None = None  # how many of its runs all nodes together may hold; None means any number


class Kept(FastStrEnum):
    """What an owner keeps in the store, in parts that are counted one after another."""

    JOBS = "jobs"  # recurring ones
    LIVE = "live"  # runs that have not ended
    ENDED = "ended"  # runs


class KeptPage(Value, frozen=True, kw_only=True):
    """What a page of a part amounts to; `cursor` continues after it and is None at the end."""

    amount: Amount
    cursor: str | None


class KnownId(Value, frozen=True, kw_only=True):
    """An id that is in use, and whose; a job that runs once and its run share one."""

    id: str
    owner: str
    job: bool  # whether it is that of a job
    run: bool


class Reader(Protocol):
    """Look-ups and lists. Look-ups by id find rows of any owner; `horae.lookup` checks whose they are."""

    async def jobs(self, job_ids: Sequence[JobId]) -> Mapping[JobId, Job]:
        """Return jobs; missing ones are left out. A one-shot comes with its run, live or ended."""

    async def runs(self, run_ids: Sequence[RunId], *, ended: bool = False) -> Mapping[RunId, Run]:
        """Return runs, live or ended; missing ones are left out.

        With `ended` only those that have ended, without reading the others: callers poll for the end of many runs.
        """

    async def attempts(self, run_ids: Sequence[RunId]) -> Mapping[RunId, Sequence[Attempt]]:
        """Return the attempts of runs that did not succeed, oldest first; runs without any are left out."""

    async def last_runs(self, job_ids: Sequence[JobId], *, now: datetime) -> Mapping[JobId, Run]:
        """Return for each job its latest run that is already due, if there is one."""

    async def list_jobs(
        self, which: JobFilter, *, cursor: str | None, limit: int, look: int | None = None
    ) -> Listing[Job]:
        """Return a page of jobs, newest first, that looks at about `look` rows at most.

        Jobs are searched by the time of their creation. Lists of users have a bound, and what others need does not
        wait for them; None is for acts and the engine, which need a whole page.
        """

    async def list_runs(
        self, which: RunFilter, *, cursor: str | None, limit: int, look: int | None = None
    ) -> Listing[Run]:
        """Return a page of runs, the latest `due_at` first, that looks at about `look` rows at most, as `list_jobs`."""

    async def ids(self, first: str, last: str, *, limit: int) -> list[KnownId]:
        """Return the ids of jobs and runs from `first` to `last`, of any owner, newest first."""

    async def ledger(
        self, job_id: JobId, *, start: datetime, end: datetime, limit: int, look: int | None = None
    ) -> Ledger:
        """Return the ledger of the slots with start <= slot <= end, with at most `limit` runs, the oldest.

        With `look` it is for a list, with at most so many skips that begin within the range, the oldest.
        """

    async def ahead_of(self, run: Run, *, limit: int = 10) -> list[Run]:
        """Return what a run waits for in its gate, earliest first.

        These are live runs that come before it or are held, and earlier dead letters that block it.
        """

    async def records(self, kind: type[R], *, owner: str = "", key: str | None = None) -> list[R]:
        """Return the records of a kind and an owner, with this key or (None) with any.

        Task schemas and queue settings belong to no owner; their key is the name of the task or queue. The key of a
        declaration is the store's own. Idempotency records that expired may still be returned.
        """

    async def nodes(self) -> list[Node]:
        """Return every registered node, including dead ones that are not removed yet."""

    async def queues(
        self,
        *,
        now: datetime,
        owner: str | None = None,
        queue: str | None = None,
        after: str = "",
        limit: int = MAX_QUEUES,
    ) -> list[QueueDepth]:
        """Return the queues that have live runs (of an owner); without an owner also those that have settings.

        They are the first `limit` by name after `after`, or only the one named `queue`.
        """

    async def queue_lateness(
        self, *, since: datetime, owner: str | None = None, after: str = "", until: str | None = None
    ) -> Mapping[str, timedelta]:
        """Return for queues with names after `after` and up to `until` how late runs started that ended recently.

        It is the 99th percentile of the latest 1,000 runs of a queue that were due after `since` and did start; of
        fewer, or none, where very many runs ended or very many queues had some.
        """

    async def due_soon(self, *, now: datetime, within: timedelta) -> Mapping[str, int]:
        """Count for each queue what comes due after now and within so long; queues without any are left out.

        These are waiting runs, and the next slots of recurring jobs whose runs are not planned yet. About the first
        10,000 of both are counted.
        """

    async def kept_by(self, owner: str, part: Kept, *, cursor: str | None, limit: int) -> KeptPage:
        """Count a page of what an owner keeps, of at most `limit` rows; jobs that have ended count only their bytes."""

    async def dead_letter_groups(self, which: RunFilter) -> list[ErrorGroup]:
        """Group about the latest 10,000 dead letters by task and error, the most frequent first.

        Of each of very many tasks and queues fewer may be counted.
        """

    async def count_dead_letters(self) -> int:
        """Count failed runs that are not resolved, up to 10,000."""
