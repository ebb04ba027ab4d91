"""Dead letters with `on_failure: block`: what comes after them in their gate waits until they are resolved."""

import asyncio
from datetime import timedelta

from horae.core.decisions.new_runs import requeued
from horae.core.decisions.release import Rival
from horae.core.decisions.results import start, succeed
from horae.core.model import OnFailure, Policy, Run
from horae.core.values import replace
from horae.ports.reader import RunFilter
from horae.ports.store import Store
from tests import acts
from tests.acts import Resolution
from tests.conformance.builders import (
    DAY,
    MINUTE,
    NOW,
    SECOND,
    claimed,
    claims_of,
    failed,
    given_node,
    ids,
    new_id,
    one_shot,
    retried,
    state_of,
)
from tests.conformance.conftest import Connect

BLOCK = Policy(on_failure=OnFailure.BLOCK)
LATER = NOW + MINUTE


def ordered(seconds: float, policy: Policy = BLOCK, gate: str = "key:ada:k") -> Run:
    """A run of an ordering key, due so many seconds from NOW."""
    return one_shot(NOW + timedelta(seconds=seconds), gate=gate, ordering_key="k", policy=policy)


async def given_letter(store: Store, *followers: Run, run: Run | None = None) -> Run:
    """A run that failed and blocks its gate, with those that come after it."""
    first = run or ordered(-60)
    await acts.create(store, [first, *followers])
    node = await given_node(store)
    [taken] = [each for each in await claimed(store, node) if each.id == first.id]
    settled = failed(start(taken, NOW))
    assert await store.settle([settled]) == [True]
    await claims_of(store, node, limit=0, free_gates=[first.gate])
    return settled.run


async def resolved(store: Store, letter: Run, successor: Run | None = None) -> None:
    assert await acts.resolve(store, [Resolution(run_id=letter.id, successor=successor)], now=NOW) == [True]


def again(letter: Run) -> Run:
    return requeued(letter, now=NOW, new_id=new_id)


async def finish(store: Store, run: Run) -> None:
    assert await store.settle([succeed(start(run, NOW), None, NOW)]) == [True]


async def test_what_follows_a_blocking_letter_is_not_claimed_and_says_why(store: Store) -> None:
    letter = await given_letter(store, ordered(-2), ordered(-1))
    claims = await claims_of(store, await given_node(store))
    assert list(claims.runs) == []
    assert len(claims.contested) == 2
    first = claims.contested[0]
    assert list(first.rivals) == [Rival(id=letter.id, job_id=letter.job_id, started_at=None, failed=True)]
    assert Rival(id=letter.id, job_id=letter.job_id, started_at=None, failed=True) in claims.contested[1].rivals


async def test_what_is_blocked_but_not_due_is_no_contest(store: Store) -> None:
    await given_letter(store, ordered(30))
    node = await given_node(store)
    claims = await claims_of(store, node, until=LATER)
    assert (list(claims.runs), list(claims.contested)) == ([], [])
    assert len((await claims_of(store, node, now=LATER, until=LATER)).contested) == 1


async def test_a_letter_blocks_nobody_by_default(store: Store) -> None:
    follower = ordered(-1)
    await given_letter(store, follower, run=ordered(-60, Policy()))
    assert ids(await claimed(store, await given_node(store))) == [follower.id]


async def test_without_an_ordering_key_nothing_is_blocked(store: Store) -> None:
    follower = one_shot(gate="job:j", policy=BLOCK)
    await given_letter(store, follower, run=one_shot(NOW - MINUTE, gate="job:j", policy=BLOCK))
    assert ids(await claimed(store, await given_node(store))) == [follower.id]


async def test_other_gates_and_earlier_runs_are_not_blocked(store: Store) -> None:
    await given_letter(store)
    early, other = ordered(-120), ordered(-1, gate="key:ada:other")
    await acts.create(store, [early, other, ordered(-1)])
    assert sorted(ids(await claimed(store, await given_node(store)))) == sorted([early.id, other.id])


async def test_what_follows_an_earlier_run_is_still_blocked(store: Store) -> None:
    """Also for the node that has just taken the run before the letter."""
    await given_letter(store)
    await acts.create(store, [ordered(-120), ordered(-1)])
    node = await given_node(store)
    assert len((await claims_of(store, node)).runs) == 1
    claims = await claims_of(store, node)
    assert list(claims.runs) == []
    assert any(rival.failed for rival in claims.contested[0].rivals)


async def test_a_run_that_is_tried_again_or_succeeds_blocks_nobody(store: Store) -> None:
    first, second = ordered(-2), ordered(-1)
    await acts.create(store, [first, second])
    node = await given_node(store)
    [taken] = await claimed(store, node)
    await store.settle([retried(start(taken, NOW))])
    [taken] = await claimed(store, node, now=LATER, until=LATER)
    await finish(store, taken)
    assert ids(await claimed(store, node)) == [second.id]


async def test_a_blocked_run_is_parked_until_the_letter_is_discarded(store: Store) -> None:
    first, second = ordered(-2), ordered(-1)
    letter = await given_letter(store, first, second)
    node = await given_node(store)
    await acts.park(store, [item.run for item in (await claims_of(store, node)).contested])
    assert list((await claims_of(store, node)).contested) == []
    assert await store.tidy(now=NOW) == 0, "it is parked for a reason"

    assert await acts.resolve(store, [Resolution(run_id=letter.id)], now=LATER) == [True]

    [taken] = await claimed(store, node, now=LATER, until=LATER, floor=NOW + SECOND)
    assert (taken.id, taken.wake_at) == (first.id, LATER), "it wakes when it was freed, above the floor of the claims"
    await finish(store, taken)
    assert ids(await claimed(store, node, now=LATER, until=LATER)) == [second.id]


async def test_a_run_that_was_not_parked_goes_on_as_well(store: Store) -> None:
    follower = ordered(-1)
    letter = await given_letter(store, follower)
    await resolved(store, letter)
    assert ids(await claimed(store, await given_node(store))) == [follower.id]


async def test_the_successor_of_a_letter_keeps_its_place_and_goes_first(store: Store) -> None:
    line = [ordered(-2), ordered(-1)]
    letter = await given_letter(store, *line)
    node = await given_node(store)
    await acts.park(store, [item.run for item in (await claims_of(store, node)).contested])
    successor = again(letter)
    await resolved(store, letter, successor)

    order: list[str] = []
    while len(order) < 3:
        claims = await claims_of(store, node)
        for run in claims.runs:
            order.append(run.id)
            await finish(store, run)
    assert order == [successor.id, *ids(line)]


async def test_a_successor_keeps_its_place_among_runs_of_the_same_instant(store: Store) -> None:
    """As a batch of one key is: all due when it was submitted."""
    line = sorted((ordered(-60) for _ in range(3)), key=lambda run: run.id)
    letter = await given_letter(store, *line[1:], run=line[0])
    successor = again(letter)
    await resolved(store, letter, successor)
    node = await given_node(store)
    order = [ids(await claimed(store, node)) for _ in range(3)]
    assert order == [[successor.id], [line[1].id], [line[2].id]]


async def test_a_successor_that_fails_blocks_again(store: Store) -> None:
    follower = ordered(-1)
    letter = await given_letter(store, follower)
    successor = again(letter)
    await resolved(store, letter, successor)
    node = await given_node(store)
    [taken] = await claimed(store, node)
    second = failed(start(taken, NOW))
    assert await store.settle([second]) == [True]
    assert await claimed(store, node) == []
    await resolved(store, second.run)
    assert ids(await claimed(store, node)) == [follower.id]


async def test_of_several_letters_the_last_one_resolved_frees_the_gate(store: Store) -> None:
    letter = await given_letter(store)
    earlier = await given_letter(store, run=ordered(-120))
    follower = ordered(-1)
    await acts.create(store, [follower])
    node = await given_node(store)
    await acts.park(store, [item.run for item in (await claims_of(store, node)).contested])

    await resolved(store, letter)
    assert await claimed(store, node) == []
    await resolved(store, earlier)
    assert ids(await claimed(store, node)) == [follower.id]


async def test_the_end_of_a_run_before_the_letter_wakes_nobody_behind_it(store: Store) -> None:
    await given_letter(store, ordered(-1))
    node = await given_node(store)
    await acts.park(store, [item.run for item in (await claims_of(store, node)).contested])
    await acts.create(store, [ordered(-120)])
    [taken] = await claimed(store, node)
    await finish(store, taken)
    claims = await claims_of(store, node)
    assert list(claims.runs) == []


async def test_a_run_that_waited_in_front_of_a_run_that_failed_goes_on(store: Store) -> None:
    """It was put there while the other ran: the letter is behind it and does not block it."""
    held = ordered(-60)
    await acts.create(store, [held])
    mine, yours = await given_node(store), await given_node(store)
    [held] = await claimed(store, mine)
    early = ordered(-120)
    await acts.create(store, [early])
    await acts.park(store, [item.run for item in (await claims_of(store, yours)).contested])
    assert await store.settle([failed(start(held, NOW))]) == [True]
    await claims_of(store, mine, limit=0, free_gates=[held.gate])
    assert ids(await claimed(store, yours)) == [early.id]


async def test_history_that_is_dropped_leaves_no_block_behind(store: Store) -> None:
    follower = ordered(-1)
    await given_letter(store, follower)
    node = await given_node(store)
    await acts.park(store, [item.run for item in (await claims_of(store, node)).contested])
    while await store.prune(now=NOW, before=(NOW + 2 * DAY).date(), limit=100):
        pass
    await store.tidy(now=NOW)
    assert ids(await claimed(store, node)) == [follower.id]


async def test_a_letter_resolved_while_its_followers_are_parked_frees_them_in_the_end(
    store: Store, connect: Connect
) -> None:
    """Whoever is first: a run is either found parked by the resolution, or not parked at all."""
    other = await connect()
    for _ in range(10):
        follower = ordered(-1)
        letter = await given_letter(store, follower)
        await asyncio.gather(acts.park(other, [follower]), resolved(store, letter))
        node = await given_node(store)
        [taken] = await claimed(store, node)
        assert taken.id == follower.id
        await finish(store, taken)
        await claims_of(store, node, limit=0, free_gates=[follower.gate])


async def test_a_blocking_letter_is_listed_like_any_other(store: Store) -> None:
    letter = await given_letter(store, ordered(-1))
    found = await store.list_runs(RunFilter(dead_letters=True, owner="ada"), cursor=None, limit=10)
    assert list(found.items) == [letter]
    assert found.items[0].spec.policy == BLOCK
    assert await state_of(store, letter) is letter.state
    assert replace(letter, resolution=None) == letter
