"""What applying changes has in common in every store: the rows that guards name, and the writes by their kind."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, assert_never

from horae.core.changes import (
    Absent,
    BackfillUnchanged,
    Change,
    GateLeft,
    Guard,
    JobNotCancelled,
    JobUnchanged,
    KeyFree,
    LetterOpen,
    NewEvent,
    NodeUnchanged,
    QueueUnchanged,
    Refusal,
    RequestNew,
    RunLive,
    RunUnchanged,
)
from horae.core.model import JobId, NodeId, RunId
from horae.core.records import IdempotencyRecord, KeyHolder, Place
from horae.core.signals import Signal
from horae.stores.common.records import RecordRow, Stored, encode_record


@dataclass(slots=True)
class Named:
    """The rows that the guards of a batch of changes name, each once."""

    jobs: set[JobId] = field(default_factory=set)
    open_jobs: set[JobId] = field(default_factory=set)
    runs: set[RunId] = field(default_factory=set)
    letters: set[RunId] = field(default_factory=set)
    backfills: set[str] = field(default_factory=set)
    records: dict[Place, KeyHolder | IdempotencyRecord] = field(default_factory=dict)
    queues: set[str] = field(default_factory=set)
    nodes: set[NodeId] = field(default_factory=set)

    @classmethod
    def by(cls, changes: Iterable[Change]) -> "Named":
        """What these changes name."""
        named = cls()
        for change in changes:
            for guard in change.guards:
                named._add(guard)
        return named

    def _add(self, guard: Guard) -> None:
        match guard:
            case JobUnchanged():
                self.jobs.add(guard.id)
            case JobNotCancelled():
                self.open_jobs.add(guard.id)
            case RunUnchanged() | RunLive():
                self.runs.add(guard.id)
            case Absent():
                self.jobs.add(JobId(guard.id))
                self.runs.add(RunId(guard.id))
            case LetterOpen():
                self.letters.add(guard.id)
            case BackfillUnchanged():
                self.backfills.add(guard.id)
            case KeyFree(record) | RequestNew(record):
                self.records.setdefault(record.place, record)
            case QueueUnchanged(settings):
                self.queues.add(settings.queue)
            case NodeUnchanged():
                self.nodes.add(guard.id)
            case _:
                assert_never(guard)


@dataclass(slots=True)
class Writes:
    """What admitted changes write, by the kind of value; small records, whatever their kind, as rows."""

    deletes: defaultdict[type, list[Any]] = field(default_factory=lambda: defaultdict(list))
    puts: defaultdict[type, list[Any]] = field(default_factory=lambda: defaultdict(list))
    gates_left: list[GateLeft] = field(default_factory=list)
    events: list[NewEvent] = field(default_factory=list)
    signals: list[Signal] = field(default_factory=list)

    @classmethod
    def of(cls, changes: Sequence[Change], refusals: Sequence[Refusal | None]) -> "Writes":
        """What those of the changes write that were not refused."""
        writes = cls()
        for change, refusal in zip(changes, refusals, strict=True):
            if refusal is None:
                writes._add(change)
        return writes

    def _add(self, change: Change) -> None:
        for items, kinds in ((change.deletes, self.deletes), (change.puts, self.puts)):
            for item in items:
                if isinstance(item, Stored):
                    kinds[RecordRow].append(encode_record(item))
                else:
                    kinds[type(item)].append(item)
        self.gates_left += change.gates_left
        self.events += change.events
        self.signals += change.signals
