"""Look-ups and lists: every filter, cursors that stay true while rows arrive and end, the ledger and the queues."""

from datetime import UTC, datetime, timedelta
from itertools import cycle
from typing import Any

import pytest

from horae.core.decisions.firing import Firing
from horae.core.decisions.results import cancel, give_back, skip, start, succeed
from horae.core.errors import Invalid
from horae.core.lifecycle import FINAL
from horae.core.model import Job, JobStatus, Reason, Run, State, Trigger
from horae.core.values import replace
from horae.ports.reader import JobFilter, QueueDepth, RunFilter
from horae.ports.store import Store
from tests import acts
from tests.conformance.builders import (
    DAY,
    MINUTE,
    NOW,
    SECOND,
    a_backfill,
    claimed,
    failed,
    firing,
    given_ended,
    given_job,
    given_node,
    given_running,
    ids,
    one_shot,
    pages,
    recurring,
    retried,
    skipped,
    slot_run,
)

LATER = NOW + MINUTE


async def listed(store: Store, limit: int = 100, **which: Any) -> list[Run]:
    return await pages(lambda cursor, size: store.list_runs(RunFilter(**which), cursor=cursor, limit=size), limit)


async def listed_jobs(store: Store, limit: int = 100, **which: Any) -> list[Job]:
    return await pages(lambda cursor, size: store.list_jobs(JobFilter(**which), cursor=cursor, limit=size), limit)


async def given_all_states(store: Store, **changes: Any) -> dict[State, Run]:
    """A one-shot in every state, each due a second after the one before."""
    node = await given_node(store)
    runs = {state: one_shot(NOW - n * SECOND, **changes) for n, state in enumerate(State)}
    await acts.create(store, list(runs.values()))
    held = {run.id: run for run in await claimed(store, node, queues=[changes.get("queue", "default")])}
    now = {state: held[run.id] for state, run in runs.items()}
    started = {state: start(run, NOW) for state, run in now.items()}
    await store.start([started[State.RUNNING]])
    settled = {
        State.SCHEDULED: give_back(now[State.SCHEDULED], NOW),
        State.RETRYING: retried(started[State.RETRYING]),
        State.SUCCEEDED: succeed(started[State.SUCCEEDED], None, NOW),
        State.FAILED: failed(started[State.FAILED]),
        State.CANCELLED: cancel(now[State.CANCELLED], NOW),
        State.SKIPPED: skip(now[State.SKIPPED], Reason.OVERLAP, NOW),
    }
    assert all(await store.settle(list(settled.values())))
    return {
        **{state: result.run for state, result in settled.items()},
        State.CLAIMED: now[State.CLAIMED],
        State.RUNNING: started[State.RUNNING],
    }


# --- runs


async def test_runs_are_listed_by_due_time_latest_first(store: Store) -> None:
    runs = [one_shot(NOW + n * SECOND) for n in (3, 1, 4, 1, 5)]
    await acts.create(store, runs)
    found = await listed(store, owner="ada")
    assert [run.due_at for run in found] == sorted((run.due_at for run in runs), reverse=True)
    assert sorted(ids(found)) == sorted(ids(runs))


async def test_live_and_ended_runs_make_one_list(store: Store) -> None:
    runs = await given_all_states(store)
    found = await listed(store, owner="ada")
    assert found == sorted(runs.values(), key=lambda run: run.due_at, reverse=True)


@pytest.mark.parametrize("state", State)
async def test_runs_are_listed_by_state(store: Store, state: State) -> None:
    runs = await given_all_states(store)
    await given_all_states(store, owner="bob", queue="bobs")
    filters: list[dict[str, Any]] = [
        {"owner": "ada"},
        {"owner": "ada", "task": "demo.echo"},
        {"owner": "ada", "queue": "default"},
    ]
    for which in filters:
        assert await listed(store, states=frozenset({state}), **which) == [runs[state]]
    assert len(await listed(store, states=frozenset({state}))) == 2


@pytest.mark.parametrize(
    "states",
    [frozenset(), FINAL, frozenset(State) - FINAL, frozenset({State.RUNNING, State.FAILED}), frozenset(State)],
    ids=lambda states: "+".join(sorted(states)) or "none",
)
async def test_runs_are_listed_by_several_states(store: Store, states: frozenset[State]) -> None:
    runs = await given_all_states(store)
    found = await listed(store, 2, owner="ada", states=states)
    expected = [runs[state] for state in states]
    assert found == sorted(expected, key=lambda run: run.due_at, reverse=True)


async def test_runs_are_listed_by_owner_task_and_queue(store: Store) -> None:
    runs = {
        (owner, task, queue): one_shot(owner=owner, task=task, queue=queue)
        for owner in ("ada", "bob")
        for task in ("a", "b")
        for queue in ("x", "y")
    }
    await acts.create(store, list(runs.values()))
    for owner in ("ada", "bob", None):
        for task in ("a", "b", None):
            for queue in ("x", "y", None):
                expected = [
                    run.id
                    for key, run in runs.items()
                    if all(want in (None, have) for want, have in zip((owner, task, queue), key, strict=True))
                ]
                assert sorted(ids(await listed(store, 3, owner=owner, task=task, queue=queue))) == sorted(expected)
    assert await listed(store, owner="ada", task="c") == []
    assert await listed(store, owner="eve") == []


async def test_runs_are_listed_by_time(store: Store) -> None:
    runs = [one_shot(NOW + n * SECOND) for n in range(6)]
    await acts.create(store, runs)
    await given_ended(store, one_shot(NOW - DAY))
    filters: list[dict[str, Any]] = [{"owner": "ada"}, {}, {"owner": "ada", "task": "demo.echo"}]
    for which in filters:
        found = await listed(store, 2, start_at=NOW + 2 * SECOND, end_at=NOW + 5 * SECOND, **which)
        assert ids(found) == ids([runs[4], runs[3], runs[2]])
        assert len(await listed(store, end_at=NOW, **which)) == 1


async def test_waiting_runs_are_told_apart_by_whether_they_are_due(store: Store) -> None:
    past, exact, future = one_shot(NOW - SECOND), one_shot(NOW), one_shot(NOW + timedelta(microseconds=1))
    await acts.create(store, [past, exact, future])
    unstarted = frozenset({State.SCHEDULED, State.CLAIMED})
    for owner in ("ada", None):
        assert ids(await listed(store, owner=owner, states=unstarted, due=True, now=NOW)) == ids([exact, past])
        assert ids(await listed(store, owner=owner, states=unstarted, due=False, now=NOW)) == ids([future])
    window: dict[str, Any] = {"states": unstarted, "due": True, "now": NOW, "start_at": NOW}
    assert ids(await listed(store, owner="ada", **window)) == ids([exact])


async def test_runs_that_are_being_cancelled_are_told_apart(store: Store) -> None:
    asked, other = await given_running(store, one_shot(NOW - SECOND), one_shot())
    [ended] = await given_ended(store, one_shot())
    await acts.request_stop(store, [asked.id], Reason.CANCELLED)
    filters: list[dict[str, Any]] = [
        {"owner": "ada"},
        {},
        {"owner": "ada", "task": "demo.echo"},
        {"owner": "ada", "queue": "default"},
    ]
    for which in filters:
        assert ids(await listed(store, stopping=True, **which)) == [asked.id]
        assert sorted(ids(await listed(store, stopping=False, **which))) == sorted([other.id, ended.id])
    running = frozenset({State.RUNNING})
    assert ids(await listed(store, owner="ada", states=running, stopping=False)) == [other.id]
    assert ids(await listed(store, owner="ada", states=running, stopping=True)) == [asked.id]
    assert await listed(store, owner="bob", stopping=True) == []


async def test_runs_are_listed_by_job(store: Store) -> None:
    job = recurring()
    runs = [slot_run(job, NOW + n * MINUTE) for n in range(3)]
    await given_job(store, job, *runs)
    shot = one_shot()
    manual = replace(one_shot(LATER), job_id=shot.job_id, schedule=None, trigger=Trigger.MANUAL)
    await acts.create(store, [shot, manual])
    node = await given_node(store)
    [first] = [run for run in await claimed(store, node) if run.id == runs[0].id]
    await store.settle([cancel(first, NOW)])

    assert ids(await listed(store, 2, job_id=job.id)) == ids([runs[2], runs[1], runs[0]])
    assert ids(await listed(store, job_id=job.id, states=frozenset({State.CANCELLED}))) == [runs[0].id]
    live = frozenset({State.SCHEDULED, State.CLAIMED})
    assert ids(await listed(store, job_id=job.id, states=live, owner="ada")) == ids([runs[2], runs[1]])
    assert ids(await listed(store, job_id=job.id, start_at=LATER, end_at=LATER + SECOND)) == [runs[1].id]
    assert await listed(store, job_id=job.id, owner="bob") == []
    assert ids(await listed(store, job_id=shot.job_id)) == ids([manual, shot])
    assert ids(await listed(store, job_id=shot.job_id, states=live)) == ids([manual, shot])


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
async def test_pages_hold_each_run_once_even_among_equal_times(store: Store, limit: int) -> None:
    runs = [one_shot(NOW - n % 3 * SECOND) for n in range(20)]
    await acts.create(store, runs)
    node = await given_node(store)
    held = await claimed(store, node, limit=10)
    await store.settle([cancel(run, NOW) for run in held])

    found = await listed(store, limit, owner="ada")

    assert sorted(ids(found)) == sorted(ids(runs))
    assert [run.due_at for run in found] == sorted((run.due_at for run in runs), reverse=True)


@pytest.mark.parametrize("limit", [2, 5, 100])
@pytest.mark.parametrize("states", [None, frozenset({State.CANCELLED}), frozenset({State.SUCCEEDED})], ids=str)
async def test_pages_are_in_order_whatever_the_days_on_which_runs_ended(
    store: Store, limit: int, states: frozenset[State] | None
) -> None:
    """On days before, around and after today, sooner than they were due as well as later."""
    today = datetime.now(UTC)
    node = await given_node(store)
    runs = [
        one_shot(today + due * DAY, queue=queue, created_at=today + due * DAY)
        for due in range(-4, 4)
        for queue in ("default", "mail", "reports")
        for _ in range(3)
    ]
    await acts.create(store, runs)
    held = await claimed(store, node, now=today, until=today + 9 * DAY, queues=["default", "mail", "reports"])
    ends = [today + day * DAY for day in (-6, -2, -1, 0, 0, 2)]
    results = [
        (cancel(run, at) if place % 2 else succeed(start(run, at), None, at))
        for place, (run, at) in enumerate(zip(held, cycle(ends), strict=False))
        if place % 7
    ]
    assert all(await store.settle(results))
    everything = [result.run for result in results] + [run for place, run in enumerate(held) if not place % 7]
    wanted = [run for run in everything if states is None or run.state in states]

    found = await listed(store, limit, states=states)

    assert ids(found) == ids(sorted(wanted, key=lambda run: (run.due_at, run.id), reverse=True))
    if states is None:
        jobs = await listed_jobs(store, limit)
        assert [job.id for job in jobs] == sorted(ids(runs), reverse=True)


async def test_a_cursor_stays_true_while_runs_arrive_and_end(store: Store) -> None:
    runs = [one_shot(NOW - n // 2 * SECOND) for n in range(40)]
    await acts.create(store, runs)
    node = await given_node(store)
    seen: list[str] = []
    cursor: str | None = None
    while True:
        page = await store.list_runs(RunFilter(owner="ada"), cursor=cursor, limit=7)
        seen += ids(page.items)
        cursor = page.cursor
        if cursor is None:
            break
        await acts.create(store, [one_shot(NOW + SECOND), one_shot(NOW - DAY, owner="bob")])
        await store.settle([cancel(run, NOW) for run in await claimed(store, node, limit=9, until=NOW - SECOND)])

    assert seen == list(dict.fromkeys(seen)), "no run comes twice"
    assert set(ids(runs)) <= set(seen), "none is left out"


async def test_the_last_page_has_no_cursor(store: Store) -> None:
    await acts.create(store, [one_shot() for _ in range(4)])
    page = await store.list_runs(RunFilter(owner="ada"), cursor=None, limit=4)
    assert (len(page.items), page.cursor) == (4, None)
    jobs = await store.list_jobs(JobFilter(owner="ada"), cursor=None, limit=4)
    assert (len(jobs.items), jobs.cursor) == (4, None)


@pytest.mark.parametrize(
    "cursor", ["x", "bm9wZQ", "WzFd", "WyJ4IiwgInkiXQ", "💥", "WyJ4Il0", "Wzk5OTk5OTk5OTk5OTk5OTk5OSwxXQ"]
)
async def test_a_cursor_that_is_not_ours_is_refused(store: Store, cursor: str) -> None:
    with pytest.raises(Invalid, match="cursor"):
        await store.list_runs(RunFilter(owner="ada"), cursor=cursor, limit=4)
    with pytest.raises(Invalid, match="cursor"):
        await store.list_jobs(JobFilter(owner="ada"), cursor=cursor, limit=4)


# --- jobs


async def test_jobs_and_one_shots_make_one_list_newest_first(store: Store) -> None:
    job, live = recurring(), one_shot()
    await acts.create(store, [firing(job, slot_run(job, LATER)), live])
    [ended] = await given_ended(store, one_shot())
    newest = recurring()
    await given_job(store, newest)

    assert ids(await listed_jobs(store, owner="ada")) == [newest.id, ended.id, live.id, job.id]
    assert ids(await listed_jobs(store, 1)) == [newest.id, ended.id, live.id, job.id]
    assert await listed_jobs(store, owner="bob") == []


async def given_jobs_of_every_status(store: Store) -> dict[JobStatus, list[str]]:
    recurrings = {status: recurring(status=status) for status in JobStatus}
    await acts.create(store, [firing(job) for job in recurrings.values()])
    [finished] = await given_ended(store, one_shot())
    scheduled, paused, cancelled = one_shot(), one_shot(LATER, paused=True), one_shot(LATER)
    await acts.create(store, [scheduled, paused, cancelled])
    await store.settle([cancel(cancelled, NOW)])
    shots = {
        JobStatus.SCHEDULED: scheduled,
        JobStatus.PAUSED: paused,
        JobStatus.FINISHED: finished,
        JobStatus.CANCELLED: cancelled,
    }
    return {status: [shots[status].id, recurrings[status].id] for status in JobStatus}


@pytest.mark.parametrize("status", JobStatus)
async def test_jobs_are_listed_by_status(store: Store, status: JobStatus) -> None:
    jobs = await given_jobs_of_every_status(store)
    assert ids(await listed_jobs(store, 1, owner="ada", status=status)) == jobs[status]
    assert ids(await listed_jobs(store, status=status)) == jobs[status]


async def test_a_one_shot_whose_cancel_is_not_confirmed_is_cancelled(store: Store) -> None:
    [run] = await given_running(store, one_shot())
    await acts.request_stop(store, [run.id], Reason.CANCELLED)
    assert ids(await listed_jobs(store, owner="ada", status=JobStatus.CANCELLED)) == [run.id]
    assert await listed_jobs(store, owner="ada", status=JobStatus.SCHEDULED) == []


async def test_jobs_are_listed_by_what_they_are(store: Store) -> None:
    fields: dict[str, Any] = {"task": "t", "name": "n", "key": "k", "queue": "q", "labels": {"team": "a", "env": "x"}}
    job, shot = recurring(**fields), one_shot(**{**fields, "key": "k2"})
    [ended] = await given_ended(store, one_shot(name="n", queue="q", labels={"team": "b"}))
    await acts.create(store, [firing(job), shot, one_shot(), firing(recurring())])

    async def found(**which: Any) -> list[str]:
        mine = sorted(ids(await listed_jobs(store, 2, owner="ada", **which)))
        assert sorted(ids(await listed_jobs(store, **which))) == mine
        return mine

    assert await found(task="t") == sorted([job.id, shot.id])
    assert await found(name="n") == sorted([job.id, shot.id, ended.id])
    assert await found(queue="q") == sorted([job.id, shot.id, ended.id])
    assert await found(key="k") == [job.id]
    assert await found(key="k2") == [shot.id]
    assert await found(label=("team", None)) == sorted([job.id, shot.id, ended.id])
    assert await found(label=("team", "a")) == sorted([job.id, shot.id])
    assert await found(label=("team", "c")) == []
    assert await found(label=("env", "x"), status=JobStatus.SCHEDULED, task="t") == sorted([job.id, shot.id])


async def test_keys_of_ended_one_shots_are_found(store: Store) -> None:
    [first] = await given_ended(store, one_shot(key="k"))
    [second] = await given_ended(store, one_shot(key="k"))
    third = one_shot(key="k")
    await acts.create(store, [third, one_shot(key="other")])
    assert ids(await listed_jobs(store, 1, owner="ada", key="k")) == ids([third, second, first])
    assert ids(await listed_jobs(store, owner="ada", key="k", status=JobStatus.FINISHED)) == ids([second, first])


async def test_jobs_are_searched_by_text_in_any_case(store: Store) -> None:
    by_name, by_task, by_key = one_shot(name="Big 100%_Report"), one_shot(task="Mail.BIG"), one_shot(key="biG")
    job = recurring(name="the big one")
    await acts.create(store, [by_name, by_task, by_key, firing(job), one_shot(name="other")])
    found = [by_name.id, by_task.id, by_key.id, job.id]
    assert sorted(ids(await listed_jobs(store, 3, owner="ada", text="big"))) == sorted(found)
    assert sorted(ids(await listed_jobs(store, 3, text="BIg"))) == sorted(found)
    assert ids(await listed_jobs(store, owner="ada", text="100%_r")) == [by_name.id]
    assert ids(await listed_jobs(store, owner="ada", text="%")) == [by_name.id], "no wildcards"
    assert await listed_jobs(store, owner="ada", text="1_0") == []


async def test_case_is_known_beyond_ascii(store: Store) -> None:
    runs = [one_shot(name="Überweisung"), one_shot(name="ÜBER"), one_shot(key="gegenüber")]
    await acts.create(store, [*runs, one_shot(name="uber")])
    assert sorted(ids(await listed_jobs(store, owner="ada", text="über"))) == sorted(ids(runs))


async def test_jobs_are_listed_by_the_state_of_their_last_run(store: Store) -> None:
    runs = await given_all_states(store)
    quiet, busy, never = recurring(), recurring(), recurring()
    last, before, ahead = slot_run(busy, NOW), slot_run(busy, NOW - MINUTE), slot_run(busy, LATER)
    old = slot_run(quiet, NOW - DAY)
    await acts.create(store, [firing(quiet, old), firing(busy, before, last, ahead), firing(never)])
    node = await given_node(store)
    held = {run.id: run for run in await claimed(store, node)}
    await store.settle(
        [
            failed(start(held[last.id], NOW)),
            succeed(start(held[before.id], NOW), None, NOW),
            succeed(start(held[old.id], NOW), None, NOW),
        ]
    )

    expectations: dict[State, list[str]] = {
        State.FAILED: [busy.id, runs[State.FAILED].id],
        State.SUCCEEDED: [quiet.id, runs[State.SUCCEEDED].id],
        State.RUNNING: [runs[State.RUNNING].id],
    }
    for state, expected in expectations.items():
        for owner in ("ada", None):
            found = await listed_jobs(store, 1, owner=owner, last_run_states=frozenset({state}), now=NOW)
            assert sorted(ids(found)) == sorted(expected)


async def test_a_cursor_of_jobs_stays_true_while_jobs_arrive_and_end(store: Store) -> None:
    items: list[Run | Firing] = [
        one_shot(),
        *(firing(recurring()) for _ in range(10)),
        *(one_shot() for _ in range(20)),
    ]
    await acts.create(store, items)
    expected = [item.job.id if isinstance(item, Firing) else item.id for item in items]
    node = await given_node(store)
    seen: list[str] = []
    cursor: str | None = None
    while True:
        page = await store.list_jobs(JobFilter(owner="ada"), cursor=cursor, limit=6)
        seen += ids(page.items)
        cursor = page.cursor
        if cursor is None:
            break
        await acts.create(store, [one_shot(LATER), firing(recurring())])
        await store.settle([cancel(run, NOW) for run in await claimed(store, node, limit=5)])
    assert seen == sorted(expected, reverse=True)


# --- the rest


async def test_the_last_run_of_a_job_is_the_latest_that_is_due(store: Store) -> None:
    job, future, unknown = recurring(), recurring(), recurring()
    ended, live, ahead = slot_run(job, NOW - DAY), slot_run(job, NOW - MINUTE), slot_run(job, LATER)
    await acts.create(store, [firing(job, ended, live, ahead), firing(future, slot_run(future, LATER))])
    node = await given_node(store)
    [oldest] = await claimed(store, node, limit=1)
    assert oldest.id == ended.id
    settled = cancel(oldest, NOW)
    await store.settle([settled])
    [shot] = await given_ended(store, one_shot(), node=await given_node(store))
    waiting = one_shot(LATER)
    await acts.create(store, [waiting])

    job_ids = [job.id, future.id, unknown.id, shot.job_id, waiting.job_id]
    found = await store.last_runs(job_ids, now=NOW)

    assert {job_id: run.id for job_id, run in found.items()} == {job.id: live.id, shot.job_id: shot.id}
    assert (await store.last_runs([job.id], now=NOW - MINUTE - SECOND)) == {job.id: settled.run}


async def test_a_manual_run_of_a_one_shot_is_its_last_run(store: Store) -> None:
    [shot] = await given_ended(store, one_shot(NOW - MINUTE))
    manual = replace(one_shot(), job_id=shot.job_id, schedule=None, trigger=Trigger.MANUAL)
    await acts.create(store, [manual])
    assert await store.last_runs([shot.job_id], now=NOW) == {shot.job_id: manual}


async def test_the_ledger_tells_of_every_slot_in_a_range(store: Store) -> None:
    job = recurring()
    runs = [slot_run(job, NOW + n * MINUTE) for n in range(5)]
    inside, across, outside = (
        skipped(job, NOW - 5 * MINUTE, NOW - 3 * MINUTE, 3),
        skipped(job, NOW - 2 * MINUTE, NOW - MINUTE, 2, Reason.TOO_LATE),
        skipped(job, NOW - DAY, NOW - DAY, 1),
    )
    rest, asked = a_backfill(job, NOW - DAY), a_backfill(job, NOW, trigger=Trigger.BACKFILL)
    manual = replace(slot_run(job, NOW), trigger=Trigger.MANUAL, slot=None)
    backfilled = replace(slot_run(job, NOW), trigger=Trigger.BACKFILL)
    await acts.create(store, [firing(job, *runs, skips=(across, inside, outside), backfill=rest), manual, backfilled])
    await acts.backfill(store, asked)
    node = await given_node(store)
    held = {run.id: run for run in await claimed(store, node)}
    await store.settle([cancel(held[runs[0].id], NOW)])

    ledger = await store.ledger(job.id, start=NOW - 4 * MINUTE, end=NOW + 3 * MINUTE, limit=100)

    assert ids(ledger.runs) == ids(runs[:4])
    assert ledger.runs[0].state is State.CANCELLED
    assert list(ledger.skips) == [inside, across]
    assert list(ledger.backfills) == [asked]
    whole = await store.ledger(job.id, start=NOW - 2 * DAY, end=NOW + DAY, limit=2)
    assert ids(whole.runs) == ids(runs[:2])
    assert list(whole.skips) == [outside, inside, across]
    assert list(whole.backfills) == [rest, asked]
    nothing = await store.ledger(recurring().id, start=NOW, end=LATER, limit=5)
    assert (nothing.runs, nothing.skips, nothing.backfills) == ([], [], [])


async def test_the_ledger_goes_by_slots_not_by_due_times(store: Store) -> None:
    job = recurring()
    jittery = slot_run(job, NOW, due_at=LATER, wake_at=LATER)
    await given_job(store, job, jittery)
    assert ids((await store.ledger(job.id, start=NOW, end=NOW, limit=5)).runs) == [jittery.id]
    assert (await store.ledger(job.id, start=LATER, end=LATER, limit=5)).runs == []


async def test_queues_tell_how_much_waits_and_runs(store: Store) -> None:
    def depth(queue: str, waiting: int, oldest: datetime | None, running: int = 0) -> QueueDepth:
        return QueueDepth(queue=queue, depth=waiting, oldest_due_at=oldest, running=running)

    await given_ended(store, one_shot(queue="over"))
    await acts.create(store, [one_shot(NOW - n * SECOND, queue="mail", priority=n) for n in range(3)])
    await acts.create(store, [one_shot(LATER, queue="mail"), one_shot(LATER, queue="later")])
    await acts.create(store, [one_shot(LATER, queue="paused", paused=True), one_shot(NOW - MINUTE, queue="held")])
    line = [one_shot(NOW - MINUTE, queue="line", gate="g"), one_shot(NOW, queue="line", gate="g")]
    await acts.create(store, line)
    await acts.park(store, [line[1]])
    node = await given_node(store)
    [held] = await claimed(store, node, queues=["held"])

    assert list(await store.queues(now=NOW)) == [
        depth("held", 1, NOW - MINUTE),
        depth("later", 0, None),
        depth("line", 2, NOW - MINUTE),
        depth("mail", 3, NOW - 2 * SECOND),
        depth("paused", 0, None),
    ]

    await store.start([start(held, NOW)])
    assert (await store.queues(now=NOW))[0] == depth("held", 0, None, running=1)
