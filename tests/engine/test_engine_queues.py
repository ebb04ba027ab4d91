"""Queues and blocked keys as the whole engine keeps them, in virtual time: nothing exceeds, overtakes or idles."""

from datetime import timedelta
from itertools import pairwise

import pytest

from horae.core.decisions.new_runs import requeued
from horae.core.decisions.results import Failure
from horae.core.decisions.retry import RetryPolicy
from horae.core.model import JobError, OnFailure, Overlap, Policy, Run, State
from horae.core.records import QueueSettings
from horae.core.values import replace
from horae.ports.store import ClaimRequest, Claims
from tests import acts
from tests.acts import Resolution
from tests.engine.system import System, failing, taking
from tests.engine.test_engine import one_shot, recurring

FATAL = Failure(error=JobError(type="Boom", message="boom"), fatal=True)
SECOND = timedelta(seconds=1)


async def limit(system: System, concurrency: int | None, queue: str = "default") -> None:
    await acts.set_queue(system.store, QueueSettings(queue=queue, concurrency=concurrency))


def most_at_once(system: System) -> int:
    """Return how many handlers ran at the same time at most."""
    ends = [start.ended_at or system.clock.now() for start in system.starts]
    return max(
        sum(other.at <= start.at < end for other, end in zip(system.starts, ends, strict=True))
        for start in system.starts
    )


async def test_all_nodes_together_keep_to_the_limit_of_a_queue_and_use_it(system: System) -> None:
    await limit(system, 3)
    system.scripts["slow"] = taking(2)
    for _ in range(3):
        await system.add_node(concurrency=10)
    runs = [await one_shot(system, "slow") for _ in range(30)]
    begun = system.clock.now()

    await system.advance(seconds=60)

    assert [(await system.run(run.id)).state for run in runs] == [State.SUCCEEDED] * 30
    assert most_at_once(system) == 3
    last = max(start.at for start in system.starts)
    assert last - begun < timedelta(seconds=20), "places are taken again as soon as they are free"


async def test_a_narrow_queue_does_not_hold_up_a_wide_one(system: System) -> None:
    await limit(system, 1, "narrow")
    system.scripts["slow"] = taking(5)
    await system.add_node(concurrency=10)
    for _ in range(5):
        await one_shot(system, "slow", queue="narrow", priority=9)
    wide = [await one_shot(system, queue="wide", delay=3) for _ in range(5)]
    await system.advance(seconds=4)
    for run in wide:
        [start] = system.starts_of(run.job_id)
        assert start.at == run.due_at


async def test_a_slot_that_overlaps_in_a_full_queue_is_skipped(system: System) -> None:
    await limit(system, 1)
    system.scripts["slow"] = taking(1.5)
    await system.add_node()
    job = await recurring(system, "* * * * * *", "slow", overlap=Overlap.SKIP)
    await system.advance(seconds=20)
    starts = [start.at for start in system.starts_of(job.id)]
    assert all(start == start.replace(microsecond=0) for start in starts), "nothing has waited for a place"
    assert {later - earlier for earlier, later in pairwise(starts)} == {2 * SECOND}


async def test_a_paused_queue_starts_nothing_and_goes_on_at_once_when_it_is_resumed(system: System) -> None:
    await system.add_node()
    await acts.set_queue(system.store, QueueSettings(queue="default", paused=True))
    runs = [await one_shot(system, delay=n) for n in range(3)]
    await system.advance(seconds=100)
    assert system.starts == []

    await limit(system, None)
    resumed = system.clock.now()
    await system.advance(seconds=1)

    assert [start.run.id for start in sorted(system.starts, key=lambda start: start.run.due_at)] == [
        run.id for run in runs
    ]
    at_once = timedelta() if system.queue is None else timedelta(milliseconds=150)  # tickets are offered anew
    assert max(start.at for start in system.starts) <= resumed + at_once


class TestBlockedKeys:
    policy = Policy(retry=RetryPolicy(max_retries=0), on_failure=OnFailure.BLOCK)

    async def given_letter(self, system: System) -> Run:
        """Create a run that has failed, and two others that wait for it."""
        system.scripts["broken"] = failing(1, FATAL)
        await system.add_node()
        await system.add_node()
        for task, delay in (("broken", 1), ("echo", 2), ("echo", 3)):
            await one_shot(system, task, delay=delay, ordering_key="k", policy=self.policy)
        await system.advance(seconds=10)
        assert [start.run.spec.task for start in system.starts] == ["broken"]
        [queue] = await system.store.queues(now=system.clock.now())
        assert queue.depth == 2, "they are late, but neither skipped nor lost"
        return await system.run(system.starts[0].run.id)

    async def test_a_discarded_letter_lets_the_others_go_on_in_order(self, system: System) -> None:
        letter = await self.given_letter(system)
        discarded_at = system.clock.now()
        assert await acts.resolve(system.store, [Resolution(run_id=letter.id)], now=discarded_at) == [True]
        await system.advance(seconds=2)
        starts = system.starts[1:]
        assert [start.run.due_at for start in starts] == sorted(start.run.due_at for start in starts)
        assert len(starts) == 2
        assert starts[0].at == discarded_at

    async def test_a_requeued_letter_goes_first(self, system: System) -> None:
        letter = await self.given_letter(system)
        system.scripts["broken"] = taking(3)
        now = system.clock.now()
        successor = requeued(letter, now=now, new_id=system.new_id)
        assert await acts.resolve(system.store, [Resolution(run_id=letter.id, successor=successor)], now=now) == [True]
        await system.advance(seconds=10)
        starts = system.starts[1:]
        assert [start.run.spec.task for start in starts] == ["broken", "echo", "echo"]
        assert 3 * SECOND <= starts[1].at - starts[0].at < 3.1 * SECOND

    async def test_a_successor_that_fails_blocks_again(self, system: System) -> None:
        letter = await self.given_letter(system)
        now = system.clock.now()
        successor = requeued(letter, now=now, new_id=system.new_id)
        await acts.resolve(system.store, [Resolution(run_id=letter.id, successor=successor)], now=now)
        await system.advance(seconds=30)
        assert [start.run.spec.task for start in system.starts] == ["broken", "broken"]
        assert await system.store.count_dead_letters() == 1


async def test_a_backlog_is_worked_off_without_looking_at_its_beginning_again(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    system.scripts["slow"] = taking(1)
    runs = [await one_shot(system, "slow", delay=number) for number in range(60)]
    await system.advance(seconds=60)
    asked: list[tuple[ClaimRequest, Claims]] = []
    claim = system.store.claim

    async def telling(request: ClaimRequest) -> Claims:
        claims = await claim(request)
        claims = replace(claims, first_at=min((run.wake_at for run in claims.runs), default=None))
        asked.append((request, claims))
        return claims

    monkeypatch.setattr(system.store, "claim", telling)
    await system.add_node(concurrency=2)

    await system.advance(seconds=60)

    assert len(system.starts) == len(runs)
    behind = [(told.first_at, after.floor) for (_, told), (after, _) in pairwise(asked) if told.more]
    floors = [(first, floor) for first, floor in behind if first is not None and floor is not None]
    assert len(floors) > len(behind) / 2, "all of it is looked at now and then only"
    for first, floor in floors:
        assert first - 3 * SECOND < floor < first
