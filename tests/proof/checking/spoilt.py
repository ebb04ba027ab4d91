"""Stores that break one promise each: what the engine makes of them has to be found out by what handlers noted."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from horae.core.firing import Firing
from horae.core.lifecycle import FINAL
from horae.core.model import JobId, Run, RunId
from horae.core.records import Receipt
from horae.core.results import Settled
from horae.core.values import replace
from horae.ports.store import ClaimRequest, Claims, Receipted
from horae.stores.sqlite.store import SqliteStore


class Spoilt:
    """A real store, but for what a subclass does wrong."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.turn = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def is_turn(self, each: int) -> bool:
        self.turn += 1
        return self.turn % each == 0


class Forgetful(Spoilt):
    """Acknowledges jobs that it does not keep."""

    async def create(self, items: Sequence[Run | Firing | Receipted]) -> list[JobId | Receipt]:
        if len(items) == 1 and isinstance(items[0], Run) and self.is_turn(3):
            return [items[0].job_id]
        return await self.store.create(items)


class Fenceless(Spoilt):
    """Takes the result of a worker that has lost its lease."""

    async def settle(self, results: Sequence[Settled]) -> list[bool]:
        return await self.store.settle([await self._under_any_fence(result) for result in results])

    async def _under_any_fence(self, result: Settled) -> Settled:
        now = await self.store.run(result.run.id, owner=None)
        if now is None or now.state in FINAL or now.fence == result.run.fence:
            return result
        run = replace(result.run, fence=now.fence, node=now.node)
        return replace(result, run=run)


class Doubling(Spoilt):
    """Makes two runs of a slot."""

    async def fire(self, firings: Sequence[Firing]) -> list[bool]:
        return await self.store.fire([self._doubled(firing) for firing in firings])

    def _doubled(self, firing: Firing) -> Firing:
        if not firing.runs or not self.is_turn(3):
            return firing
        twin = replace(firing.runs[0], id=RunId(f"{self.turn:032x}"))
        return replace(firing, runs=(*firing.runs, twin))


class Overleaping(Spoilt):
    """Goes on to the next slot without having kept this one."""

    async def fire(self, firings: Sequence[Firing]) -> list[bool]:
        return await self.store.fire([replace(firing, runs=firing.runs[1:]) for firing in firings])


class Hasty(Spoilt):
    """Hands runs out as if they were due earlier."""

    async def claim(self, request: ClaimRequest) -> Claims:
        claims = await self.store.claim(request)
        return replace(claims, runs=[replace(run, wake_at=run.wake_at - timedelta(seconds=0.5)) for run in claims.runs])


class Abandoning(Spoilt):
    """Never gives back what a dead worker held."""

    async def orphans(self, *, limit: int) -> list[Run]:
        return []


class Unlisted(Spoilt):
    """Loses the attempts of a run that is given up."""

    async def settle(self, results: Sequence[Settled]) -> list[bool]:
        return await self.store.settle([replace(result, attempt=None) for result in results])


SPOILT: dict[type[Spoilt], str] = {  # with the invariant that has to be seen to break
    Forgetful: "I1",
    Doubling: "I5",
    Overleaping: "I5",
    Hasty: "I2",
    Abandoning: "I1",
    Unlisted: "I8",
}
