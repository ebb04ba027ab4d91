"""Gates: runs that share one are claimed in the order of (due_at, id), by one node at a time."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from horae.core.changes import Change, Parked
from horae.core.decisions.release import Rival
from horae.core.decisions.results import cancel, give_back, skip, start, succeed
from horae.core.model import NodeId, Reason, Run, State
from horae.core.values import replace
from horae.ports.store import Store
from horae.stores.dynamodb.life import tidy as dynamodb_tidy
from horae.stores.postgres import upkeep as postgres_upkeep
from horae.stores.sqlite import gates as sqlite_gates
from tests import acts
from tests.acts import JobChange
from tests.conformance.builders import (
    DEAD_AFTER,
    MINUTE,
    NOW,
    SECOND,
    claimed,
    claims_of,
    given_job,
    given_node,
    ids,
    one_shot,
    recurring,
    retried,
    slot_run,
)
from tests.conformance.conftest import Connect

TICK = timedelta(microseconds=1)
LATER = NOW + MINUTE


async def given_line(store: Store, count: int = 3, gate: str = "g", **changes: Any) -> list[Run]:
    """Runs of one gate, all of them due, one second apart; the last is due NOW."""
    line = [one_shot(NOW - (count - 1 - n) * SECOND, gate=gate, **changes) for n in range(count)]
    await acts.create(store, line)
    return line


async def finish(store: Store, run: Run) -> None:
    assert await store.settle([succeed(start(run, NOW), None, NOW)]) == [True]


async def test_a_call_brings_one_run_of_each_gate(store: Store) -> None:
    line, other = await given_line(store), await given_line(store, gate="other")
    free = one_shot()
    await acts.create(store, [free])
    node = await given_node(store)

    claims = await claims_of(store, node)

    assert sorted(ids(claims.runs)) == sorted([line[0].id, other[0].id, free.id])
    behind = [item.run.id for item in claims.contested]
    assert sorted(behind) == sorted([line[2].id, other[2].id]), "the second of each is only next"


async def test_the_holder_of_a_gate_gets_the_next_runs_in_order(store: Store) -> None:
    line = await given_line(store)
    node = await given_node(store)
    assert [ids(await claimed(store, node)) for _ in range(4)] == [[line[0].id], [line[1].id], [line[2].id], []]


async def test_a_claim_takes_no_more_of_a_gate_than_it_may_and_leaves_none_out(store: Store) -> None:
    line, other = await given_line(store, 5), await given_line(store, gate="other")
    node = await given_node(store)
    brought = [ids(await claimed(store, node, per_gate=3)) for _ in range(6)]
    for gate in (line, other):
        wanted = [run.id for run in gate]
        parts = [[ident for ident in part if ident in wanted] for part in brought]
        assert [ident for part in parts for ident in part] == wanted
        assert max(map(len, parts)) <= 3, "a store may take fewer"


async def test_a_claim_of_several_stops_before_the_first_that_it_may_not_take(store: Store) -> None:
    line = await given_line(store, 4)
    others, node = await given_node(store), await given_node(store)
    [first] = await claimed(store, others)
    assert await claimed(store, node, per_gate=4) == []
    await finish(store, first)
    await claimed(store, others, free_gates=["g"], limit=0)
    assert await store.settle([cancel(replace(line[2], fence=0), NOW)]) == [True]
    taken = [ident for _ in range(3) for ident in ids(await claimed(store, node, per_gate=4))]
    assert taken == [line[1].id, line[3].id]


@pytest.mark.parametrize("connect", ["sqlite"], indirect=True)  # virtual time alone claims so far ahead, and in SQLite
async def test_a_claim_far_ahead_tells_when_what_it_left_wakes(store: Store) -> None:
    [first] = await given_line(store, 1)
    later = one_shot(NOW + MINUTE, gate="g")
    await acts.create(store, [later])
    others, node = await given_node(store), await given_node(store)
    assert ids(await claimed(store, others)) == [first.id]
    claims = await claims_of(store, node, until=NOW + 5 * MINUTE)
    assert [*claims.runs, *claims.contested] == []
    assert claims.left_at == later.wake_at


async def given_slots(store: Store, count: int = 3) -> list[Run]:
    """As `given_line`, of one job that must not overlap; beside them one from when it might."""
    job = await given_job(store, recurring())
    slots = [NOW - (count - 1 - n) * SECOND for n in range(count)]
    line = [slot_run(job, slot, gate=f"job:{job.id}") for slot in slots]
    await acts.create(store, [*line, slot_run(job, NOW - MINUTE, paused=True)])
    return line


async def test_slots_of_a_job_that_must_not_overlap_come_one_by_one(store: Store) -> None:
    line, others = await given_slots(store), await given_slots(store, 1)
    node = await given_node(store)

    claims = await claims_of(store, node)

    assert sorted(ids(claims.runs)) == sorted([line[0].id, others[0].id])
    assert ids([item.run for item in claims.contested]) == [line[2].id], "the second is only next"
    assert [ids(await claimed(store, node)) for _ in range(3)] == [[line[1].id], [line[2].id], []]


async def test_a_slot_that_another_node_holds_is_ahead_of_those_after_it(store: Store) -> None:
    line = await given_slots(store)
    mine, yours = await given_node(store), await given_node(store)
    [first] = await claimed(store, mine)

    claims = await claims_of(store, yours)

    assert (list(claims.runs), ids([item.run for item in claims.contested])) == ([], ids(line[1:]))
    assert [len(item.rivals) for item in claims.contested] == [1, 2]
    assert ids(await store.ahead_of(line[2])) == ids(line[:2])

    await acts.park(store, [item.run for item in claims.contested])
    assert list((await claims_of(store, yours)).contested) == []
    await finish(store, first)
    assert ids(await claimed(store, mine)) == [line[1].id]


async def test_a_slot_with_nothing_ahead_is_not_parked(store: Store) -> None:
    [alone] = await given_slots(store, 1)
    await acts.park(store, [alone])
    assert ids(await claimed(store, await given_node(store))) == [alone.id]


async def test_order_is_by_due_time_then_id(store: Store) -> None:
    twins = sorted((one_shot(NOW - SECOND, gate="g") for _ in range(3)), key=lambda run: run.id)
    early = one_shot(NOW - MINUTE, gate="g", priority=-5, wake_at=NOW)
    await acts.create(store, [*reversed(twins), early])
    node = await given_node(store)
    order = [ids(await claimed(store, node)) for _ in range(4)]
    assert order == [[early.id], *([twin.id] for twin in twins)]


async def test_while_a_gate_is_held_nobody_else_claims_from_it(store: Store, connect: Connect) -> None:
    line = await given_line(store)
    mine, yours = await given_node(store), await given_node(store)
    other = await connect()
    [first] = await claimed(store, mine)

    claims = await claims_of(other, yours)

    assert list(claims.runs) == []
    assert ids([item.run for item in claims.contested]) == ids(line[1:])
    waiting = Rival(id=line[0].id, job_id=line[0].job_id, started_at=None)
    assert list(claims.contested[0].rivals) == [waiting]
    assert len(claims.contested[1].rivals) == 2
    assert first.id == line[0].id


async def test_a_rival_that_is_running_tells_since_when(store: Store) -> None:
    line = await given_line(store, 2)
    mine, yours = await given_node(store), await given_node(store)
    [first] = await claimed(store, mine)
    await store.start([start(first, NOW - SECOND)])

    [contested] = (await claims_of(store, yours)).contested

    assert contested.run.id == line[1].id
    assert list(contested.rivals) == [Rival(id=first.id, job_id=first.job_id, started_at=NOW - SECOND)]


async def test_a_rival_that_waits_for_its_next_attempt_is_still_going(store: Store) -> None:
    line = await given_line(store, 2)
    mine, yours = await given_node(store), await given_node(store)
    [first] = await claimed(store, mine)
    await store.settle([retried(start(first, NOW - SECOND))])

    for node in (mine, yours):
        claims = await claims_of(store, node)
        assert list(claims.runs) == []
        [contested] = claims.contested
        assert contested.run.id == line[1].id
        assert list(contested.rivals) == [Rival(id=first.id, job_id=first.job_id, started_at=NOW - SECOND)]


async def starts_of_rivals(store: Store, node: NodeId, run: Run) -> list[datetime | None]:
    """Since when those are going that keep a node from claiming a run."""
    [contested] = [item for item in (await claims_of(store, node)).contested if item.run.id == run.id]
    return [rival.started_at for rival in contested.rivals]


async def test_a_rival_is_going_since_its_first_start(store: Store) -> None:
    """Also when it was given back, or is in a later attempt."""
    line = await given_line(store, 2)
    mine, yours = await given_node(store), await given_node(store)
    [first] = await claimed(store, mine)
    await store.settle([give_back(start(first, NOW - SECOND), NOW)])
    assert await starts_of_rivals(store, yours, line[1]) == [NOW - SECOND]

    [again] = await claimed(store, mine)
    await store.start([start(again, NOW)])
    assert await starts_of_rivals(store, yours, line[1]) == [NOW - SECOND]


async def test_a_rival_that_never_started_is_not_going(store: Store) -> None:
    line = await given_line(store, 2)
    mine, yours = await given_node(store), await given_node(store)
    [first] = await claimed(store, mine)
    assert await starts_of_rivals(store, yours, line[1]) == [None]
    await store.settle([give_back(first, NOW)])
    assert await starts_of_rivals(store, yours, line[1]) == [None]


async def test_what_is_blocked_but_not_due_is_no_contest(store: Store) -> None:
    await acts.create(store, [one_shot(NOW, gate="g"), one_shot(NOW + TICK, gate="g")])
    mine, yours = await given_node(store), await given_node(store)
    await claimed(store, mine)

    claims = await claims_of(store, yours, until=NOW + SECOND)
    assert (list(claims.runs), list(claims.contested)) == ([], [])
    assert len((await claims_of(store, yours, now=NOW + TICK, until=NOW + SECOND)).contested) == 1


async def test_an_idle_gate_may_be_taken_ahead_of_time(store: Store) -> None:
    run = one_shot(NOW + SECOND, gate="g")
    await acts.create(store, [run])
    node = await given_node(store)
    assert ids(await claimed(store, node, until=NOW + SECOND)) == [run.id]


async def test_an_earlier_run_that_nobody_may_claim_yet_blocks_its_gate(store: Store) -> None:
    """A later wake-up, another queue, an unknown task or a pause does not let others overtake."""
    node = await given_node(store)
    ahead = [
        one_shot(NOW - MINUTE, gate="a", wake_at=LATER),
        one_shot(NOW - MINUTE, gate="b", queue="other"),
        one_shot(NOW - MINUTE, gate="c", task="other"),
        one_shot(NOW - MINUTE, gate="d", paused=True),
    ]
    await acts.create(store, [*ahead, *(one_shot(gate=run.gate) for run in ahead)])
    assert await claimed(store, node, queues=["default"]) == []


async def test_a_full_gate_gives_nothing_more_and_what_is_due_in_it_is_contested(store: Store) -> None:
    line = await given_line(store, 2)
    other = await given_line(store, 1, gate="other")
    node = await given_node(store)
    await claimed(store, node, full_gates=["other"])
    claims = await claims_of(store, node, full_gates=["g", "unknown"])
    assert ids(claims.runs) == ids(other)
    assert [item.run.id for item in claims.contested] == [line[1].id]
    assert [len(item.rivals) for item in claims.contested] == [1]


async def test_a_gate_that_was_freed_is_anybodys(store: Store) -> None:
    line = await given_line(store, 2)
    mine, yours = await given_node(store), await given_node(store)
    [first] = await claimed(store, mine)
    await finish(store, first)

    [contested] = (await claims_of(store, yours)).contested
    assert (contested.run.id, list(contested.rivals)) == (line[1].id, [])

    await claims_of(store, mine, free_gates=["g"], limit=0)
    assert ids(await claimed(store, yours)) == [line[1].id]


async def test_a_gate_that_is_let_go_is_kept_if_its_next_run_is_taken(store: Store) -> None:
    [first] = await given_line(store, 1)
    node = await given_node(store)
    await claimed(store, node)
    await finish(store, replace(first, state=State.CLAIMED, fence=1, node=node))
    await given_line(store, 1)
    assert len(await claimed(store, node, free_gates=["g"])) == 1
    assert await claimed(store, await given_node(store)) == []


async def test_a_claim_tells_from_when_on_runs_come_next_in_the_gates_that_it_takes_from(store: Store) -> None:
    first, second = await given_line(store, 2)
    await acts.create(store, [one_shot(NOW, gate="alone"), one_shot(NOW)])
    node = await given_node(store)

    reach = [await claims_of(store, node, until=at) for at in (first.wake_at, NOW, NOW)]

    assert [first.id in ids(claims.runs) for claims in reach] == [True, False, False]
    assert [second.id in ids(claims.runs) for claims in reach] == [False, True, False]
    assert [claims.lined_up_at for claims in reach] == [None, None, None], "none was left behind another"
    third, fourth = await given_line(store, 2, gate="h")
    assert [(await claims_of(store, node)).lined_up_at for _ in (third, fourth)] == [fourth.wake_at, None]


async def test_nobody_frees_the_gate_of_another(store: Store) -> None:
    await given_line(store, 2)
    mine, yours = await given_node(store), await given_node(store)
    await claimed(store, mine)
    assert await claimed(store, yours, free_gates=["g"]) == []


async def test_a_retried_run_stays_ahead(store: Store) -> None:
    line = await given_line(store, 2)
    node = await given_node(store)
    [first] = await claimed(store, node)
    await store.settle([retried(start(first, NOW))])
    await claims_of(store, node, free_gates=["g"], limit=0)
    yours = await given_node(store)

    assert await claimed(store, yours) == []
    assert ids(await claimed(store, yours, now=LATER, until=LATER)) == [line[0].id]
    assert ids(await claimed(store, yours, now=LATER, until=LATER)) == [line[1].id]


async def test_a_parked_run_is_kept_from_claims_until_the_one_before_it_ends(store: Store) -> None:
    line = await given_line(store)
    mine, yours = await given_node(store), await given_node(store)
    [first] = await claimed(store, mine)
    await acts.park(store, [item.run for item in (await claims_of(store, yours)).contested])

    assert list((await claims_of(store, yours)).contested) == []
    assert await claimed(store, mine) == []

    later = NOW + 2 * SECOND
    assert await store.settle([succeed(start(first, NOW), None, later)]) == [True]
    [second] = await claimed(store, mine, now=later, until=later)
    assert second.id == line[1].id
    assert second.wake_at == later, "it wakes when it was freed, or it would stay below the floor of the claims"
    assert await claimed(store, mine, now=later, until=later) == []


@pytest.mark.parametrize("how", ["cancelled", "skipped"])
async def test_the_end_of_a_waiting_run_frees_the_next(store: Store, how: str) -> None:
    line = await given_line(store, 2, priority=0)
    blocked = one_shot(NOW - MINUTE, gate="g", wake_at=LATER)
    await acts.create(store, [blocked])
    node = await given_node(store)
    await acts.park(store, line)
    assert list((await claims_of(store, node)).contested) == []

    ended = cancel(blocked, NOW) if how == "cancelled" else skip(blocked, Reason.TOO_LATE, NOW)
    assert await store.settle([ended]) == [True]

    assert ids(await claimed(store, node)) == [line[0].id]


async def test_a_run_that_nothing_blocks_is_not_parked(store: Store) -> None:
    [alone] = await given_line(store, 1)
    free = one_shot()
    await acts.create(store, [free])
    await acts.park(store, [alone, free])
    node = await given_node(store)
    assert sorted(ids(await claimed(store, node))) == sorted([alone.id, free.id])


async def test_a_run_that_moved_on_is_not_parked(store: Store) -> None:
    line = await given_line(store, 2)
    node = await given_node(store)
    await claimed(store, node)
    [second] = await claimed(store, node)
    await acts.park(store, [line[1]])
    await store.settle([give_back(second, NOW)])
    assert ids(await claimed(store, node)) == [second.id]


async def test_a_run_put_in_front_of_one_that_is_held_waits_for_it(store: Store) -> None:
    [held] = await given_line(store, 1)
    mine, yours = await given_node(store), await given_node(store)
    [held] = await claimed(store, mine)
    early = one_shot(NOW - MINUTE, gate="g")
    await acts.create(store, [early])

    [contested] = (await claims_of(store, yours)).contested
    assert (contested.run.id, len(contested.rivals)) == (early.id, 1)
    await acts.park(store, [contested.run])
    assert list((await claims_of(store, yours)).contested) == []

    await finish(store, held)
    await claims_of(store, mine, free_gates=["g"], limit=0)
    assert ids(await claimed(store, yours)) == [early.id]


async def test_retracted_runs_let_the_next_go_on(store: Store) -> None:
    job = recurring()
    ahead = slot_run(job, LATER, gate="g")
    await given_job(store, job, ahead)
    behind = one_shot(LATER + SECOND, gate="g")
    await acts.create(store, [behind])
    await acts.park(store, [behind])

    changed = replace(job, revision=2)
    assert await acts.change(store, JobChange(job=changed, expected=1, retract_after=NOW)) is not None

    node = await given_node(store)
    assert ids(await claimed(store, node, until=LATER + SECOND)) == [behind.id]


async def test_a_one_shot_that_moves_out_of_the_way_lets_the_next_go_on(store: Store) -> None:
    line = await given_line(store, 2)
    moved = replace(line[0], gate="other", wake_at=LATER, due_at=LATER, revision=2)
    await acts.park(store, [line[1]])
    assert await acts.change_one_shot(store, moved, expected=1)
    node = await given_node(store)
    assert ids(await claimed(store, node)) == [line[1].id]


async def test_tidy_frees_the_gates_of_nodes_that_are_gone(store: Store) -> None:
    line = await given_line(store, 2)
    dead = await given_node(store)
    [first] = await claimed(store, dead)
    await acts.bury(store, now=NOW + MINUTE, dead_after=DEAD_AFTER)
    assert await store.tidy(now=NOW) == 0, "it still holds a run, which comes first"
    node = await given_node(store)
    assert await claimed(store, node) == []

    [orphan] = await store.orphans(limit=10)
    assert orphan == first
    await store.settle([give_back(orphan, NOW)])
    assert await claimed(store, node) == []
    assert await store.tidy(now=NOW) == 1
    assert await store.tidy(now=NOW) == 0
    assert ids(await claimed(store, node)) == [line[0].id]


async def test_tidy_leaves_the_gates_of_living_nodes(store: Store) -> None:
    [first] = await given_line(store, 1)
    node = await given_node(store)
    [first] = await claimed(store, node)
    await finish(store, first)
    assert await store.tidy(now=NOW) == 0
    await given_line(store, 1)
    assert await claimed(store, await given_node(store)) == []


async def test_a_node_that_leaves_in_order_frees_its_gates(store: Store) -> None:
    [first] = await given_line(store, 1)
    node = await given_node(store)
    [first] = await claimed(store, node)
    await store.settle([give_back(first, NOW)])
    await acts.unregister(store, node)
    assert ids(await claimed(store, await given_node(store))) == [first.id]


async def test_tidy_wakes_a_parked_run_that_nothing_blocks(store: Store) -> None:
    """As a lost race leaves it: parked after the one before it had looked for somebody to wake."""
    line = await given_line(store, 3)
    node = await given_node(store)
    await acts.park(store, line[1:])
    assert await store.tidy(now=LATER) == 0

    # ends without waking: the settle of the first finds line[1] and wakes it; line[2] stays parked behind it
    [first] = await claimed(store, node)
    await finish(store, first)
    [second] = await claimed(store, node)
    assert second.id == line[1].id
    assert await store.tidy(now=LATER) == 0
    await finish(store, second)
    assert ids(await claimed(store, node)) == [line[2].id]


async def test_a_long_line_is_described_by_its_first(store: Store) -> None:
    await given_line(store, 120)
    mine, yours = await given_node(store), await given_node(store)
    [first] = await claimed(store, mine)
    await store.start([start(first, NOW)])

    contested = (await claims_of(store, yours)).contested

    assert len(contested) == 119
    assert all(NOW in [rival.started_at for rival in item.rivals] for item in contested)
    assert max(len(item.rivals) for item in contested) < 119


async def test_what_is_in_the_gate_of_another_node_uses_up_no_place(store: Store) -> None:
    """Neither within its lane nor of another one."""
    line = [one_shot(NOW + n * TICK, gate="g", priority=5) for n in range(4)]
    await acts.create(store, line)
    mine, yours = await given_node(store), await given_node(store)
    assert ids(await claimed(store, mine)) == [line[0].id]
    free = one_shot(NOW + SECOND)
    await acts.create(store, [free])

    claims = await claims_of(store, yours, until=NOW + SECOND, limit=2)
    assert ids(claims.runs) == [free.id]


async def test_tidy_looks_at_some_gates_and_goes_on_the_next_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many gates wait for their dead letters, none of its calls takes long."""
    for module in (sqlite_gates, postgres_upkeep, dynamodb_tidy):
        monkeypatch.setattr(module, "LOOK_AT_GATES", 2)
    runs = [one_shot(gate=f"gate {number}") for number in range(5)]
    await acts.create(store, runs)
    await store.apply([Change(puts=tuple(Parked(run.id) for run in runs))])
    assert [await store.tidy(now=NOW) for _ in range(5)] == [2, 2, 1, 0, 0]
    assert sorted(ids(await claimed(store, await given_node(store)))) == sorted(ids(runs))
