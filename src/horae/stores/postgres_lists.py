"""Filters of lists in PostgreSQL: which statements find what is asked for, each by its own index."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from horae.core.lifecycle import FINAL
from horae.core.model import JobError, JobStatus, Run, State
from horae.store import JobFilter, RunFilter
from horae.stores.postgres_rows import LOWEST_ID
from horae.stores.rows import decode_cursor, encode_cursor, encode_error

EARLIEST = datetime(1, 1, 1, tzinfo=UTC)
LATEST = datetime(9999, 12, 31, tzinfo=UTC)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TICK = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuery:
    """A filter as the range of an index and the rest."""

    which: RunFilter
    states: frozenset[State]
    start: datetime
    before_at: datetime
    before_id: str
    limit: int

    @classmethod
    def of(cls, which: RunFilter, cursor: str | None, limit: int) -> "RunQuery":
        start, before = which.start_at or EARLIEST, (which.end_at or LATEST, LOWEST_ID)
        if which.due is not None and which.now is not None:
            if which.due:
                before = min(before, (which.now + _TICK, LOWEST_ID))
            else:
                start = max(start, which.now + _TICK)
        if cursor is not None:
            micros, ident = decode_cursor(cursor, int, str)
            before = min(before, (_EPOCH + micros * _TICK, ident_of(ident)))
        states = frozenset(State) if which.states is None else which.states
        return cls(which=which, states=states, start=start, before_at=before[0], before_id=before[1], limit=limit + 1)

    def statements(self) -> list[tuple[str, frozenset[State]]]:
        """Which statements find the runs, each with the states that it is asked for."""
        if self.which.dead_letters:
            return [(f"list_{self.letters()}", self.states)]
        live, ended = self.states - FINAL, self.states & FINAL
        if self.which.job_id is not None:
            chosen = [("list_live_of_job", live), ("list_ended_of_job", ended)]
        else:
            chosen = [
                *_live_lists(live, stopping=self.which.stopping),
                (_ended_list("list_ended", well=State.SUCCEEDED in ended), ended),
            ]
        return [(name, states) for name, states in chosen if states]

    def letters(self) -> str:
        """Which of the lists of dead letters follows the best index."""
        return "letters" if self.which.job_id is None else "letters_of_job"

    def arguments(self, states: frozenset[State]) -> tuple[Any, ...]:
        """The parameters that lists of runs take; those of dead letters one more."""
        which = self.which
        common = (
            which.owner,
            which.job_id,
            sorted(states),
            which.stopping,
            which.task,
            which.queue,
            self.start,
            self.before_at,
            self.before_id,
            self.limit,
        )
        return (*common, _error_begins(which.error_type)) if which.dead_letters else common


def run_cursor(run: Run) -> str:
    """Where a list of runs goes on after this one."""
    return encode_cursor((run.due_at - _EPOCH) // _TICK, run.id)


def _live_lists(states: frozenset[State], *, stopping: bool | None) -> list[tuple[str, frozenset[State]]]:
    """The lists that together find live runs in these states; what waits for its first try may be much."""
    if stopping:
        return [("list_stopped", states)]
    if State.SCHEDULED in states:
        return [("list_live", states)]
    few = {State.RETRYING: "list_retried", State.RUNNING: "list_started", State.CLAIMED: "list_live"}
    return [(name, frozenset({state})) for state, name in few.items() if state in states]


def _ended_list(name: str, *, well: bool) -> str:
    """The list of ended runs that follows the best index: with those that succeeded, or without."""
    return name if well else f"{name}_badly"


def _error_begins(kind: str | None) -> str | None:
    """How an error of a type begins as it is stored; None for any."""
    text = encode_error(None if kind is None else JobError(type=kind, message=""))
    return None if text is None else text.removesuffix('"message":""}')


def job_statements(which: JobFilter) -> list[tuple[str, tuple[Any, ...]]]:
    """Which statements find the jobs, each with the parameters that are its own."""
    last, due_by = which.last_run_states, which.now or LATEST
    live = (which.status, None if last is None else sorted(last - FINAL), due_by)
    ended = sorted(_ended_states(which.status) & (FINAL if last is None else last))
    recurring = (which.status, None if last is None else sorted(last), due_by)
    statements: list[tuple[str, tuple[Any, ...]]] = []
    if which.status is not JobStatus.FINISHED and live[1] != []:
        statements += [(name, live) for name in _live_statements(which)]
    if ended:
        statements.append((_ended_statement(which, ended), (ended, LATEST if last is None else due_by)))
    statements.append(("list_jobs_of_all" if which.owner is None else "list_jobs_of_owner", recurring))
    return statements


def _live_statements(which: JobFilter) -> list[str]:
    if which.key is not None:
        return ["list_one_shots_keyed"]
    if which.status is JobStatus.PAUSED:
        return ["list_one_shots_paused"]
    if which.status is JobStatus.CANCELLED:
        return ["list_one_shots_stopped"]  # a cancel that waits for its node
    return ["list_one_shots_live"]


def _ended_statement(which: JobFilter, states: Sequence[State]) -> str:
    if which.key is not None:
        return "list_one_shots_ended_keyed"
    return _ended_list("list_one_shots_ended", well=State.SUCCEEDED in states)


def _ended_states(status: JobStatus | None) -> frozenset[State]:
    """The states of ended one-shots that stand so."""
    match status:
        case None:
            return FINAL
        case JobStatus.FINISHED:
            return FINAL - {State.CANCELLED}
        case JobStatus.CANCELLED:
            return frozenset({State.CANCELLED})
        case _:
            return frozenset()


def job_arguments(which: JobFilter, before: str, limit: int) -> tuple[Any, ...]:
    label, value = which.label or (None, None)
    return (which.owner, which.task, which.name, which.key, which.queue, label, value, which.text, before, limit)


def ident_of(text: str) -> str:
    """An id from a cursor; anything else cannot be found, and sorts before everything."""
    return text if len(text) == 32 and all(digit in "0123456789abcdef" for digit in text) else LOWEST_ID
