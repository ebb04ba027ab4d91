"""Dead letters: failed runs that wait for somebody to look at them, by a requeue or by giving them up."""

import asyncio

import pytest

from horae.core.decisions.new_runs import requeued
from horae.core.decisions.results import Failure, Settled, cancel, fail
from horae.core.model import JobError, Run, RunId, State, Trigger
from horae.core.records import IdempotencyRecord
from horae.core.values import replace
from horae.lookup import find_request, find_run
from horae.ports.reader import RunFilter
from horae.ports.store import Store
from tests import acts
from tests.acts import Resolution
from tests.conformance.builders import (
    DAY,
    MINUTE,
    NOW,
    ODD,
    SECOND,
    claimed,
    given_ended,
    given_job,
    given_node,
    given_running,
    ids,
    new_id,
    one_shot,
    pages,
    recurring,
    slot_run,
)
from tests.conformance.conftest import Connect

OOPS = JobError(type="ValueError", message=ODD)
LETTERS = RunFilter(dead_letters=True)


def broken(run: Run, error: JobError = OOPS) -> Settled:
    """The attempt failed for good."""
    return fail(run, Failure(error=error, fatal=True), NOW, 0.0)


async def given_letters(store: Store, *runs: Run, error: JobError = OOPS) -> list[Run]:
    """Runs that failed for good."""
    results = [broken(run, error) for run in await given_running(store, *runs)]
    assert await store.settle(results) == [True] * len(runs)
    return [result.run for result in results]


async def listed(store: Store, which: RunFilter = LETTERS) -> list[str]:
    return ids((await store.list_runs(which, cursor=None, limit=100)).items)


def again(letter: Run) -> Run:
    return requeued(letter, now=NOW, new_id=new_id)


def a_record(key: str = "k", answer: str = "the answer") -> IdempotencyRecord:
    return IdempotencyRecord(owner="ada", key=key, fingerprint="f", answer=answer, created_at=NOW)


async def test_failed_runs_are_counted_and_others_are_not(store: Store) -> None:
    assert await store.count_dead_letters() == 0
    await given_ended(store, one_shot())
    letters = await given_letters(store, one_shot(), one_shot(task="demo.echo", queue="other"))
    assert await store.count_dead_letters() == 2
    await acts.resolve(store, [Resolution(run_id=letters[0].id)], now=NOW)
    assert await store.count_dead_letters() == 1


# --- lists


async def test_letters_are_what_failed_and_is_not_resolved_latest_first(store: Store) -> None:
    await given_ended(store, one_shot())
    unwanted, waiting = one_shot(), one_shot()
    await acts.create(store, [unwanted, waiting])
    await store.settle([cancel(unwanted, NOW)])
    early, late, resolved = await given_letters(
        store, one_shot(NOW - MINUTE), one_shot(NOW - SECOND), one_shot(NOW - 2 * SECOND)
    )
    await acts.resolve(store, [Resolution(run_id=resolved.id)], now=NOW)
    found = (await store.list_runs(LETTERS, cursor=None, limit=10)).items
    assert list(found) == [late, early]


async def test_letters_are_filtered(store: Store) -> None:
    job = recurring(owner="ada", task="demo.echo")
    slot = slot_run(job, NOW)
    await given_job(store, job)
    runs = {
        "mine": one_shot(NOW - 2 * SECOND),
        "queue": one_shot(NOW - 3 * SECOND, queue="mail"),
        "theirs": one_shot(NOW - 4 * SECOND, owner="bob"),
        "slot": slot,
    }
    await given_letters(store, *runs.values())
    named = {run.id: name for name, run in runs.items()}

    async def names(**which: object) -> list[str]:
        return [named[RunId(ident)] for ident in await listed(store, replace(LETTERS, **which))]

    assert await names() == ["slot", "mine", "queue", "theirs"]
    assert await names(owner="ada") == ["slot", "mine", "queue"]
    assert await names(owner="ada", queue="mail") == ["queue"]
    assert await names(task="demo.echo", owner="bob") == ["theirs"]
    assert await names(task="other") == []
    assert await names(job_id=job.id) == ["slot"]
    assert await names(job_id=runs["mine"].job_id, owner="ada") == ["mine"]
    assert await names(job_id=runs["mine"].job_id, owner="bob") == []
    assert await names(start_at=NOW - 3 * SECOND, end_at=NOW) == ["mine", "queue"]


@pytest.mark.parametrize("kind", ["TimeoutError", 'Odd"\\Error', "Ünïcode", ODD])
@pytest.mark.parametrize("owner", [None, "ada"])
async def test_letters_are_found_by_the_type_of_their_error(store: Store, kind: str, owner: str | None) -> None:
    [other] = await given_letters(store, one_shot())
    [wanted] = await given_letters(store, one_shot(), error=JobError(type=kind, message=f'"type":"{OOPS.type}"'))
    assert await listed(store, replace(LETTERS, owner=owner, error_type=kind)) == [wanted.id]
    assert await listed(store, replace(LETTERS, owner=owner, error_type=OOPS.type)) == [other.id]
    assert await listed(store, replace(LETTERS, owner=owner, error_type=kind[:-1])) == []
    assert await listed(store, replace(LETTERS, job_id=wanted.job_id, error_type=kind)) == [wanted.id]


@pytest.mark.parametrize("owner", [None, "ada"])
async def test_letters_are_listed_page_by_page(store: Store, owner: str | None) -> None:
    letters = await given_letters(store, *(one_shot(NOW - n % 3 * SECOND, queue=f"q{n % 2}") for n in range(11)))
    which = replace(LETTERS, owner=owner)
    found = await pages(lambda cursor, limit: store.list_runs(which, cursor=cursor, limit=limit), 3)
    expected = sorted(letters, key=lambda run: run.due_at, reverse=True)
    assert [run.due_at for run in found] == [run.due_at for run in expected]
    assert sorted(ids(found)) == sorted(ids(letters))


# --- groups


async def test_letters_are_grouped_by_task_and_error_the_most_frequent_first(store: Store) -> None:
    timeout = JobError(type="timeout", message="it took longer than 5 s")
    await given_letters(store, one_shot(NOW - MINUTE), error=timeout)
    many = await given_letters(store, *(one_shot(NOW - n * SECOND) for n in range(3)))
    await given_letters(store, one_shot(NOW - DAY), error=replace(OOPS, message="another"))
    await given_ended(store, one_shot())

    groups = await store.dead_letter_groups(LETTERS)

    assert [(group.error, group.task, group.count) for group in groups] == [
        (OOPS, "demo.echo", 3),
        (timeout, "demo.echo", 1),
        (replace(OOPS, message="another"), "demo.echo", 1),
    ]
    first = groups[0]
    assert (first.oldest_at, first.newest_at, first.example) == (NOW - 2 * SECOND, NOW, many[0].id)


async def test_groups_take_the_same_filters_as_the_list(store: Store) -> None:
    job = recurring()
    await given_job(store, job)
    await given_letters(store, slot_run(job, NOW), one_shot(owner="bob"), one_shot(queue="mail"))

    async def count(**which: object) -> int:
        return sum(group.count for group in await store.dead_letter_groups(replace(LETTERS, **which)))

    assert await count() == 3
    assert await count(owner="ada") == 2
    assert await count(owner="ada", queue="mail") == 1
    assert await count(owner="bob", error_type="ValueError") == 1
    assert await count(owner="bob", error_type="OtherError") == 0
    assert await count(job_id=job.id) == 1
    assert await count(start_at=NOW + SECOND) == 0


# --- resolving


async def test_a_letter_that_is_discarded_is_resolved(store: Store) -> None:
    [letter] = await given_letters(store, one_shot())
    assert await acts.resolve(store, [Resolution(run_id=letter.id)], now=NOW) == [True]
    assert await find_run(store, letter.id, owner=None) == replace(letter, resolution="discarded")
    assert await listed(store) == []


async def test_a_letter_that_is_requeued_points_at_its_successor(store: Store) -> None:
    [letter] = await given_letters(store, one_shot())
    successor = again(letter)
    assert await acts.resolve(store, [Resolution(run_id=letter.id, successor=successor)], now=NOW) == [True]
    assert await find_run(store, letter.id, owner=None) == replace(letter, resolution=successor.id)
    assert await find_run(store, successor.id, owner=None) == successor
    assert (successor.requeue_of, successor.trigger) == (letter.id, Trigger.REQUEUE)

    [taken] = await claimed(store, await given_node(store))
    assert taken.id == successor.id
    assert taken.requeue_of == letter.id


async def test_what_is_no_letter_is_not_resolved_and_has_no_successor(store: Store) -> None:
    [done] = await given_ended(store, one_shot())
    waiting = one_shot(NOW + DAY)
    await acts.create(store, [waiting])
    [letter] = await given_letters(store, one_shot())
    unknown = replace(letter, id=RunId(new_id()))
    successors = [again(run) for run in (done, waiting, unknown)]
    resolutions = [
        Resolution(run_id=run.id, successor=successor)
        for run, successor in zip((done, waiting, unknown), successors, strict=True)
    ]
    assert await acts.resolve(store, [*resolutions, Resolution(run_id=letter.id)], now=NOW) == [
        False,
        False,
        False,
        True,
    ]
    assert [await find_run(store, successor.id, owner=None) for successor in successors] == [None, None, None]
    assert await find_run(store, done.id, owner=None) == done


async def test_a_letter_is_resolved_once(store: Store) -> None:
    [letter] = await given_letters(store, one_shot())
    first, second, third = again(letter), again(letter), again(letter)
    both = [Resolution(run_id=letter.id, successor=run) for run in (first, second)]
    assert await acts.resolve(store, both, now=NOW) == [True, False]
    assert await acts.resolve(store, [Resolution(run_id=letter.id, successor=third)], now=NOW) == [False]
    assert await claimed(store, await given_node(store)) == [
        replace(first, state=State.CLAIMED, fence=1, node=(await store.nodes())[-1].id)
    ]


async def test_of_many_who_resolve_a_letter_at_once_one_does(store: Store, connect: Connect) -> None:
    letters = await given_letters(store, *(one_shot() for _ in range(10)))
    others = [store, await connect(), await connect()]

    async def resolve(who: Store) -> list[bool | IdempotencyRecord]:
        resolutions = [Resolution(run_id=letter.id, successor=again(letter)) for letter in letters]
        return await acts.resolve(who, resolutions, now=NOW)

    answers = await asyncio.gather(*(resolve(who) for who in others * 2))
    assert [sum(answer is True for answer in each) for each in zip(*answers, strict=True)] == [1] * len(letters)
    assert len(await claimed(store, await given_node(store))) == len(letters)


async def test_no_resolutions_are_no_work(store: Store) -> None:
    assert await acts.resolve(store, [], now=NOW) == []


async def test_a_record_is_kept_with_the_resolution_and_answers_the_next(store: Store) -> None:
    [letter] = await given_letters(store, one_shot())
    successor, record = again(letter), a_record()
    first = Resolution(run_id=letter.id, successor=successor, record=record)
    assert await acts.resolve(store, [first], now=NOW) == [True]
    assert await find_request(store, "ada", "k", now=NOW) == record

    repeated = Resolution(run_id=letter.id, successor=again(letter), record=a_record(answer="another"))
    assert await acts.resolve(store, [repeated], now=NOW) == [record]
    assert ids(await claimed(store, await given_node(store))) == [successor.id]


async def test_no_record_is_kept_of_what_was_not_resolved(store: Store) -> None:
    [done] = await given_ended(store, one_shot())
    assert await acts.resolve(store, [Resolution(run_id=done.id, record=a_record())], now=NOW) == [False]
    assert await find_request(store, "ada", "k", now=NOW) is None


async def test_a_successor_that_fails_is_a_letter_of_its_own(store: Store) -> None:
    [letter] = await given_letters(store, one_shot())
    successor = again(letter)
    await acts.resolve(store, [Resolution(run_id=letter.id, successor=successor)], now=NOW)
    [taken] = await claimed(store, await given_node(store))
    await store.settle([broken(replace(taken, state=State.RUNNING, attempt=1, started_at=NOW))])
    assert await listed(store) == [successor.id]
    found = await find_run(store, successor.id, owner=None)
    assert found is not None
    assert found.requeue_of == letter.id


# --- secrets


async def test_secrets_stay_with_a_letter_and_go_with_a_success(store: Store) -> None:
    [letter] = await given_letters(store, one_shot(secrets="v1:sealed"))
    found = await find_run(store, letter.id, owner=None)
    assert found is not None
    assert found.spec.secrets == "v1:sealed"

    [done] = await given_ended(store, one_shot(secrets="v1:sealed"))
    found = await find_run(store, done.id, owner=None)
    assert found is not None
    assert found.spec.secrets is None
