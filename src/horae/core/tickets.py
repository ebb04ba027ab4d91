"""Tickets: what a queue holds of a run that wakes soon. A ticket is a hint, and the store knows whether it is true."""

from collections.abc import Iterable
from datetime import datetime
from typing import TypeGuard

from horae.core.changes import Change, OneShotRevised
from horae.core.decisions.results import Settled
from horae.core.lifecycle import FINAL, WAITING
from horae.core.model import Run, RunId
from horae.core.values import Value


class Ticket(Value, frozen=True, kw_only=True):
    """A run that wakes soon, with what a queue needs to put it in order."""

    run_id: RunId
    task: str
    queue: str
    priority: int
    owner: str
    wake_at: datetime

    @classmethod
    def of(cls, run: Run) -> "Ticket":
        spec = run.spec
        return cls(
            run_id=run.id,
            task=spec.task,
            queue=spec.queue,
            priority=spec.priority,
            owner=run.owner,
            wake_at=run.wake_at,
        )


class Claimable(Value, frozen=True, kw_only=True):
    """What writes have made claimable: runs, and whatever comes next in gates that were left."""

    tickets: list[Ticket]
    gates: list[str]


def claimable_by_changes(changes: Iterable[Change]) -> Claimable:
    """Return what changes have made claimable that were written."""
    runs: list[Run] = []
    gates: list[str] = []
    for change in changes:
        runs += [put.run if isinstance(put, OneShotRevised) else put for put in change.puts if _is_run(put)]
        gates += [left.gate for left in change.gates_left]
    return Claimable(tickets=tickets_of(runs), gates=gates)


def claimable_by_results(results: Iterable[Settled]) -> Claimable:
    """Return what results have made claimable that were written: what was returned, and what it held up."""
    tickets: list[Ticket] = []
    gates: list[str] = []
    for result in results:
        run = result.run
        if run.state in WAITING:
            tickets.append(Ticket.of(run))
        elif run.gate is not None and run.state in FINAL:
            gates.append(run.gate)
    return Claimable(tickets=tickets, gates=gates)


def tickets_of(runs: Iterable[Run]) -> list[Ticket]:
    """Return the tickets of those runs that can be claimed at their time."""
    return [Ticket.of(run) for run in runs if run.state in WAITING and not run.paused]


def _is_run(put: object) -> TypeGuard[Run | OneShotRevised]:
    return isinstance(put, Run | OneShotRevised)
