"""Idempotency: a request that is repeated gets the answer of the first, and nothing is done twice."""

import asyncio
from datetime import date, datetime, timedelta
from typing import Any

import pytest

from horae.core.decisions.firing import Firing
from horae.core.decisions.new_runs import manual_run
from horae.core.decisions.results import start, succeed
from horae.core.model import JobStatus, Run
from horae.core.records import IDEMPOTENCY_LIFE, IdempotencyRecord
from horae.core.values import replace
from horae.lookup import find_job, find_request, find_run
from horae.ports.reader import RunFilter
from horae.ports.store import Store
from tests import acts
from tests.acts import NOBODY, JobChange, WithRecord
from tests.conformance.builders import (
    DAY,
    MINUTE,
    NOW,
    ODD,
    SECOND,
    a_backfill,
    claimed,
    firing,
    given_job,
    given_node,
    ids,
    new_id,
    one_shot,
    recurring,
    slot_run,
)
from tests.conformance.conftest import Connect

ALL_SHARDS = range(64)


def a_record(key: str = "k", **changes: Any) -> IdempotencyRecord:
    """What is to be remembered of a request."""
    record = IdempotencyRecord(
        owner="ada", key=key, fingerprint="f", answer=f'201 {{"id": "{new_id()}"}}', created_at=NOW
    )
    return replace(record, **changes)


def with_record(item: Run | Firing, key: str = "k", **changes: Any) -> WithRecord:
    return WithRecord(item=item, record=a_record(key, **changes))


async def stored(store: Store, owner: str = "ada") -> list[Run]:
    return list((await store.list_runs(RunFilter(owner=owner), cursor=None, limit=1000)).items)


# --- creating


async def test_the_first_request_is_done_and_its_record_is_kept(store: Store) -> None:
    run, job, late = one_shot(), recurring(), one_shot(key="mine")
    requests = [with_record(run, "a"), with_record(firing(job, slot_run(job, NOW)), "b"), with_record(late, "c")]

    assert await acts.create(store, requests) == [run.job_id, job.id, late.job_id]

    assert await find_run(store, run.id, owner=None) == run
    assert await find_job(store, job.id, owner=None) is not None
    for request in requests:
        assert await find_request(store, "ada", request.record.key, now=NOW) == request.record


async def test_a_repeated_request_gets_the_first_answer_and_writes_nothing(store: Store) -> None:
    run = one_shot()
    first = with_record(run)
    await acts.create(store, [first])

    again = with_record(one_shot(), fingerprint="another", created_at=NOW + MINUTE)
    assert await acts.create(store, [again]) == [first.record]

    assert ids(await stored(store)) == [run.id]
    assert await find_request(store, "ada", "k", now=NOW) == first.record


async def test_a_repeated_request_for_a_recurring_job_writes_nothing_of_it(store: Store) -> None:
    job, other = recurring(key="k"), recurring(key="other")
    first = with_record(firing(job))
    await acts.create(store, [first])
    assert await acts.create(store, [with_record(firing(other, slot_run(other, NOW)))]) == [first.record]
    assert await find_job(store, other.id, owner=None) is None
    assert await stored(store) == []
    another = recurring(key="other")
    assert await acts.create(store, [firing(another)]) == [another.id], "the key was not taken"


async def test_a_manual_run_may_have_a_record(store: Store) -> None:
    job = await given_job(store)
    once, twice = (with_record(manual_run(job, now=NOW, new_id=new_id)) for _ in range(2))
    assert await acts.create(store, [once]) == [job.id]
    assert await acts.create(store, [twice]) == [once.record]
    assert len(await stored(store)) == 1


async def test_a_record_is_good_long_after_its_job_has_ended(store: Store) -> None:
    run = one_shot(key="mine")
    first = with_record(run)
    await acts.create(store, [first])
    [held] = await claimed(store, await given_node(store))
    assert await store.settle([succeed(start(held, NOW), None, NOW)]) == [True]
    assert await acts.create(
        store, [with_record(one_shot(key="mine"), created_at=NOW + IDEMPOTENCY_LIFE - SECOND)]
    ) == [first.record]


async def test_two_of_a_batch_with_one_record_are_one(store: Store) -> None:
    runs = [one_shot() for _ in range(4)]
    batch = [with_record(runs[0], "a"), with_record(runs[1], "b"), with_record(runs[2], "a"), runs[3]]
    assert await acts.create(store, batch) == [runs[0].id, runs[1].id, batch[0].record, runs[3].id]
    assert sorted(ids(await stored(store))) == sorted([runs[0].id, runs[1].id, runs[3].id])


async def test_where_a_key_is_taken_no_record_is_kept(store: Store) -> None:
    """Both are written, or neither: when the key is free again the request may be repeated."""
    holder = one_shot(key="k")
    await acts.create(store, [holder])
    refused, also = one_shot(key="k"), one_shot(key="fresh")
    assert await acts.create(store, [with_record(refused, "a"), with_record(also, "b")]) == [holder.job_id, also.job_id]
    assert await find_request(store, "ada", "a", now=NOW) is None
    assert await find_request(store, "ada", "b", now=NOW) is not None
    assert await find_run(store, refused.id, owner=None) is None


async def test_one_of_a_batch_whose_key_is_taken_leaves_its_record_to_the_next(store: Store) -> None:
    await acts.create(store, [one_shot(key="taken")])
    refused, free = with_record(one_shot(key="taken"), "a"), with_record(one_shot(key="free"), "a")
    answers = await acts.create(store, [refused, free])
    assert not isinstance(free.item, Firing)
    assert answers[1] == free.item.job_id
    assert await find_request(store, "ada", "a", now=NOW) == free.record


async def test_records_belong_to_their_owners(store: Store) -> None:
    mine, yours = one_shot(), one_shot(owner="bob")
    assert await acts.create(store, [with_record(mine), with_record(yours, owner="bob")]) == [mine.id, yours.id]
    assert await find_request(store, "bob", "k", now=NOW) != await find_request(store, "ada", "k", now=NOW)
    assert await find_request(store, "eve", "k", now=NOW) is None


async def test_any_text_can_be_a_key_and_an_answer(store: Store) -> None:
    record = a_record(f"{ODD}/17", owner=ODD, answer=ODD * 1000, fingerprint="0" * 64)
    assert await acts.create(store, [WithRecord(item=one_shot(owner=ODD), record=record)]) != [record]
    assert await find_request(store, ODD, f"{ODD}/17", now=NOW) == record
    assert await acts.create(store, [WithRecord(item=one_shot(owner=ODD), record=record)]) == [record]


async def test_of_many_at_once_one_is_done_and_all_get_its_answer(store: Store, connect: Connect) -> None:
    stores = [store, await connect(), await connect()]
    requests = [with_record(one_shot()) for _ in range(30)]

    answers = await asyncio.gather(
        *(acts.create(stores[number % 3], [request]) for number, request in enumerate(requests))
    )

    [winner] = [request for request, [answer] in zip(requests, answers, strict=True) if isinstance(answer, str)]
    assert not isinstance(winner.item, Firing)
    assert ids(await stored(store)) == [winner.item.id]
    others = [answer for [answer] in answers if not isinstance(answer, str)]
    assert others == [winner.record] * 29


async def test_large_batches_with_records_are_taken(store: Store) -> None:
    batch = [with_record(one_shot(), str(number)) for number in range(2000)]
    assert [answer for answer in await acts.create(store, batch) if isinstance(answer, IdempotencyRecord)] == []
    again = [with_record(one_shot(), str(number)) for number in range(1000, 3000)]
    answers = await acts.create(store, again)
    assert answers[:1000] == [request.record for request in batch[1000:]]
    assert len(await acts.create(store, [])) == 0
    assert [answer for answer in answers[1000:] if isinstance(answer, IdempotencyRecord)] == []


# --- how long they hold


@pytest.mark.parametrize(
    ("later", "valid"), [(timedelta(0), True), (IDEMPOTENCY_LIFE - SECOND, True), (IDEMPOTENCY_LIFE + SECOND, False)]
)
async def test_records_hold_for_a_day(store: Store, later: timedelta, valid: bool) -> None:
    first, again = with_record(one_shot()), with_record(one_shot(), created_at=NOW + later)
    await acts.create(store, [first])
    assert await find_request(store, "ada", "k", now=NOW + later) == (first.record if valid else None)

    [answer] = await acts.create(store, [again])

    assert isinstance(answer, IdempotencyRecord) is valid
    assert await find_request(store, "ada", "k", now=NOW + later) == (first if valid else again).record


@pytest.mark.lacks("dynamodb", reason="TTL deletes expired records there, and for nothing")
async def test_expired_records_are_deleted_in_bounded_steps(store: Store) -> None:
    old = [with_record(one_shot(), f"old/{number}", created_at=NOW - DAY) for number in range(25)]
    new = with_record(one_shot(), "new")
    await acts.create(store, [*old, new])
    now = NOW + SECOND

    steps = [await store.prune(before=date.min, now=now, limit=10) for _ in range(5)]

    assert steps == [10, 10, 5, 0, 0]
    assert await find_request(store, "ada", "old/0", now=NOW - DAY) is None
    assert await find_request(store, "ada", "new", now=now) == new.record
    assert len(await stored(store)) == 26, "what they were about stays"


# --- other acts


async def test_a_manual_run_that_its_cancelled_job_refuses_leaves_no_record(store: Store) -> None:
    job = await given_job(store, recurring(plan_at=None))
    before, after = (manual_run(job, now=NOW, new_id=new_id) for _ in range(2))
    kept = with_record(before, "a")
    assert await acts.create(store, [kept]) == [job.id]
    changed = replace(job, status=JobStatus.CANCELLED, revision=job.revision + 1)
    assert await acts.change(store, JobChange(job=changed, expected=job.revision)) is not None

    requests = [with_record(after, "a"), with_record(after, "b"), with_record(after, "b")]
    assert await acts.create(store, requests) == [kept.record, NOBODY, NOBODY]

    assert await find_request(store, "ada", "b", now=NOW) is None
    assert await find_run(store, after.id, owner=None) is None


async def test_a_backfill_begins_once(store: Store) -> None:
    job = await given_job(store, recurring(plan_at=None))
    first, again = a_record(), a_record(created_at=NOW + SECOND)
    backfill = a_backfill(job)

    assert await acts.backfill(store, backfill, first) is True
    assert await acts.backfill(store, a_backfill(job, end=NOW + DAY), again) == first

    found = (await store.plannable(ALL_SHARDS, now=NOW, limit=10)).backfills
    assert [each for each, _ in found] == [backfill]
    assert await find_request(store, "ada", "k", now=NOW) == first


async def test_a_backfill_of_a_cancelled_job_does_not_begin_and_leaves_no_record(store: Store) -> None:
    job = await given_job(store, recurring(plan_at=None))
    first, other = a_record("a"), a_record("b")
    backfill = a_backfill(job)
    assert await acts.backfill(store, backfill, first) is True
    changed = replace(job, status=JobStatus.CANCELLED, revision=job.revision + 1)
    assert await acts.change(store, JobChange(job=changed, expected=job.revision)) is not None

    assert await acts.backfill(store, a_backfill(job), a_record("a")) == first
    assert await acts.backfill(store, a_backfill(job), other) is False
    assert await acts.backfill(store, a_backfill(job)) is False

    assert await find_request(store, "ada", "b", now=NOW) is None
    assert [each for each, _ in (await store.plannable(ALL_SHARDS, now=NOW, limit=10)).backfills] == [backfill]


async def test_a_backfill_needs_no_record(store: Store) -> None:
    job = await given_job(store, recurring(plan_at=None))
    assert await acts.backfill(store, a_backfill(job)) is True
    assert await acts.backfill(store, a_backfill(job)) is True
    assert len((await store.plannable(ALL_SHARDS, now=NOW, limit=10)).backfills) == 2


async def test_the_answer_to_an_act_that_is_over_is_kept_once(store: Store) -> None:
    def at(moment: datetime) -> IdempotencyRecord:
        return a_record(created_at=moment)

    first, second, third = at(NOW), at(NOW + SECOND), at(NOW + IDEMPOTENCY_LIFE + SECOND)
    assert await acts.keep_record(store, first) == first
    assert await acts.keep_record(store, first) == first
    assert await acts.keep_record(store, second) == first
    assert await find_request(store, "ada", "k", now=NOW) == first
    assert await acts.keep_record(store, third) == third, "the first has expired"
    assert await find_request(store, "ada", "k", now=third.created_at) == third


async def test_of_many_that_keep_an_answer_one_holds(store: Store, connect: Connect) -> None:
    stores = [store, await connect()]
    records = [a_record() for _ in range(20)]
    kept = await asyncio.gather(*(acts.keep_record(stores[n % 2], record) for n, record in enumerate(records)))
    assert len({record.answer for record in kept}) == 1
    assert await find_request(store, "ada", "k", now=NOW) == kept[0]


async def test_creating_and_keeping_share_their_keys(store: Store) -> None:
    record = a_record()
    await acts.keep_record(store, record)
    assert await acts.create(store, [with_record(one_shot())]) == [record]
    assert await stored(store) == []
