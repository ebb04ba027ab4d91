"""Decides about due runs whose gate another node holds: they are skipped, parked or left undecided."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from horae.core.changes import Change
from horae.core.decisions.release import Verdict, overlap_is_open, release
from horae.core.decisions.results import Settled, skip
from horae.core.effects import park
from horae.core.model import Reason
from horae.metrics import Metrics
from horae.ports.store import Contested, Store

START_KNOWN = timedelta(seconds=1)  # starts are written lazily, but not later than this


async def decide_contested(contested: Sequence[Contested], now: datetime, store: Store, metrics: Metrics) -> bool:
    """Skip or park runs behind another node's run; return True when some are undecided and must be seen again soon."""
    ended: list[Settled] = []
    parked: list[Change] = []
    undecided = False
    for item in contested:
        match release(item.run, item.rivals, now):
            case Verdict.START:
                undecided = True  # its gate is just being freed
            case Verdict.WAIT if now - item.run.due_at < START_KNOWN and overlap_is_open(item.run, item.rivals):
                undecided = True
            case Verdict.WAIT:
                parked.append(park(item.run, item.rivals[0]))
            case Verdict.OVERLAP | Verdict.TOO_LATE as verdict:
                ended.append(skip(item.run, Reason(verdict), now))
    if ended:
        await store.settle(ended)
        metrics.ended(settled.run for settled in ended)
    if parked:
        await store.apply(parked)
    return undecided
