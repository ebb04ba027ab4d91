"""Followers of logs: however many there are, waiting costs little."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest

from horae.core.model import Run, RunId
from horae.jobs.params import Parameters
from horae.queries.jobs import JobQueries
from horae.queries.log_tail import IDLE_SECONDS, POLL_SECONDS, LogTails
from horae.run_logs import PREFIX
from tests import acts
from tests.conformance.builders import NOW, given_running, one_shot
from tests.engine.system import System

FOLLOWERS = 300


class Asked:
    """How often the store and its blobs were asked."""

    def __init__(self, system: System, monkeypatch: pytest.MonkeyPatch) -> None:
        self.runs = self.blobs = 0
        find_runs, under = system.store.runs, system.store.blobs.under

        async def runs(run_ids: Sequence[RunId], *, ended: bool = False) -> object:
            self.runs += 1
            return await find_runs(run_ids, ended=ended)

        async def blobs(prefix: str, *, after: str = "", limit: int = 100) -> list[tuple[str, bytes]]:
            self.blobs += 1
            return await under(prefix, after=after, limit=limit)

        monkeypatch.setattr(system.store, "runs", runs)
        monkeypatch.setattr(system.store.blobs, "under", blobs)


@pytest.fixture
def tails(system: System) -> LogTails:
    store = system.store
    queries = JobQueries(store=store, blobs=store.blobs, parameters=Parameters(store.blobs), clock=system.clock)
    return LogTails(store, queries, store.blobs, system.clock)


async def given_waiting(system: System) -> Run:
    run = one_shot(system.clock.now() + timedelta(hours=1))
    await acts.create(system.store, [run])
    return run


async def test_those_who_wait_for_runs_to_start_ask_together(
    system: System, tails: LogTails, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [await given_waiting(system) for _ in range(3)]
    followers = [tails.run(runs[number % 3].id, after=None) for number in range(FOLLOWERS)]
    asked = Asked(system, monkeypatch)
    assert await asyncio.gather(*(follower.poll() for follower in followers)) == [[]] * FOLLOWERS
    assert asked.runs <= 2
    assert asked.blobs == 0, "a run that has not started has no log"
    assert {follower.seconds for follower in followers} == {IDLE_SECONDS}


async def test_one_who_follows_a_silent_run_asks_more_and_more_seldom(system: System, tails: LogTails) -> None:
    [run] = await given_running(system.store, one_shot(min(NOW, system.clock.now())))
    follower = tails.run(run.id, after=None)
    assert await follower.poll() == []
    assert follower.seconds == POLL_SECONDS
    system.clock.advance(seconds=60)
    assert await follower.poll() == []
    assert follower.seconds == IDLE_SECONDS
    await system.store.blobs.put([(f"{PREFIX}{run.id}/00000001/000001", b"a line\n")])
    assert [chunk.text for chunk in await follower.poll()] == ["a line"]
    assert follower.seconds == POLL_SECONDS
