"""Stores that break one guarantee each; what the engine does on them must be found by the judges."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from horae.core.changes import Change, JobMoved, Refusal
from horae.core.decisions.results import Settled
from horae.core.lifecycle import FINAL
from horae.core.model import Run, RunId
from horae.core.values import replace
from horae.lookup import find_run
from horae.ports.store import ClaimRequest, Claims
from horae.stores.sqlite.store import SqliteStore


class BrokenStore:
    """A real store, except for what a subclass does wrong."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.turn = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def is_turn(self, each: int) -> bool:
        self.turn += 1
        return self.turn % each == 0


def _runs_of_firing(change: Change) -> list[Run]:
    fires = any(isinstance(put, JobMoved) for put in change.puts)
    return [put for put in change.puts if isinstance(put, Run)] if fires else []


class LosesJobs(BrokenStore):
    """Acknowledges jobs without storing them."""

    async def create(self, runs: Sequence[Run]) -> None:
        if len(runs) > 1 or not self.is_turn(3):
            await self.store.create(runs)


class IgnoresFences(BrokenStore):
    """Accepts results of workers that have lost their lease."""

    async def settle(self, results: Sequence[Settled]) -> list[bool]:
        return await self.store.settle([await self._under_any_fence(result) for result in results])

    async def _under_any_fence(self, result: Settled) -> Settled:
        now = await find_run(self.store, result.run.id, owner=None)
        if now is None or now.state in FINAL or now.fence == result.run.fence:
            return result
        run = replace(result.run, fence=now.fence, node=now.node)
        return replace(result, run=run)


class DoublesSlots(BrokenStore):
    """Creates two runs for a slot."""

    async def apply(self, changes: Sequence[Change]) -> list[Refusal | None]:
        return await self.store.apply([self._doubled(change) for change in changes])

    def _doubled(self, change: Change) -> Change:
        runs = _runs_of_firing(change)
        if not runs or not self.is_turn(3):
            return change
        twin = replace(runs[0], id=RunId(f"{self.turn:032x}"))
        return replace(change, puts=(*change.puts, twin))


class LosesSlots(BrokenStore):
    """Advances to the next slot without storing the run of this one."""

    async def apply(self, changes: Sequence[Change]) -> list[Refusal | None]:
        return await self.store.apply([self._without_first(change) for change in changes])

    def _without_first(self, change: Change) -> Change:
        first = _runs_of_firing(change)[:1]
        return replace(change, puts=tuple(put for put in change.puts if put not in first))


class ClaimsEarly(BrokenStore):
    """Hands out runs before they are due."""

    async def claim(self, request: ClaimRequest) -> Claims:
        claims = await self.store.claim(request)
        return replace(claims, runs=[replace(run, wake_at=run.wake_at - timedelta(seconds=0.5)) for run in claims.runs])


class KeepsOrphans(BrokenStore):
    """Never returns the runs of a dead worker."""

    async def orphans(self, *, limit: int) -> list[Run]:
        return []


class LosesAttempts(BrokenStore):
    """Loses the attempts of runs."""

    async def settle(self, results: Sequence[Settled]) -> list[bool]:
        return await self.store.settle([replace(result, attempt=None) for result in results])


BROKEN_STORES: dict[type[BrokenStore], str] = {  # with the invariant that must be reported
    LosesJobs: "I1",
    DoublesSlots: "I5",
    LosesSlots: "I5",
    ClaimsEarly: "I2",
    KeepsOrphans: "I1",
    LosesAttempts: "I8",
}
