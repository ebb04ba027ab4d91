"""Keeps the gates that this node holds, and the order of its runs within each."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from horae.core.decisions.release import Rival, makes_way
from horae.core.model import Run, RunId, State

_RUNNING = State.RUNNING  # in Python 3.11 an enum look-up takes as long as a call

FULL = 8  # runs of one gate that a node holds ahead; more would only wait here instead of in the store


class Gates:
    """The unfinished runs of this node in each gate, by (due_at, id), and which of them have started.

    A run that is given back, or fails and blocks its gate, stays ahead of its followers although this node no longer
    holds it. Until the store has that result, it counts the run as ours and lets us claim its followers: those claims
    must not be trusted.
    """

    def __init__(self, full: int = FULL) -> None:
        self._full_at = full
        self._lines: dict[str, dict[RunId, Run]] = {}
        self._unsettled: dict[str, int] = {}  # results on their way; the gate is not free before they are written
        self._closed: dict[str, int | None] = {}  # the last claim not to trust; None: no claim until further notice
        self._claims = 0
        self._full: set[str] = set()
        self._free: set[str] = set()

    def enter(self, run: Run) -> None:
        """Add a run that was claimed, or replace it when it starts."""
        if run.gate is not None:
            line = self._lines.setdefault(run.gate, {})
            line[run.id] = run
            if len(line) >= self._full_at:
                self._full.add(run.gate)
            self._free.discard(run.gate)

    def leave(self, run: Run) -> None:
        """Remove a run whose result is on its way to the store."""
        if run.gate is None:
            return
        if not makes_way(run):
            self._closed[run.gate] = None
        line = self._lines.get(run.gate, {})
        line.pop(run.id, None)
        if len(line) < self._full_at:
            self._full.discard(run.gate)
        self._unsettled[run.gate] = self._unsettled.get(run.gate, 0) + 1

    def forget(self, run: Run) -> None:
        """Remove a run that is another node's now."""
        if run.gate is not None and (line := self._lines.get(run.gate)) is not None:
            line.pop(run.id, None)
            self._full.discard(run.gate)
            if not line and run.gate not in self._unsettled:
                del self._lines[run.gate]
                self._free.add(run.gate)

    def settled(self, run: Run) -> None:
        """Note that the store has the result of a run that left."""
        if run.gate is None or run.gate not in self._unsettled:
            return
        self._unsettled[run.gate] -= 1
        if not self._unsettled[run.gate]:
            del self._unsettled[run.gate]
            if run.gate in self._closed:
                self._closed[run.gate] = self._claims
            if not self._lines.get(run.gate):
                self._lines.pop(run.gate, None)
                self._free.add(run.gate)

    def rivals(self, run: Run) -> Sequence[Rival]:
        """Return the unfinished runs of the same gate that are running or ahead."""
        line = self._lines.get(run.gate) if run.gate is not None else None
        if line is None or (len(line) == 1 and run.id in line):
            return ()  # the usual case
        due_at, place = run.due_at, (run.due_at, run.id)
        return [
            Rival(id=other.id, job_id=other.job_id, started_at=other.first_started_at)
            for other in line.values()
            if (other.due_at <= due_at or other.state is _RUNNING)  # most are later
            and other.id != run.id
            and (other.state is _RUNNING or (other.due_at, other.id) < place)
        ]

    def waiting(self, gate: str | None, until: datetime | None = None) -> list[Run]:
        """Return the runs of a gate that have not started, in their order; with `until` those that wake by then."""
        line = self._lines.get(gate) if gate is not None else None
        if not line:
            return []  # the usual case
        found = [run for run in line.values() if (until is None or run.wake_at <= until) and run.state is not _RUNNING]
        return sorted(found, key=lambda run: (run.due_at, run.id))

    def begin_claim(self) -> int:
        """Return the number of the claim that is about to be sent."""
        self._claims += 1
        return self._claims

    def trusts(self, run: Run, claim: int) -> bool:
        """Return whether a run that a claim brought is really the next of its gate."""
        if run.gate not in self._closed:
            return True
        last = self._closed[run.gate]
        return last is not None and claim > last

    def end_claim(self, claim: int) -> None:
        """Trust later claims again, because they see at least as much as this one, whose runs were all checked."""
        self._closed = {gate: last for gate, last in self._closed.items() if last is None or last >= claim}

    def full(self) -> list[str]:
        """Return the gates of which this node holds enough runs."""
        return list(self._full)

    def take_free(self) -> list[str]:
        """Return the gates that this node no longer needs; the caller frees them in the store."""
        free, self._free = list(self._free), set()
        return free

    def free(self, gates: Iterable[str]) -> None:
        """Free gates with the next claim, unless we have runs in them: the store may still count them as ours."""
        self._free.update(gate for gate in gates if gate not in self._lines and gate not in self._unsettled)
