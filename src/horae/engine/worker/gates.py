"""The gates that this node holds, and the order of its runs within each."""

from collections.abc import Iterable, Sequence

from horae.core.model import Run, RunId, State
from horae.core.release import Rival, makes_way

FULL = 8  # runs of one gate that a node holds ahead; more would only wait here instead of in the store


class Gates:
    """Knows, for each gate of this node, its unfinished runs by (due_at, id), and which of them have started.

    A run that goes back unfinished, or fails and blocks, stays ahead of the others, although this node no longer holds
    it. Until the store knows that, it shows the run as ours and lets us claim its followers: such claims are not to be
    trusted.
    """

    def __init__(self) -> None:
        self._lines: dict[str, dict[RunId, Run]] = {}
        self._unsettled: dict[str, int] = {}  # results under way; the gate is not free before they are written
        self._closed: dict[str, int | None] = {}  # the last claim not to be trusted; None: nor any to come
        self._claims = 0
        self._full: set[str] = set()
        self._free: set[str] = set()

    def enter(self, run: Run) -> None:
        """A run of the gate was claimed, or has started."""
        if run.gate is not None:
            line = self._lines.setdefault(run.gate, {})
            line[run.id] = run
            if len(line) >= FULL:
                self._full.add(run.gate)
            self._free.discard(run.gate)

    def leave(self, run: Run) -> None:
        """A run of the gate ended here; its result is on the way to the store."""
        if run.gate is None:
            return
        if not makes_way(run):
            self._closed[run.gate] = None
        line = self._lines.get(run.gate, {})
        line.pop(run.id, None)
        if len(line) < FULL:
            self._full.discard(run.gate)
        self._unsettled[run.gate] = self._unsettled.get(run.gate, 0) + 1

    def forget(self, run: Run) -> None:
        """A run of the gate is another node's now."""
        if run.gate is not None and (line := self._lines.get(run.gate)) is not None:
            line.pop(run.id, None)
            self._full.discard(run.gate)
            if not line and run.gate not in self._unsettled:
                del self._lines[run.gate]
                self._free.add(run.gate)

    def settled(self, run: Run) -> None:
        """The store has the result of a run that left."""
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
        """The unfinished runs of the same gate that run or are ahead."""
        line = self._lines.get(run.gate) if run.gate is not None else None
        if line is None or (len(line) == 1 and run.id in line):
            return ()  # the usual case
        return [
            Rival(job_id=other.job_id, started_at=other.first_started_at)
            for other in line.values()
            if other.id != run.id and (_runs(other) or (other.due_at, other.id) < (run.due_at, run.id))
        ]

    def line(self, gate: str | None) -> list[Run]:
        """The runs of a gate that are not running, in their order."""
        line = self._lines.get(gate) if gate is not None else None
        if not line:
            return []  # the usual case
        return sorted((run for run in line.values() if not _runs(run)), key=lambda run: (run.due_at, run.id))

    def begin_claim(self) -> int:
        """A claim is sent; its number."""
        self._claims += 1
        return self._claims

    def trusts(self, run: Run, claim: int) -> bool:
        """Whether a run that a claim brought is really the next of its gate."""
        if run.gate not in self._closed:
            return True
        last = self._closed[run.gate]
        return last is not None and claim > last

    def end_claim(self, claim: int) -> None:
        """Everything that the claim brought was looked at; the next one sees at least as much."""
        self._closed = {gate: last for gate, last in self._closed.items() if last is None or last >= claim}

    def full(self) -> list[str]:
        """Gates of which this node holds enough."""
        return list(self._full)

    def take_free(self) -> list[str]:
        """Gates that this node no longer needs; the caller frees them in the store."""
        free, self._free = list(self._free), set()
        return free

    def free(self, gates: Iterable[str]) -> None:
        """The store may count these as ours: where we have nothing, they are to be freed with the next claim."""
        self._free.update(gate for gate in gates if gate not in self._lines and gate not in self._unsettled)


def _runs(run: Run) -> bool:
    return run.state is State.RUNNING
