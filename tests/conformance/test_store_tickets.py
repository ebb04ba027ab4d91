"""What a queue in front of a store needs: claims among given runs, tickets of what waits, and what is next in gates."""

from datetime import datetime, timedelta

from horae.core.decisions.results import start, succeed
from horae.core.model import SHARDS, NodeId, Run, shard_of
from horae.core.records import QueueSettings
from horae.core.tickets import Ticket
from horae.ports.store import Claims, Store
from tests import acts
from tests.conformance.builders import (
    MINUTE,
    NOW,
    SECOND,
    claims_of,
    given_claimed,
    given_ended,
    given_node,
    ids,
    new_id,
    one_shot,
    retried,
)

TICK = timedelta(microseconds=1)
ALL = range(SHARDS)


async def claim_among(store: Store, node: NodeId, *runs: Run, **changes: object) -> Claims:
    return await claims_of(store, node, among=[run.id for run in runs], **changes)


async def tickets(
    store: Store,
    shards: range | list[int] = ALL,
    *,
    since: datetime | None = None,
    until: datetime = NOW,
    limit: int = 100,
) -> list[Ticket]:
    """All pages of what waits."""
    found: list[Ticket] = []
    cursor: str | None = None
    while True:
        page = await store.waiting(shards, since=since, until=until, cursor=cursor, limit=limit)
        assert len(page.tickets) <= limit
        found += page.tickets
        cursor = page.cursor
        if cursor is None:
            return found


async def next_in_gates(store: Store, gates: list[str], *, until: datetime) -> list[Ticket]:
    page = await store.waiting(ALL, since=None, until=until, cursor=None, limit=1, gates=gates)
    assert page.cursor is None
    return list(page.tickets)


async def limit(store: Store, concurrency: int, queue: str = "default") -> None:
    await acts.set_queue(store, QueueSettings(queue=queue, concurrency=concurrency))


# --- claims among given runs


async def test_a_claim_among_runs_takes_them_and_no_others(store: Store) -> None:
    wanted, other = [one_shot(NOW - n * SECOND, owner=f"owner {n}") for n in range(3)], one_shot()
    await acts.create(store, [*wanted, other])
    node = await given_node(store)

    claims = await claim_among(store, node, *wanted)

    assert ids(claims.runs) == ids(sorted(wanted, key=lambda run: run.wake_at))
    assert {(run.node, run.fence, run.state) for run in claims.runs} == {(node, 1, "claimed")}
    assert not claims.waiting
    assert [run.id for run in (await claims_of(store, node)).runs] == [other.id]


async def test_what_comes_back_in_no_way_is_void(store: Store) -> None:
    node = await given_node(store)
    [held], [ended] = await given_claimed(store, one_shot()), await given_ended(store, one_shot())
    paused, gone = one_shot(paused=True), one_shot()
    await acts.create(store, [paused])

    claims = await claim_among(store, node, held, ended, paused, gone)

    assert (claims.alive, list(claims.runs), list(claims.contested), dict(claims.waiting)) == (True, [], [], {})


async def test_what_cannot_be_taken_yet_still_waits(store: Store) -> None:
    soon, unknown = one_shot(NOW + SECOND + TICK), one_shot(task="other.task")
    shut, elsewhere = one_shot(queue="shut"), one_shot(queue="elsewhere")
    await acts.create(store, [soon, unknown, shut, elsewhere])
    await acts.set_queue(store, QueueSettings(queue="shut", paused=True))
    node = await given_node(store)

    claims = await claim_among(
        store, node, soon, unknown, shut, elsewhere, until=NOW + SECOND, queues=["default", "shut"]
    )

    assert not claims.runs
    assert claims.waiting == {run.id: run.wake_at for run in (soon, unknown, shut, elsewhere)}


async def test_a_run_is_claimed_among_others_whatever_the_floor_and_however_often_it_is_named(store: Store) -> None:
    run = one_shot(NOW - MINUTE)
    await acts.create(store, [run])
    node = await given_node(store)
    claims = await claim_among(store, node, run, run, floor=NOW)
    assert ids(claims.runs) == [run.id]


async def test_higher_priorities_come_first_among_given_runs_and_the_limit_holds(store: Store) -> None:
    low, high, late = one_shot(NOW - SECOND), one_shot(priority=5), one_shot()
    await acts.create(store, [low, high, late])
    node = await given_node(store)

    claims = await claim_among(store, node, late, low, high, limit=2)

    assert ids(claims.runs) == [high.id, low.id]
    assert claims.waiting == {late.id: NOW}


async def test_a_limit_of_a_queue_binds_claims_among_given_runs(store: Store) -> None:
    runs = [one_shot(NOW - n * SECOND, queue="few") for n in range(5)]
    free = one_shot()
    await acts.create(store, [*runs, free])
    await limit(store, 2, "few")
    node = await given_node(store)

    claims = await claim_among(store, node, *runs, free)

    assert sorted(ids(claims.runs)) == sorted([runs[4].id, runs[3].id, free.id])
    assert claims.waiting == {run.id: run.wake_at for run in runs[:3]}
    again = await claim_among(store, node, *runs[:3])
    assert (list(again.runs), set(again.waiting)) == ([], set(ids(runs[:3])))


async def test_a_claim_among_runs_of_a_gate_takes_the_first_and_lines_up_the_next(store: Store) -> None:
    line = [one_shot(NOW - (2 - n) * SECOND, gate="g") for n in range(3)]
    await acts.create(store, line)
    node = await given_node(store)

    claims = await claim_among(store, node, *line)

    assert ids(claims.runs) == [line[0].id]
    assert claims.lined_up_at == line[1].wake_at
    assert set(claims.waiting) | {item.run.id for item in claims.contested} == set(ids(line[1:]))


async def test_a_due_run_behind_another_node_is_contested_among_given_runs_too(store: Store) -> None:
    line = [one_shot(NOW - SECOND, gate="g"), one_shot(gate="g")]
    await acts.create(store, line)
    mine, yours = await given_node(store), await given_node(store)
    await claim_among(store, yours, line[0])

    early = await claim_among(store, mine, line[1], now=NOW - TICK, until=NOW)
    claims = await claim_among(store, mine, line[1])

    assert (list(early.contested), dict(early.waiting)) == ([], {line[1].id: NOW})
    [contested] = claims.contested
    assert contested.run == line[1]
    assert [rival.id for rival in contested.rivals] == [line[0].id]
    assert not claims.waiting


async def test_a_due_run_of_a_full_queue_is_contested_when_others_are_ahead_of_it(store: Store) -> None:
    line = [one_shot(NOW - SECOND, gate="g", queue="few"), one_shot(gate="g", queue="few")]
    await acts.create(store, line)
    await limit(store, 1, "few")
    node = await given_node(store)
    assert ids((await claim_among(store, node, line[0])).runs) == [line[0].id]

    claims = await claim_among(store, node, line[1])

    assert [item.run.id for item in claims.contested] == [line[1].id]
    assert not claims.waiting


async def test_a_run_behind_one_that_is_not_among_the_given_is_not_taken(store: Store) -> None:
    line = [one_shot(NOW - SECOND, gate="g"), one_shot(gate="g")]
    await acts.create(store, line)
    node = await given_node(store)
    claims = await claim_among(store, node, line[1])
    assert not claims.runs
    assert {item.run.id for item in claims.contested} | set(claims.waiting) == {line[1].id}


async def test_a_claim_among_nothing_frees_gates(store: Store) -> None:
    first, second = one_shot(NOW - SECOND, gate="g"), one_shot(gate="g")
    await acts.create(store, [first, second])
    mine, yours = await given_node(store), await given_node(store)
    [held] = (await claim_among(store, mine, first)).runs
    assert await store.settle([succeed(start(held, NOW), None, NOW)]) == [True]
    assert not (await claim_among(store, yours, second)).runs

    await claims_of(store, mine, among=[], free_gates=["g"], limit=0)

    assert ids((await claim_among(store, yours, second)).runs) == [second.id]


async def test_a_dead_node_claims_nothing_among_given_runs(store: Store) -> None:
    run = one_shot()
    await acts.create(store, [run])
    claims = await claim_among(store, NodeId(new_id()), run)
    assert (claims.alive, list(claims.runs)) == (False, [])


# --- tickets of what waits


async def test_what_waits_is_told_by_its_time_with_all_that_a_queue_needs(store: Store) -> None:
    late = one_shot(NOW, owner="bob", queue="mail", priority=7)
    early, beyond = one_shot(NOW - SECOND), one_shot(NOW + TICK)
    await acts.create(store, [late, early, beyond])
    assert await tickets(store) == [Ticket.of(early), Ticket.of(late)]


async def test_what_waits_is_told_page_by_page_and_each_once(store: Store) -> None:
    runs = [one_shot(NOW - (n // 4) * SECOND, owner=f"owner {n % 3}") for n in range(20)]
    await acts.create(store, runs)
    found = await tickets(store, limit=3)
    assert sorted(ticket.run_id for ticket in found) == sorted(ids(runs))
    assert [ticket.wake_at for ticket in found] == sorted(ticket.wake_at for ticket in found)


async def test_what_waits_at_one_instant_is_told_page_by_page_too(store: Store) -> None:
    before, herd = one_shot(NOW - SECOND), [one_shot(owner=f"owner {n % 2}") for n in range(11)]
    after = [one_shot(NOW + n * TICK) for n in (1, 2)]
    await acts.create(store, [before, *herd, *after])
    found = await tickets(store, until=NOW + SECOND, limit=3)
    assert sorted(ticket.run_id for ticket in found) == sorted(ids([before, *herd, *after]))


async def test_what_waits_is_told_from_a_time_on(store: Store) -> None:
    before, at = one_shot(NOW - SECOND - TICK), one_shot(NOW - SECOND)
    await acts.create(store, [before, at])
    assert [ticket.run_id for ticket in await tickets(store, since=NOW - SECOND)] == [at.id]


async def test_what_waits_is_told_by_shard(store: Store) -> None:
    runs = [one_shot() for _ in range(50)]
    await acts.create(store, runs)
    shards = list(range(20))
    found = await tickets(store, shards)
    assert sorted(ticket.run_id for ticket in found) == sorted(run.id for run in runs if shard_of(run.job_id) in shards)


async def test_what_cannot_be_claimed_has_no_ticket(store: Store) -> None:
    await given_claimed(store, one_shot())
    await given_ended(store, one_shot())
    await acts.create(store, [one_shot(paused=True), one_shot(queue="shut")])
    await acts.set_queue(store, QueueSettings(queue="shut", paused=True))
    assert await tickets(store) == []


async def test_a_run_that_waits_for_its_next_attempt_is_told_at_its_time(store: Store) -> None:
    [run] = await given_claimed(store, one_shot())
    settled = retried(start(run, NOW))
    assert await store.settle([settled]) == [True]
    assert await tickets(store) == []
    assert await tickets(store, until=NOW + MINUTE) == [Ticket.of(settled.run)]


async def test_the_run_that_comes_next_in_a_gate_is_told(store: Store) -> None:
    line = [one_shot(NOW - SECOND, gate="g"), one_shot(gate="g"), one_shot(gate="g")]
    later, lone = one_shot(NOW + TICK, gate="later"), one_shot(gate="other")
    await acts.create(store, [*line, later, lone])
    node = await given_node(store)
    [held] = (await claim_among(store, node, line[0])).runs

    assert [ticket.run_id for ticket in await next_in_gates(store, ["g", "later", "none"], until=NOW)] == [line[1].id]
    assert await next_in_gates(store, [], until=NOW) == []
    assert await store.settle([succeed(start(held, NOW), None, NOW)]) == [True]
    assert await next_in_gates(store, ["later"], until=NOW + SECOND) == [Ticket.of(later)]


async def test_a_parked_run_is_next_in_its_gate_once_it_is_left(store: Store) -> None:
    line = [one_shot(NOW - SECOND, gate="g"), one_shot(gate="g")]
    await acts.create(store, line)
    mine, yours = await given_node(store), await given_node(store)
    [held] = (await claim_among(store, mine, line[0])).runs
    assert (await claim_among(store, yours, line[1])).contested
    await acts.park(store, [line[1]])
    assert not (await claim_among(store, yours, line[1])).waiting
    assert await next_in_gates(store, ["g"], until=NOW) == []

    assert await store.settle([succeed(start(held, NOW), None, NOW + SECOND)]) == [True]

    [ticket] = await next_in_gates(store, ["g"], until=NOW + MINUTE)
    assert (ticket.run_id, ticket.wake_at) == (line[1].id, NOW + SECOND)
