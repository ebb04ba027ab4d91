"""When a store was told that runs have ended, by its events, which it keeps for a day."""

from collections.abc import Iterable

from horae.core.events import end_of_run
from horae.core.lifecycle import FINAL
from horae.core.model import RunId
from horae.ports.reader import Reader
from horae.proof.checking.findings import Told

PAGE = 1000  # batches of events that are read together
ENDS = frozenset(map(end_of_run, FINAL))


async def told_ends(store: Reader, run_ids: Iterable[RunId], *, owner: str | None) -> dict[RunId, Told]:
    """What the store told of the ends of runs of an owner; those that it does not tell of any more are left out."""
    wanted, told = set(run_ids), dict[RunId, Told]()
    position: str | None = None
    while wanted:
        batches = await store.events(after=position, owner=owner, limit=PAGE)
        for batch in batches:
            if batch.kind in ENDS:
                ended = wanted.intersection(map(RunId, batch.subjects))
                told |= dict.fromkeys(ended, Told(kind=batch.kind, at=batch.at))
        wanted -= told.keys()
        if len(batches) < PAGE:
            break
        position = batches[-1].position
    return told
