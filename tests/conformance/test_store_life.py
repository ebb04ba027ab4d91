"""The life of a run: starts, results, fences, attempts and stop requests."""

import pytest

from horae.core.decisions.results import Settled, cancel, give_back, lost, skip, start, succeed
from horae.core.lifecycle import FINAL, HELD, MOVES, WAITING, Move
from horae.core.model import Outcome, Reason, Run, RunId, State
from horae.core.values import replace
from horae.lookup import find_run
from horae.ports.reader import RunFilter
from horae.ports.store import Store
from tests import acts
from tests.conformance.builders import (
    DEAD_AFTER,
    MINUTE,
    NOW,
    OOPS,
    SECOND,
    attempts_of,
    buried,
    claimed,
    failed,
    given_claimed,
    given_ended,
    given_node,
    given_running,
    ids,
    new_id,
    one_shot,
    retried,
    state_of,
)
from tests.conformance.conftest import Connect

LATER = NOW + MINUTE


async def given_run_in(store: Store, state: State) -> Run:
    """A run that the store has in a state."""
    match state:
        case State.SCHEDULED:
            run = one_shot()
            await acts.create(store, [run])
            return run
        case State.CLAIMED:
            return (await given_claimed(store, one_shot()))[0]
        case State.RUNNING:
            return (await given_running(store, one_shot()))[0]
        case State.RETRYING:
            [run] = await given_running(store, one_shot())
            settled = retried(run)
            assert await store.settle([settled]) == [True]
            return settled.run
    raise AssertionError(f"{state} is not alive")


def result_of(run: Run, move: Move) -> Settled:
    """What the core makes of a move."""
    match move:
        case Move.SUCCEED:
            return succeed(run, '"done"', LATER)
        case Move.RETRY:
            return retried(run, LATER)
        case Move.GIVE_UP:
            return failed(run, LATER)
        case Move.GIVE_BACK:
            return give_back(run, LATER)
        case Move.POISON:
            return buried(run, LATER)
        case Move.CANCEL:
            return cancel(run, LATER)
        case Move.SKIP:
            return skip(run, Reason.OVERLAP, LATER)
    raise AssertionError(f"{move} has no result")


def test_the_state_machine_has_the_steps_that_this_suite_walks() -> None:
    assert {state for state, _ in MOVES} == WAITING | HELD
    assert set(MOVES.values()) == set(State)


@pytest.mark.parametrize(("state", "move"), MOVES, ids=str)
async def test_every_step_of_a_life_can_be_written(store: Store, state: State, move: Move) -> None:
    run = await given_run_in(store, state)

    if move is Move.CLAIM:
        [after] = await claimed(store, await given_node(store), until=LATER)
    elif move is Move.START:
        after = start(run, LATER)
        assert await store.start([after]) == [True]
    else:
        settled = result_of(run, move)
        assert await store.settle([settled]) == [True]
        after = settled.run
        assert (
            await attempts_of(store, run.id) == ([settled.attempt] if settled.attempt else [])
            or state is State.RETRYING
        )

    assert after.state is MOVES[state, move]
    stored = await find_run(store, run.id, owner=None)
    assert stored is not None
    assert replace(stored, node=None) == replace(after, node=None)
    assert (stored.node is None) == (after.node is None)
    assert (stored.finished_at is not None) == (stored.state in FINAL)


@pytest.mark.parametrize("state", [State.SCHEDULED, State.RETRYING])
async def test_nobody_settles_or_starts_what_waits(store: Store, state: State) -> None:
    run = await given_run_in(store, state)
    held = replace(run, state=State.RUNNING)
    assert await store.settle([succeed(held, None, LATER)]) == [False]
    assert await store.start([held]) == [False]
    assert await state_of(store, run) is state


@pytest.mark.parametrize("state", [State.CLAIMED, State.RUNNING])
async def test_what_a_node_holds_does_not_end_as_if_it_waited(store: Store, state: State) -> None:
    run = await given_run_in(store, state)
    waiting = replace(run, state=State.SCHEDULED, node=None)
    assert await store.settle([cancel(waiting, LATER)]) == [False]
    assert await state_of(store, run) is state


async def test_a_result_with_an_old_fence_is_void(store: Store, connect: Connect) -> None:
    [slow] = await given_running(store, one_shot())
    assert len(await acts.bury(store, now=LATER, dead_after=DEAD_AFTER)) == 1
    await store.settle([lost(run, LATER) for run in await store.orphans(limit=10)])
    [quick] = await claimed(store, await given_node(store), until=LATER)
    other = await connect()

    assert await other.start([start(replace(slow, state=State.CLAIMED), LATER)]) == [False]
    assert await other.settle([succeed(slow, '"slow"', LATER)]) == [False]
    assert await other.settle([retried(slow, LATER)]) == [False]
    assert await store.still_held([slow, quick]) == [False, True]
    assert await store.settle([succeed(start(quick, LATER), '"quick"', LATER)]) == [True]
    assert await other.settle([succeed(slow, '"slow"', LATER), retried(slow, LATER)]) == [False, False]

    ended = await find_run(store, slow.id, owner=None)
    assert ended is not None
    assert (ended.result, ended.fence) == ('"quick"', 2)


async def test_of_two_ends_the_first_wins(store: Store) -> None:
    [run] = await given_running(store, one_shot())
    assert await store.settle([succeed(run, '"x"', NOW)]) == [True]
    assert await store.settle([cancel(run, LATER), failed(run, LATER), give_back(run, LATER)]) == [False] * 3
    assert await state_of(store, run) is State.SUCCEEDED
    assert await attempts_of(store, run.id) == []


async def test_a_result_that_is_sent_again_holds_and_is_written_once(store: Store) -> None:
    one, two, three = await given_running(store, one_shot(), one_shot(), one_shot())
    results = [succeed(one, '"x"', NOW), retried(two), failed(three)]
    assert await store.settle(results) == [True] * 3

    assert await store.settle(results) == [True] * 3

    assert [len(await attempts_of(store, run.id)) for run in (one, two, three)] == [0, 1, 1]
    [again] = await claimed(store, await given_node(store), until=LATER)
    assert await store.settle(results) == [True, False, True]
    assert again.fence == 2


async def test_a_batch_answers_each_item(store: Store) -> None:
    runs = await given_running(store, *(one_shot() for _ in range(4)))
    stale = replace(runs[1], fence=7)
    unknown = replace(runs[2], id=RunId(new_id()))
    results = [succeed(run, None, NOW) for run in (runs[0], stale, unknown, runs[3])]
    assert await store.settle(results) == [True, False, False, True]
    assert await store.start([runs[1], unknown, runs[2], runs[0]]) == [True, False, True, False]
    assert await store.start([stale, runs[2]]) == [False, True]


async def test_a_result_may_come_before_its_start_was_written(store: Store) -> None:
    """Starts are written lazily: the result brings everything that the store has not heard yet."""
    run, failing = await given_claimed(store, one_shot(), one_shot())
    settled = succeed(start(run, NOW + SECOND), '"x"', LATER)
    again = retried(start(failing, NOW + SECOND), LATER)

    assert await store.settle([settled, again]) == [True, True]

    assert await find_run(store, run.id, owner=None) == settled.run
    stored = await find_run(store, failing.id, owner=None)
    assert stored == again.run
    assert (again.run.attempt, again.run.first_started_at) == (1, NOW + SECOND)


async def test_a_start_after_the_result_is_too_late(store: Store) -> None:
    run, failing = await given_claimed(store, one_shot(), one_shot())
    started, retrying = start(run, NOW), start(failing, NOW)
    await store.settle([succeed(started, None, NOW), retried(retrying)])
    assert await store.start([started, retrying]) == [False, False]
    assert await state_of(store, failing) is State.RETRYING


async def test_progress_is_written_while_the_fence_holds(store: Store) -> None:
    [run] = await given_running(store, one_shot())
    assert await store.start([replace(run, progress=0.25)]) == [True]
    stored = await find_run(store, run.id, owner=None)
    assert stored is not None
    assert (stored.progress, stored.state, stored.attempt) == (0.25, State.RUNNING, 1)


async def test_attempts_are_kept_in_order_and_keep_their_numbers(store: Store) -> None:
    """A try that is given back or lost leaves a record, and its number is used again."""
    run = one_shot()
    await acts.create(store, [run])
    node = await given_node(store)
    at = NOW
    for settle in (retried, lambda r, t: give_back(r, t), lambda r, t: lost(r, t), failed):
        at += MINUTE
        [held] = await claimed(store, node, now=at, until=at)
        assert await store.settle([settle(start(held, at), at)]) == [True]
        at += MINUTE

    attempts = await attempts_of(store, run.id)

    assert [attempt.number for attempt in attempts] == [1, 2, 2, 2]
    assert [attempt.fence for attempt in attempts] == [1, 2, 3, 4]
    outcomes = [Outcome.FAILED, Outcome.RELEASED, Outcome.LOST, Outcome.FAILED]
    assert [attempt.outcome for attempt in attempts] == outcomes
    assert {attempt.node for attempt in attempts} == {node}
    assert attempts[0].error == OOPS
    assert attempts[1].error is None
    assert (attempts[0].started_at, attempts[0].ended_at) == (NOW + MINUTE, NOW + MINUTE)
    ended = await find_run(store, run.id, owner=None)
    assert ended is not None
    assert (ended.attempt, ended.crashes, ended.state) == (2, 1, State.FAILED)
    assert ended.first_started_at == NOW + MINUTE


async def test_an_ended_run_is_held_by_nobody(store: Store) -> None:
    node = await given_node(store)
    [run] = await given_ended(store, one_shot(), node=node)
    assert await store.still_held([run]) == [False]
    assert run.node == node
    assert await claimed(store, node) == []


async def test_a_claim_holds_until_the_run_goes_back_whoever_takes_it_then(store: Store) -> None:
    node, other = await given_node(store), await given_node(store)
    first, second = await given_claimed(store, one_shot(), one_shot(), node=node)
    await store.start([start(first, NOW)])
    assert await store.still_held([first, second]) == [True, True]
    await store.settle([give_back(second, NOW)])
    assert await store.still_held([second, first]) == [False, True]
    [again] = await claimed(store, other)
    assert await store.still_held([first, second, again]) == [True, False, True]
    assert await store.still_held([]) == []


async def test_what_a_node_holds_is_found_without_its_help(store: Store) -> None:
    node, other = await given_node(store), await given_node(store)
    first, begun, back = await given_claimed(store, one_shot(), one_shot(ordering_key="k"), one_shot(), node=node)
    await given_claimed(store, one_shot(), node=other)
    assert await store.start([start(begun, NOW)]) == [True]
    assert await store.settle([give_back(back, NOW)]) == [True]
    assert sorted(ids(await store.held_by(node, until=LATER))) == sorted([first.id, begun.id])
    assert await store.held_by(node, until=NOW - MINUTE) == []


async def test_a_stop_request_reaches_the_node_that_holds_the_run(store: Store) -> None:
    node = await given_node(store)
    [running] = await given_running(store, one_shot(), node=node)
    [held] = await given_claimed(store, one_shot(), node=node)
    waiting = one_shot(LATER)
    await acts.create(store, [waiting])
    [ended] = await given_ended(store, one_shot(), node=node)

    asked = [running.id, waiting.id, ended.id, held.id, RunId(new_id())]
    assert await acts.request_stop(store, asked, Reason.CANCELLED) == [node, None, None, node, None]

    assert await store.stops(node) == {running.id: Reason.CANCELLED, held.id: Reason.CANCELLED}
    stopping = await store.list_runs(RunFilter(stopping=True), cursor=None, limit=9)
    assert sorted(ids(stopping.items)) == sorted([running.id, held.id])
    assert await store.settle([cancel(running, NOW), cancel(held, NOW)]) == [True, True]
    assert await store.stops(node) == {}


async def test_a_cancel_is_not_weakened_to_a_pause(store: Store) -> None:
    node = await given_node(store)
    [run] = await given_claimed(store, one_shot(), node=node)
    await acts.request_stop(store, [run.id], Reason.PAUSED)
    assert await store.stops(node) == {run.id: Reason.PAUSED}
    await acts.request_stop(store, [run.id], Reason.CANCELLED)
    await acts.request_stop(store, [run.id], Reason.PAUSED)
    assert await store.stops(node) == {run.id: Reason.CANCELLED}


async def test_a_stop_request_survives_a_retry(store: Store) -> None:
    """The node may not have heard of it: whoever claims the run next is told."""
    node = await given_node(store)
    [run] = await given_running(store, one_shot(), node=node)
    await acts.request_stop(store, [run.id], Reason.CANCELLED)
    await store.settle([retried(run)])
    assert await store.stops(node) == {}
    [again] = await claimed(store, await given_node(store), until=LATER)
    assert again.stop is Reason.CANCELLED


async def test_orphans_are_the_runs_of_nodes_that_are_gone(store: Store) -> None:
    dead, alive = await given_node(store), await given_node(store, beat_at=LATER)
    first, second = await given_claimed(store, one_shot(), one_shot(), node=dead)
    started = start(second, NOW)
    await store.start([started])
    await given_claimed(store, one_shot(), node=alive)
    assert await store.orphans(limit=10) == []

    assert await acts.bury(store, now=LATER, dead_after=DEAD_AFTER) == [dead]

    orphans = await store.orphans(limit=10)
    assert sorted(orphans, key=lambda run: run.id) == [first, started]
    assert len(await store.orphans(limit=1)) == 1
    assert await store.settle([lost(run, LATER) for run in orphans]) == [True, True]
    assert await store.orphans(limit=10) == []
    assert len(await claimed(store, alive, until=LATER)) == 2


async def test_an_end_that_waits_for_nobody_needs_the_same_fence(store: Store) -> None:
    [run] = await given_running(store, one_shot())
    settled = retried(run)
    await store.settle([settled])
    assert await store.settle([cancel(replace(settled.run, fence=0), NOW)]) == [False]
    assert await store.settle([cancel(settled.run, NOW)]) == [True]
    assert await claimed(store, await given_node(store), until=LATER) == []
