"""Calls that the store executed, but whose answer was lost or late: no run is stuck, lost, doubled or out of order."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, cast

import pytest

from horae.core.changes import Change, Refusal
from horae.core.decisions.results import Failure, Settled
from horae.core.errors import Unavailable
from horae.core.model import JobError, Outcome, Run, State
from horae.core.schedule.evaluate import next_after
from horae.core.values import replace
from horae.engine.execution.outcome import MAX_RESULT, Success
from horae.engine.worker.settler import MAX_UNSETTLED_SIZE
from horae.ports.store import ClaimRequest, Claims, Store
from tests import acts
from tests.conformance.builders import attempts_of
from tests.engine.system import System, failing, taking
from tests.engine.test_engine import a_one_shot, one_shot, one_shots
from tests.engine.test_jobs import create, jobs_of


class Forgetful:
    """A store that loses or delays an answer."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._store = system.store
        self.loses: set[str] = set()
        self.misses_freeing = False  # whether the next claim that frees a gate does not even arrive
        self.slow: timedelta | None = None
        self.settles = True  # whether results are taken, though without what they bring

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def claim(self, request: ClaimRequest) -> Claims:
        if request.free_gates and self.misses_freeing:
            self.misses_freeing = False
            raise Unavailable("the store was away")
        claims = await self._store.claim(request)
        if claims.runs and self.slow is not None:
            delay, self.slow = self.slow, None
            await one_shot(self._system, ordering_key="k")  # meanwhile, before what was claimed ahead
            self._system.clock.advance(seconds=delay.total_seconds())
        if claims.runs:
            self._lose("claim")
        return claims

    async def apply(self, changes: Sequence[Change]) -> list[Refusal | None]:
        refusals = await self._store.apply(changes)
        for change in changes:
            self._lose(acts.act_of(change))
        return refusals

    async def settle(self, results: Sequence[Settled]) -> list[bool]:
        if not self.settles:
            raise Unavailable("the store was away")
        return await self._store.settle([Settled(run=replace(result.run, result=None)) for result in results])

    def _lose(self, verb: str) -> None:
        if verb in self.loses:
            self.loses.remove(verb)
            raise Unavailable("the answer was lost")


@pytest.fixture
def forgetful(system: System) -> Forgetful:
    forgetful = Forgetful(system)
    system.store = cast(Store, forgetful)
    return forgetful


async def test_nothing_more_is_claimed_while_results_wait_that_bring_much(system: System, forgetful: Forgetful) -> None:
    much = Success(result="x" * MAX_RESULT)
    system.scripts["large"] = lambda run: (0.0, much)
    node = await system.add_node()
    forgetful.settles = False
    runs: list[Run] = []
    for _ in range(30):
        runs += await one_shots(system, 10, "large")
        with suppress(Unavailable):
            await system.settle_all()
        system.clock.advance(seconds=0.1)
    bound = MAX_UNSETTLED_SIZE // MAX_RESULT
    assert bound <= node.settler.unsettled <= bound + 20
    forgetful.settles = True
    await system.advance(seconds=10)
    assert [(await system.run(run.id)).state for run in runs] == [State.SUCCEEDED] * 300
    assert len(system.starts) == 300


async def test_what_was_claimed_without_an_answer_goes_back_and_runs(system: System, forgetful: Forgetful) -> None:
    await system.add_node()
    runs = await one_shots(system, 3)
    forgetful.loses = {"claim"}
    with pytest.raises(Unavailable):
        await system.advance(seconds=1)
    await system.advance(seconds=6)
    assert [(await system.run(run.id)).state for run in runs] == [State.SUCCEEDED] * 3
    assert len(system.starts) == 3


async def test_what_was_claimed_without_an_answer_goes_back_before_what_is_behind_it(
    system: System, forgetful: Forgetful
) -> None:
    await system.add_node()
    runs = await one_shots(system, 3, ordering_key="k")
    forgetful.loses = {"claim"}
    with pytest.raises(Unavailable):
        await system.advance(seconds=1)
    await system.advance(seconds=10)
    assert [start.run.id for start in system.starts] == [run.id for run in runs]


async def test_attempts_under_way_are_left_alone_when_a_later_claim_gets_no_answer(
    system: System, forgetful: Forgetful
) -> None:
    system.scripts["slow"] = taking(8)
    await system.add_node()
    first = await one_shot(system, "slow")
    await system.advance(seconds=1)
    await one_shot(system)
    forgetful.loses = {"claim"}
    with pytest.raises(Unavailable):
        await system.advance(seconds=1)
    await system.advance(seconds=30)
    assert [start.run.spec.task for start in system.starts] == ["slow", "echo"]
    assert (await system.run(first.id)).attempt == 1


async def test_a_run_that_was_taken_back_without_an_answer_does_not_start(system: System, forgetful: Forgetful) -> None:
    node = await system.add_node()
    job = await create(system, "every 10s")
    due_at = next_after(job.schedule, system.clock.now())
    assert due_at is not None
    await system.advance_to(due_at - timedelta(seconds=0.5))
    assert node.worker.holding == 1
    forgetful.loses = {"retract"}
    await jobs_of(system).pause(job.id, owner="local")
    with pytest.raises(Unavailable):
        await system.settle_all()
    await system.advance(seconds=30)
    assert system.starts == []


async def test_what_was_claimed_ahead_by_a_slow_call_waits_for_what_came_before_it_meanwhile(
    system: System, forgetful: Forgetful
) -> None:
    await system.add_node()
    ahead = await one_shot(system, delay=0.8, ordering_key="k")
    forgetful.slow = timedelta(seconds=3)
    await system.advance(seconds=10)
    assert len(system.starts) == 2
    assert system.starts[-1].run.id == ahead.id


async def test_what_a_node_gave_up_when_its_lease_ran_out_runs_again_although_nobody_buried_it(system: System) -> None:
    system.scripts["slow"] = taking(4)
    node = await system.add_node()
    running, held = await one_shot(system, "slow"), await one_shot(system, delay=1.5)
    await system.advance(seconds=1)
    assert (node.worker.running, node.worker.holding) == (1, 1)
    node.freeze()  # as when the store answers no node: no other node can declare it dead
    await system.advance(seconds=20)
    node.thaw()
    await system.advance(seconds=30)
    assert [(await system.run(run.id)).state for run in (running, held)] == [State.SUCCEEDED] * 2


async def test_an_attempt_that_was_given_up_before_the_store_knew_of_it_is_recorded(system: System) -> None:
    system.scripts["slow"] = taking(25)
    node = await system.add_node()
    run = await one_shot(system, "slow")
    await system.settle_all()
    assert (node.worker.running, (await system.run(run.id)).state) == (1, State.CLAIMED)
    node.freeze()  # as when the store answers no node: no other node can declare it dead
    await system.advance(seconds=20)
    node.thaw()
    await system.advance(seconds=60)
    [first, _] = system.starts
    [attempt] = await attempts_of(system.store, run.id)
    assert (attempt.number, attempt.fence, attempt.outcome) == (1, first.run.fence, Outcome.RELEASED)
    assert attempt.started_at == first.run.started_at


async def test_a_gate_that_could_not_be_freed_is_freed_later(system: System, forgetful: Forgetful) -> None:
    for queue in ("a", "b"):
        await system.add_node(queues=(queue,))
    await one_shot(system, queue="a", ordering_key="k")
    behind = await one_shot(system, delay=5, queue="b", ordering_key="k")
    forgetful.misses_freeing = True
    with pytest.raises(Unavailable):
        await system.advance(seconds=1)
    await system.advance(seconds=15)
    assert (await system.run(behind.id)).state is State.SUCCEEDED, "although the first node will never claim it"


@pytest.mark.parametrize("lanes", [1, 3])
async def test_gates_that_a_silent_node_could_not_free_do_not_hide_what_is_behind_their_runs(
    store_system: System, lanes: int
) -> None:
    system = store_system
    silent = await system.add_node(concurrency=2000)
    gates = [f"k{n}" for n in range(1100)]

    def one_each() -> list[Run]:
        return [a_one_shot(system, ordering_key=gate, queue=f"q{n % lanes}") for n, gate in enumerate(gates)]

    await acts.create(system.store, one_each())
    await system.settle_all()
    silent.freeze()
    assert len(system.starts) == len(gates)
    await acts.create(system.store, one_each())
    await system.advance(seconds=0.01)
    free = [await one_shot(system, queue=f"q{n}") for n in range(lanes)]
    await system.add_node(concurrency=2000)
    await system.advance(seconds=0.2)
    assert {start.run.id for start in system.starts[len(gates) :]} == {run.id for run in free}


async def test_what_is_behind_a_retry_waits_although_the_lease_ran_out_before_the_store_knew_of_it(
    system: System,
) -> None:
    later = Failure(error=JobError(type="Boom", message="boom"), retry_after=timedelta(minutes=1))
    system.scripts["flaky"] = failing(1, later)
    node = await system.add_node()
    retried, behind = await one_shot(system, "flaky", ordering_key="k"), await one_shot(system, ordering_key="k")
    await one_shot(system, delay=0.9)  # held, so that there is something to give up
    await system.settle_all()
    assert (node.settler.unsettled, node.worker.holding) == (1, 1)
    node.freeze()  # as when the store answers no node: no other node can declare it dead
    await system.advance(seconds=20)
    node.thaw()
    await system.advance(minutes=2)
    in_order = [start.run.id for start in system.starts if start.run.gate is not None]
    assert in_order == [retried.id, retried.id, behind.id]
