"""Searches look at a bounded number of rows for a page: it may be short or empty, and goes on where it ended."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from horae.core.decisions.results import cancel, start, succeed
from horae.core.ids import born_at
from horae.core.lifecycle import FINAL
from horae.core.model import JobStatus, Run, State, Trigger
from horae.core.values import replace
from horae.ports.reader import JobFilter, Listing, RunFilter
from horae.ports.store import Store
from tests import acts
from tests.conformance.builders import (
    DAY,
    MINUTE,
    NOW,
    SECOND,
    claimed,
    failed,
    given_claimed,
    given_job,
    given_node,
    given_running,
    ids,
    one_shot,
    recurring,
    retried,
    slot_run,
)

LIMITS = (1, 3, 100)


async def searched(store: Store, which: RunFilter | JobFilter, limit: int, look: int | None) -> list[Listing[Any]]:
    """The pages of a search."""
    pages: list[Listing[Any]] = []
    cursor = None
    while not pages or cursor is not None:
        if isinstance(which, RunFilter):
            pages.append(await store.list_runs(which, cursor=cursor, limit=limit, look=look))
        else:
            pages.append(await store.list_jobs(which, cursor=cursor, limit=limit, look=look))
        assert pages[-1].cursor is None or pages[-1].cursor != cursor, "a page gets on"
        cursor = pages[-1].cursor
    return pages


def found(pages: Sequence[Listing[Any]]) -> list[str]:
    return [item.id for page in pages for item in page.items]


# --- pages


async def given_runs(store: Store, triggers: str, step: timedelta = SECOND) -> list[Run]:
    """A run for each letter, `m` for manual and `s` for schedule, the latest first."""
    kinds = {"m": Trigger.MANUAL, "s": Trigger.SCHEDULE}
    runs = [one_shot(NOW - place * step, trigger=kinds[each]) for place, each in enumerate(triggers)]
    await acts.create(store, runs)
    return runs


MANUAL = RunFilter(owner="ada", trigger=Trigger.MANUAL)


@pytest.mark.parametrize("triggers", ["", "ssss", "m", "mmmmmmmmm", "smssssmmsssssssmsm", "sssssssssssm"])
async def test_a_search_finds_each_run_once_whatever_the_pages(store: Store, triggers: str) -> None:
    expected = [run.id for run in await given_runs(store, triggers) if run.trigger is Trigger.MANUAL]
    for limit in LIMITS:
        assert found(await searched(store, MANUAL, limit, look=4)) == expected


async def test_a_page_that_found_too_little_says_how_far_it_searched(store: Store) -> None:
    runs = await given_runs(store, "m" + "s" * 60 + "m")
    first, *others = await searched(store, MANUAL, 5, look=20)
    assert ids(first.items) == [runs[0].id]
    assert first.cursor is not None
    assert first.searched_to is not None
    assert NOW - 30 * SECOND <= first.searched_to <= NOW - 5 * SECOND
    assert len(others) >= 2
    times = [page.searched_to for page in (first, *others)]
    assert times[-1] is None, "the last page has searched everything"
    assert times[:-1] == sorted(times[:-1], reverse=True)
    assert found(others) == [runs[-1].id]


async def test_a_page_that_is_full_says_nothing_of_it(store: Store) -> None:
    await given_runs(store, "m" * 30)
    page = await store.list_runs(MANUAL, cursor=None, limit=5, look=5)
    assert (len(page.items), page.searched_to) == (5, None)


async def test_without_a_bound_a_page_is_searched_for_to_the_end(store: Store) -> None:
    runs = await given_runs(store, "s" * 60 + "m")
    [page] = await searched(store, MANUAL, 5, look=None)
    assert (ids(page.items), page.searched_to) == ([runs[-1].id], None)


async def test_runs_that_are_due_at_one_instant_are_searched_page_by_page(store: Store) -> None:
    runs = await given_runs(store, "s" * 40 + "m", step=timedelta())
    assert found(await searched(store, MANUAL, 3, look=10)) == [runs[-1].id]
    assert sorted(found(await searched(store, RunFilter(owner="ada"), 7, look=10))) == sorted(ids(runs))


async def test_jobs_are_searched_by_the_time_of_their_creation(store: Store) -> None:
    jobs = [one_shot(NOW + MINUTE, name=f"job {number}") for number in range(60)]
    await acts.create(store, jobs)
    first, *others = await searched(store, JobFilter(owner="ada", text="JOB 1"), 50, look=30)
    assert first.searched_to is not None
    assert born_at(jobs[0].id) <= first.searched_to <= born_at(jobs[-1].id)
    expected = [job.id for job in reversed(jobs) if str(job.spec.name).startswith("job 1")]
    assert found([first, *others]) == expected


# --- what runs are searched for


async def test_runs_are_found_by_label_text_worker_error_and_lateness(store: Store) -> None:
    one, two = await given_node(store), await given_node(store)
    labelled = one_shot(NOW, labels={"team": "blue"}, name="Nightly REPORT")
    other = one_shot(NOW - SECOND, labels={"team": "red"}, key="report-7")
    [late] = await given_running(store, one_shot(NOW - MINUTE), node=one, at=NOW)
    [broken] = await given_running(store, one_shot(NOW - 2 * MINUTE), node=two, at=NOW - 2 * MINUTE)
    await store.settle([failed(broken), succeed(late, None, NOW)])
    await acts.create(store, [labelled, other])

    async def by(**which: Any) -> list[str]:
        return found(await searched(store, RunFilter(owner="ada", **which), 10, look=100))

    assert await by(label=("team", None)) == [labelled.id, other.id]
    assert await by(label=("team", "red")) == [other.id]
    assert await by(label=("team", "green")) == []
    assert await by(text="report") == [labelled.id, other.id]
    assert await by(text="Nightly rep") == [labelled.id]
    assert await by(text="ECHO") == [labelled.id, other.id, late.id, broken.id]
    assert await by(node=one) == [late.id]
    assert await by(node=two, states=frozenset({State.FAILED})) == [broken.id]
    assert await by(error_type="ValueError") == [broken.id]
    assert await by(error_type="Value") == []
    assert await by(min_lateness=MINUTE) == [late.id]
    assert await by(min_lateness=MINUTE + SECOND) == []
    assert await by(min_lateness=timedelta(milliseconds=1), node=two) == []


async def test_other_letters_are_found_in_upper_and_lower_case(store: Store) -> None:
    await acts.create(store, [one_shot(NOW, name="GRÜSSE")])
    assert len(found(await searched(store, RunFilter(owner="ada", text="grüss"), 10, look=100))) == 1
    assert len(found(await searched(store, JobFilter(owner="ada", text="grüss"), 10, look=100))) == 1


# --- a bound changes the pages, not what is found


async def given_many(store: Store) -> None:
    """Jobs and runs of several owners, queues, tasks, times and states."""
    random = Random(16)
    node = await given_node(store, tasks={"demo.echo": "{}", "demo.sleep": "{}"})

    def made(**changes: Any) -> Run:
        due_at = NOW - random.choice((timedelta(), SECOND, MINUTE, 2 * DAY)) * random.randrange(5)
        spec = {"queue": random.choice("ab"), "task": random.choice(("demo.echo", "demo.sleep"))}
        spec |= {"labels": {"team": random.choice(("blue", "red"))}} if random.random() < 0.5 else {}
        spec |= {"name": random.choice(("alpha", "Beta", "gamma"))} if random.random() < 0.5 else {}
        spec |= {"key": random.choice("kl")} if random.random() < 0.2 else {}
        trigger = random.choice((Trigger.SCHEDULE, Trigger.MANUAL))
        return one_shot(due_at, owner=random.choice(("ada", "ada", "bob")), **{"trigger": trigger, **spec, **changes})

    await store.create([made() for _ in range(40)])
    held = await claimed(store, node, tasks=("demo.echo", "demo.sleep"), limit=40)
    ends: list[Callable[[Run], Any]] = [
        lambda run: succeed(run, None, run.due_at + MINUTE),
        lambda run: failed(run, max(run.due_at, NOW)),
        lambda run: cancel(run, NOW),
        lambda run: retried(run, NOW),
    ]
    began = [start(run, run.due_at + random.randrange(3) * SECOND) for run in held]
    await store.start(began[:5])
    assert all(await store.settle([random.choice(ends)(run) for run in began[5:]]))
    await store.create([made(paused=random.random() < 0.2) for _ in range(30)])
    for place in range(10):
        job = recurring(name=random.choice(("alpha", "delta")), queue=random.choice("ab"))
        slots = [slot_run(job, NOW - (place + number) * MINUTE) for number in range(random.randrange(6))]
        await given_job(store, job, *slots)


RUN_FILTERS = [
    {},
    {"text": "alpha"},
    {"text": "nowhere"},
    {"trigger": Trigger.MANUAL},
    {"label": ("team", "blue")},
    {"queue": "a"},
    {"task": "demo.sleep", "text": "beta"},
    {"states": frozenset({State.FAILED, State.CANCELLED})},
    {"states": frozenset({State.SUCCEEDED}), "min_lateness": SECOND},
    {"states": frozenset(State) - FINAL, "label": ("team", None)},
    {"states": frozenset({State.RETRYING}), "stopping": False},
    {"states": frozenset({State.RUNNING})},
    {"error_type": "ValueError"},
    {"dead_letters": True},
    {"dead_letters": True, "queue": "b", "error_type": "ValueError"},
    {"start_at": NOW - 3 * MINUTE, "end_at": NOW, "text": "a"},
]
JOB_FILTERS = [
    {},
    {"text": "alpha"},
    {"text": "nowhere"},
    {"label": ("team", "red")},
    {"key": "k"},
    {"queue": "a", "name": "gamma"},
    {"status": JobStatus.FINISHED, "text": "a"},
    {"status": JobStatus.CANCELLED},
    {"status": JobStatus.PAUSED},
    {"status": JobStatus.SCHEDULED, "task": "demo.sleep"},
    {"last_run_states": frozenset({State.FAILED}), "now": NOW},
    {"last_run_states": frozenset({State.SCHEDULED, State.CLAIMED}), "now": NOW},
]


async def test_a_bound_changes_the_pages_and_not_what_is_found(store: Store) -> None:
    await given_many(store)
    filters: list[RunFilter | JobFilter] = [
        kind(owner=owner, **which)
        for kind, group in ((RunFilter, RUN_FILTERS), (JobFilter, JOB_FILTERS))
        for which in group
        for owner in ("ada", None)
    ]
    for which in filters:
        [whole] = await searched(store, which, 1000, look=None)
        for limit, look in ((3, 1), (9, 40)):
            pages = await searched(store, which, limit, look=look)
            assert found(pages) == ids(whole.items), (which, limit, look)


async def test_runs_of_one_job_are_searched_page_by_page(store: Store) -> None:
    job = recurring()
    ended = [slot_run(job, NOW - (100 + place) * MINUTE) for place in range(20)]
    waiting = [slot_run(job, NOW - place * MINUTE) for place in range(20)]
    by_hand = [replace(slot_run(job, NOW - place * MINUTE), trigger=Trigger.MANUAL, slot=None) for place in (5, 5, 15)]
    await given_job(store, job, *ended)
    held = await claimed(store, await given_node(store), limit=100)
    assert all(await store.settle([failed(start(run, run.due_at)) for run in held]))
    await store.create([*waiting, *by_hand])
    for which in (
        RunFilter(job_id=job.id),
        RunFilter(job_id=job.id, trigger=Trigger.MANUAL),
        RunFilter(job_id=job.id, states=frozenset({State.SCHEDULED}), trigger=Trigger.MANUAL),
        RunFilter(job_id=job.id, error_type="ValueError"),
        RunFilter(job_id=job.id, dead_letters=True, error_type="Other"),
    ):
        [whole] = await searched(store, which, 1000, look=None)
        for limit, look in ((1, 1), (3, 4), (100, 10)):
            assert found(await searched(store, which, limit, look=look)) == ids(whole.items), (which, limit, look)


async def test_what_nodes_hold_is_found_behind_many_that_wait(store: Store) -> None:
    """Acts rely on it, and ask without a bound."""
    job = recurring()
    await given_job(store, job)
    runs = [slot_run(job, NOW - place * SECOND) for place in range(30)]
    [held] = await given_claimed(store, runs[-1])
    await store.create(runs[:-1])
    found_held = await store.list_runs(
        RunFilter(job_id=job.id, states=frozenset({State.CLAIMED})), cursor=None, limit=1
    )
    assert ids(found_held.items) == [held.id]
