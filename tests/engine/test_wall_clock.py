"""A wall clock that is wrong changes nothing, and is reported."""

from datetime import timedelta
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from horae.core.ids import Ids
from horae.core.model import Node, NodeId
from horae.engine.cluster.heartbeat import Heartbeat
from horae.engine.cluster.lease import Lease, Timing
from horae.engine.cluster.wall_clock import WallClockMonitor
from horae.metrics import Metrics
from horae.ports.clock import StoreClock
from horae.stores.sqlite.executor import InlineExecutor
from horae.stores.sqlite.store import SqliteStore
from tests.clocks import ManualClock
from tests.engine.system import START

MILLISECOND = timedelta(milliseconds=1)


def test_a_wrong_wall_clock_is_told_once_and_again_when_it_changes() -> None:
    clock, error = ManualClock(START), 0.0
    monitor = WallClockMonitor(clock, wall=lambda: clock.now().timestamp() + error)
    with capture_logs() as lines:
        for error in (0.0, 0.5, 3600.0, 3600.2, 3599.5, -3600.0, -3600.1, 0.2, 0.0):
            assert abs(monitor.check() - timedelta(seconds=error)) < timedelta(milliseconds=1)
            clock.advance(seconds=3)
    assert [(line["event"], line.get("ahead_seconds")) for line in lines] == [
        ("wall_clock_wrong", 3600.0),
        ("wall_clock_wrong", -3600.0),
        ("wall_clock_corrected", None),
    ]


@pytest.mark.parametrize("hours", [1, -1])
async def test_a_node_goes_by_the_store_and_tells_how_wrong_its_machine_is(tmp_path: Path, hours: int) -> None:
    """Before its start, and while it runs."""
    truth, error = ManualClock(START), timedelta(hours=hours)
    store = SqliteStore(tmp_path / "horae.db", executor=InlineExecutor(durable=False), wall=truth.now)
    await store.open()
    clock = StoreClock(truth.elapsed)
    monitor = WallClockMonitor(clock, wall=lambda: (truth.now() + error).timestamp())
    node = Node(id=NodeId("0" * 32), name="n", roles=("worker",), version="1", started_at=START, beat_at=START)
    heartbeat = Heartbeat(
        store,
        clock,
        Lease(clock, Timing()),
        node,
        Timing(),
        Metrics(),
        new_id=Ids(),
        running=lambda: 0,
        wall_ahead=monitor.check,
    )

    async def stands() -> None:
        [seen] = await store.nodes()
        assert abs(seen.wall_ahead - error) < MILLISECOND
        assert abs(seen.beat_at - truth.now()) < MILLISECOND
        assert abs(clock.now() - truth.now()) < MILLISECOND

    with capture_logs() as lines:
        await heartbeat.join()
        await stands()
        for changed in (timedelta(), timedelta(hours=-hours), timedelta(hours=hours)):
            error = changed
            truth.advance(seconds=3)
            await heartbeat.tick()
            await stands()
    await store.close()
    assert [line.get("ahead_seconds") for line in lines] == [hours * 3600.0, None, -hours * 3600.0, hours * 3600.0]
