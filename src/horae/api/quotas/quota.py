"""The quota of a principal: what its requests would add, and the room that is kept for them meanwhile."""

from collections.abc import Iterable
from types import TracebackType

from horae.api.auth.guard import Principal
from horae.api.auth.permission import Defaults
from horae.api.quotas.account import Account
from horae.api.quotas.meter import UsageMeter
from horae.core.decisions.quotas import NOTHING, UNLIMITED, Amount
from horae.core.drafts import DEFAULT_QUEUE, Draft
from horae.core.model import Job
from horae.core.schedule.parse import recurs


class Room:
    """Room that is reserved while a request is in progress; `added` is what it did add, unless it fails."""

    __slots__ = ("_account", "_quota", "_wanted", "added")

    def __init__(self, quota: "Quota", wanted: Amount) -> None:
        self._quota = quota
        self._wanted = self.added = wanted
        self._account: Account | None = None

    async def __aenter__(self) -> "Room":
        self._account = await self._quota.reserve(self._wanted)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._account is not None:
            self._account.settle(self._wanted, self.added if error is None else NOTHING)


class Quota:
    """Limits what one principal adds; administrators and code of this process have no limits."""

    __slots__ = ("_defaults", "_meter", "_who")

    def __init__(self, meter: UsageMeter, who: Principal, defaults: Defaults) -> None:
        self._meter = meter
        self._who = who
        self._defaults = defaults

    def room(self, wanted: Amount) -> Room:
        """Return room for what a request may add, to enter; entering raises OverQuota."""
        return Room(self, wanted)

    async def reserve(self, wanted: Amount) -> Account | None:
        """Reserve room, unless nothing is limited or wanted."""
        limits = self._who.limits
        if limits is None or limits == UNLIMITED or not wanted:
            return None
        return await self._meter.reserve(self._who.owner, limits, wanted)

    def of(self, drafts: Iterable[Draft]) -> Amount:
        """Return what new jobs add."""
        if self._who.limits is None:
            return NOTHING
        waiting = recurring = size = 0
        queues: set[str] = set()
        for draft in drafts:
            again = recurs(draft.schedule)
            recurring += again
            waiting += not again
            size += _size(draft)
            queues.add(self._queue(draft))
        return Amount(waiting=waiting, recurring=recurring, queues=frozenset(queues), stored_bytes=size)

    def of_change(self, job: Job, draft: Draft) -> Amount:
        """Return what a change adds to what a job has; a job of another kind takes the place of the old one."""
        again, queue = recurs(draft.schedule), self._queue(draft)
        return Amount(
            waiting=int(job.recurring and not again),
            recurring=int(again and not job.recurring),
            queues=frozenset() if queue == job.spec.queue else frozenset((queue,)),
            stored_bytes=max(_size(draft) - len(job.spec.params), 0),
        )

    def _queue(self, draft: Draft) -> str:
        if draft.queue is not None:
            return draft.queue
        declared = self._defaults(draft.task)
        return DEFAULT_QUEUE if declared is None or declared.queue is None else declared.queue


def _size(draft: Draft) -> int:
    """Return about how many bytes a job has; characters will do."""
    return len(draft.params) + (len(draft.secrets) if isinstance(draft.secrets, str) else 0)
