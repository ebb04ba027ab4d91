"""A new time zone database, installed while jobs wait for their slots: each local time is run once, when it is."""

import io
import struct
from collections.abc import Iterator
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from horae.core.model import SHARDS, Job
from horae.core.schedule import evaluate
from horae.core.schedule.zones import zone_named
from horae.engine.duties.planner import Planner
from horae.metrics import Metrics
from horae.ports.reader import RunFilter
from tests.engine.system import START, System
from tests.engine.test_engine import recurring

NINE = {"type": "cron", "expression": "0 9 * * *", "timezone": "Europe/Berlin"}
CHANGE = START + timedelta(days=1, hours=10)  # the evening from which on the new database has another offset
HOUR = timedelta(hours=1)


def zone(offset: timedelta, since: datetime = CHANGE) -> ZoneInfo:
    """Berlin as it is in winter, until it gets another offset for good (RFC 8536)."""
    seconds = int(offset / timedelta(seconds=1))
    counts = (0, 0, 0, 1, 2, 4)  # of indicators, leap seconds, transitions, types and characters
    kinds = struct.pack(">lBBlBB", 3600, 0, 0, seconds, 0, 0) + b"XXX\0"
    body = struct.pack(">qB", int(since.timestamp()), 1) + kinds
    empty = b"TZif2" + bytes(15) + struct.pack(">6l", 0, 0, 0, 0, 1, 4) + struct.pack(">lBB", 0, 0, 0) + b"XXX\0"
    footer = f"\nXXX{-seconds // 3600}\n".encode()
    data = empty + b"TZif2" + bytes(15) + struct.pack(">6l", *counts) + body + footer
    return ZoneInfo.from_file(io.BytesIO(data), key="Europe/Berlin")


class Database:
    """The time zones that every node knows, which are replaced as a package of them is."""

    def __init__(self) -> None:
        self._berlin = zone_named("Europe/Berlin")

    def zone_named(self, name: str) -> ZoneInfo:
        return self._berlin if name == "Europe/Berlin" else zone_named(name)

    def replace(self, berlin: ZoneInfo) -> None:
        self._berlin = berlin


@pytest.fixture
def database() -> Iterator[Database]:
    with pytest.MonkeyPatch.context() as patch:
        database = Database()
        patch.setattr(evaluate, "zone_named", database.zone_named)
        yield database


def eight(day: int) -> datetime:
    """When it is nine in Berlin, so many days after the beginning."""
    return START.replace(hour=8) + timedelta(days=day)


class Planning:
    """A planner in virtual time that plans whenever the store has something to plan."""

    def __init__(self, system: System) -> None:
        self.system = system
        self._clock = system.clock
        self._planner = Planner(
            system.store,
            system.clock,
            Metrics(),
            horizon=timedelta(seconds=30),
            shards=lambda: range(SHARDS),
            new_id=system.new_id,
        )

    async def until(self, end: datetime) -> None:
        while True:
            await self._planner.tick()
            again = await self._planner.tick()  # after what the first has written
            if again is None or again > end:
                break
            self._clock.move_to(max(again, self._clock.now()))
        self._clock.move_to(end)

    async def slots(self, job: Job) -> list[datetime]:
        """Return the slots that have runs, each created before it was due."""
        found = await self.system.store.list_runs(RunFilter(job_id=job.id), cursor=None, limit=1000)
        assert all(run.created_at < run.due_at for run in found.items)
        return sorted(run.slot for run in found.items if run.slot is not None)


@pytest.fixture
def planning(database: Database, system: System) -> Planning:
    return Planning(system)


async def test_a_slot_that_is_brought_forward_is_run_at_its_new_time(database: Database, planning: Planning) -> None:
    job = await recurring(planning.system, NINE)
    await planning.until(eight(1) + HOUR)
    database.replace(zone(2 * HOUR))
    await planning.until(eight(4))
    assert await planning.slots(job) == [eight(1), eight(2) - HOUR, eight(3) - HOUR, eight(4) - HOUR]


async def test_a_slot_that_is_put_off_is_run_at_its_new_time(database: Database, planning: Planning) -> None:
    job = await recurring(planning.system, NINE)
    await planning.until(eight(1) + HOUR)
    database.replace(zone(timedelta()))
    await planning.until(eight(3) + 2 * HOUR)
    assert await planning.slots(job) == [eight(1), eight(2) + HOUR, eight(3) + HOUR]


async def test_a_database_that_comes_a_few_hours_before_the_slot_comes_in_time(
    database: Database, planning: Planning
) -> None:
    job = await recurring(planning.system, NINE)
    await planning.until(eight(2) - 6 * HOUR)
    database.replace(zone(2 * HOUR))
    await planning.until(eight(2))
    assert await planning.slots(job) == [eight(1), eight(2) - HOUR]


@pytest.mark.parametrize("expression", ["0 9 * * *", "30 2 * * *", "0 */6 * * *", "0 1 * * wed"])
async def test_what_is_looked_at_ahead_of_its_time_is_planned_as_it_was(planning: Planning, expression: str) -> None:
    system = planning.system
    for dst in ({}, {"dst": {"gap": "skip", "fold": "both"}}):
        job = await recurring(system, {"type": "cron", "expression": expression, "timezone": "America/New_York", **dst})
        began = system.clock.now()
        await planning.until(began + timedelta(days=5))
        due = [slot.at for slot in evaluate.slots_between(job.schedule, began, system.clock.now())]
        assert await planning.slots(job) == due
        assert due
