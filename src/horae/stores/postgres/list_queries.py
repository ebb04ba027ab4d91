"""Lists in PostgreSQL: the statements that a filter needs, each of which follows one index for some of its rows."""

import heapq
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from horae.core.lifecycle import FINAL
from horae.core.model import JobError, JobStatus, Run, State
from horae.ports.reader import JobFilter, RunFilter
from horae.stores.common.codecs import encode_error
from horae.stores.common.listing import LATEST, Ident, Micros, decode_cursor, due_range, share, time_of
from horae.stores.postgres.codecs import HIGHEST_ID, LOWEST_ID, birthday

_ENDED = {  # the states of ended one-shots, by the status of their jobs
    None: FINAL,
    JobStatus.FINISHED: FINAL - {State.CANCELLED},
    JobStatus.CANCELLED: frozenset({State.CANCELLED}),
}

Days = tuple[date, date]  # from the first to before the second
RECENT = timedelta(hours=6)
_SECOND_DAY = date.min + timedelta(days=1)


def latest_first(day: date) -> list[Days]:
    """The history from about this day on, and before it, which is quick when the page is full by then."""
    lately = (datetime.now(UTC) - RECENT).date()  # decides only what is searched first, so any clock will do
    split = min(max(day, _SECOND_DAY) - timedelta(days=1), lately)
    return [(split, date.max), (date.min, split)]


@dataclass(frozen=True, slots=True)
class Search:
    """A statement that finds part of a page, by its name after `list_`, and its parameters.

    It has days if it goes day by day, and states, if of runs. One of few rows looks at all of them.
    """

    name: str
    states: frozenset[State] = frozenset()
    days: Days | tuple[()] = ()
    own: tuple[Any, ...] = ()
    few: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuery:
    """A filter as the range of an index and further conditions."""

    which: RunFilter
    states: frozenset[State]
    start: datetime
    before_at: datetime
    before_id: str
    limit: int
    look: int

    @classmethod
    def of(cls, which: RunFilter, cursor: str | None, limit: int, look: int | None) -> "RunQuery":
        start, end = due_range(which)
        before = (end, LOWEST_ID)
        if cursor is not None:
            micros, ident = decode_cursor(cursor, Micros, Ident)
            before = min(before, (time_of(micros), ident))
        states = frozenset(State) if which.states is None else which.states
        return cls(
            which=which,
            states=states,
            start=start,
            before_at=before[0],
            before_id=before[1],
            limit=limit + 1,
            look=share(look, 2, limit + 1),  # live runs, and those that ended
        )

    def searches(self) -> list[Search]:
        """The statements; live runs come first, so that a run that ends meanwhile is found twice, not never."""
        live = frozenset() if self.which.dead_letters else self.states - FINAL
        ended = self.states & FINAL
        if self.which.job_id is not None:
            name = "dead_letters_of_job" if self.which.dead_letters else "ended_runs_of_job"
            searches = [Search("live_runs_of_job", live), Search(name, ended)]
        else:
            best = "ended_runs" if State.SUCCEEDED in ended else "unsuccessful_runs"
            name = "dead_letters" if self.which.dead_letters else best
            searches = _live_searches(live, stopping=self.which.stopping)
            searches += [Search(name, ended, days) for days in latest_first(self.before_at.date())]
        return [search for search in searches if search.states]

    def groups(self) -> Search:
        """The statement that groups dead letters by their errors."""
        name = "group_dead_letters" if self.which.job_id is None else "group_dead_letters_of_job"
        return Search(name, self.states & FINAL)

    def floor(self, found: Collection[Run]) -> datetime:
        """What comes onto the page after these is due from this time on."""
        full = len(found) >= self.limit
        return heapq.nlargest(self.limit, (run.due_at for run in found))[-1] if full else self.start

    def arguments(
        self, search: Search, found: Collection[Run] = (), searched_to: datetime | None = None
    ) -> tuple[Any, ...]:
        """The parameters that a search takes when these were found before, and the page ends at this time."""
        which = self.which
        start = max(self.floor(found), searched_to or self.start)
        label, value = which.label or (None, None)
        return (
            *(which.owner, which.task, which.queue, self.limit, which.job_id, sorted(search.states), which.stopping),
            *(start, self.before_at, self.before_id, self.look),
            *(_error_begins(which.error_type), which.trigger, which.node, which.min_lateness, label, value, which.text),
            *((*search.days, len(found) < self.limit) if search.days else ()),
        )


def _live_searches(states: frozenset[State], *, stopping: bool | None) -> list[Search]:
    """The statements that find live runs in these states; many runs may wait for their first try."""
    if stopping:
        return [Search("stopping_runs", states, few=True)]
    if State.SCHEDULED in states:
        return [Search("live_runs", states)]
    few = {State.RETRYING: "retried_runs", State.RUNNING: "started_runs", State.CLAIMED: "live_runs"}
    return [Search(name, frozenset({state})) for state, name in few.items() if state in states]


def _error_begins(kind: str | None) -> str | None:
    """How an error of a type begins as it is stored; None for any."""
    text = encode_error(None if kind is None else JobError(type=kind, message=""))
    return None if text is None else text.removesuffix('"message":""}')


@dataclass(frozen=True, slots=True, kw_only=True)
class JobQuery:
    """A filter as the range of an index and further conditions."""

    which: JobFilter
    before: str
    limit: int
    look: int

    @classmethod
    def of(cls, which: JobFilter, cursor: str | None, limit: int, look: int | None) -> "JobQuery":
        before = HIGHEST_ID if cursor is None else decode_cursor(cursor, Ident)[0]
        return cls(which=which, before=before, limit=limit + 1, look=share(look, 3, limit + 1))

    def searches(self) -> list[Search]:
        """The statements; those of ended jobs come last."""
        which, last = self.which, self.which.last_run_states
        due_by = which.now or LATEST
        live = (which.status, None if last is None else sorted(last - FINAL), due_by)
        recurring = (which.status, None if last is None else sorted(last), due_by)
        ended = sorted(_ENDED.get(which.status, frozenset()) & (FINAL if last is None else last))
        searches = [Search("jobs_of_all" if which.owner is None else "jobs_of_owner", own=recurring)]
        if which.status is not JobStatus.FINISHED and live[1] != []:
            searches.append(_live_search(which, live))
        if ended:
            searches += self._ended(ended, LATEST if last is None else due_by)
        return searches

    def _ended(self, states: Sequence[State], due_by: datetime) -> list[Search]:
        if self.which.key is not None:
            return [Search("ended_one_shots_of_key", own=(states, due_by))]
        name = "ended_one_shots" if State.SUCCEEDED in states else "unsuccessful_one_shots"
        split = latest_first(birthday(self.before) or date.max)
        return [Search(name, days=days, own=(states, due_by)) for days in split]

    def floor(self, found: Collection[str]) -> str:
        """What comes onto the page after jobs with these ids has no lesser id."""
        return heapq.nlargest(self.limit, found)[-1] if len(found) >= self.limit else LOWEST_ID

    def arguments(self, search: Search, found: Collection[str], edge: str = LOWEST_ID) -> tuple[Any, ...]:
        """The parameters that a search takes when these jobs were found before, and the page ends at an edge."""
        which = self.which
        label, value = which.label or (None, None)
        common = (which.owner, which.task, which.queue, self.limit, which.name, which.key, label, value, which.text)
        by_day = (max(self.floor(found), edge), *search.days, len(found) < self.limit) if search.days else ()
        # The last run of a recurring job is looked up for each, in all days of the history.
        costly = which.last_run_states is not None and search.name.startswith("jobs")
        look = max(self.look // 4, self.limit) if costly else self.look
        return (*common, self.before, look, *search.own, *by_day)


def _live_search(which: JobFilter, own: tuple[Any, ...]) -> Search:
    if which.key is not None:
        return Search("live_one_shots_of_key", own=own)
    if which.status is JobStatus.PAUSED:
        return Search("paused_one_shots", own=own)
    if which.status is JobStatus.CANCELLED:
        return Search("stopping_one_shots", own=own, few=True)  # a cancel that waits for its node
    return Search("live_one_shots", own=own)
