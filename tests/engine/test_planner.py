"""The pace of a planner that finds more than it plans in one round."""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from horae.core.changes import Change, Refusal
from horae.core.ids import Ids
from horae.core.model import SHARDS
from horae.engine.duties.planner import BATCH, REST, Planner
from horae.metrics import Metrics
from horae.ports.store import Store
from horae.stores.sqlite.executor import InlineExecutor
from horae.stores.sqlite.store import SqliteStore
from tests import acts
from tests.clocks import ManualClock
from tests.conformance.builders import NOW, firing, recurring

HORIZON = timedelta(seconds=30)
TOOK = timedelta(seconds=0.1)


class Slow:
    """A store that is slow to write firings."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self._store = store
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def apply(self, changes: Sequence[Change]) -> list[Refusal | None]:
        refusals = await self._store.apply(changes)
        self._clock.advance(seconds=TOOK.total_seconds())
        return refusals


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = SqliteStore(tmp_path / "horae.db", executor=InlineExecutor(durable=False))
    await store.open()
    yield store
    await store.close()


async def again_at(store: Store, *, jobs: int, next_fire_at: datetime) -> datetime | None:
    """Return when a planner plans again after a round with many jobs."""
    await acts.create(store, [firing(recurring(next_fire_at=next_fire_at)) for _ in range(jobs)])
    clock = ManualClock(NOW)
    slow = cast(Store, Slow(store, clock))
    planner = Planner(slow, clock, Metrics(), horizon=HORIZON, shards=lambda: range(SHARDS), new_id=Ids())
    return await planner.tick()


async def test_it_rests_between_looks_while_there_is_time(store: Store) -> None:
    assert await again_at(store, jobs=BATCH, next_fire_at=NOW + HORIZON * 2 / 3) == NOW + TOOK + REST * TOOK


async def test_it_goes_on_at_once_when_slots_come_soon(store: Store) -> None:
    assert await again_at(store, jobs=BATCH, next_fire_at=NOW + HORIZON / 3) == NOW


async def test_without_more_to_do_it_looks_when_the_next_job_wants_it(store: Store) -> None:
    assert await again_at(store, jobs=BATCH - 1, next_fire_at=NOW + HORIZON * 2 / 3) is None
