"""Reads from the events of a store, which are kept for a day, when it received the results of runs."""

from collections.abc import Iterable

from horae.core.events import end_of_run
from horae.core.lifecycle import FINAL
from horae.core.model import RunId
from horae.ports.events import EventLog
from horae.proof.checking.findings import EndEvent

PAGE = 1000  # batches of events per read
ENDS = frozenset(map(end_of_run, FINAL))


async def end_events(events: EventLog, run_ids: Iterable[RunId], *, owner: str | None) -> dict[RunId, EndEvent]:
    """Return the end events of some runs of an owner; runs without an event any more are left out."""
    wanted, found = set(run_ids), dict[RunId, EndEvent]()
    position: str | None = None
    while wanted:
        batches = await events.read(after=position, owner=owner, limit=PAGE)
        for batch in batches:
            if batch.kind in ENDS:
                ended = wanted.intersection(map(RunId, batch.subjects))
                found |= dict.fromkeys(ended, EndEvent(kind=batch.kind, at=batch.at))
        wanted -= found.keys()
        if len(batches) < PAGE:
            break
        position = batches[-1].position
    return found
