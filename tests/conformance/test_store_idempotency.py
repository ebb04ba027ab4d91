"""Receipts: a request that is repeated gets the answer of the first, and nothing is done twice."""

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest

from horae.core.decisions.firing import Firing
from horae.core.decisions.new_runs import manual_run
from horae.core.decisions.results import start, succeed
from horae.core.model import JobStatus, Run
from horae.core.records import RECEIPT_LIFE, Receipt
from horae.core.values import replace
from horae.ports.reader import RunFilter
from horae.ports.store import Store
from tests import acts
from tests.acts import NOBODY, JobChange, Receipted
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


def a_receipt(key: str = "k", **changes: Any) -> Receipt:
    """What is to be remembered of a request."""
    receipt = Receipt(owner="ada", key=key, fingerprint="f", answer=f'201 {{"id": "{new_id()}"}}', created_at=NOW)
    return replace(receipt, **changes)


def receipted(item: Run | Firing, key: str = "k", **changes: Any) -> Receipted:
    return Receipted(item=item, receipt=a_receipt(key, **changes))


async def stored(store: Store, owner: str = "ada") -> list[Run]:
    return list((await store.list_runs(RunFilter(owner=owner), cursor=None, limit=1000)).items)


# --- creating


async def test_the_first_request_is_done_and_its_receipt_is_kept(store: Store) -> None:
    run, job, late = one_shot(), recurring(), one_shot(key="mine")
    requests = [receipted(run, "a"), receipted(firing(job, slot_run(job, NOW)), "b"), receipted(late, "c")]

    assert await acts.create(store, requests) == [run.job_id, job.id, late.job_id]

    assert await store.run(run.id, owner=None) == run
    assert await store.job(job.id, owner=None) is not None
    for request in requests:
        assert await store.receipt("ada", request.receipt.key, now=NOW) == request.receipt


async def test_a_repeated_request_gets_the_first_answer_and_writes_nothing(store: Store) -> None:
    run = one_shot()
    first = receipted(run)
    await acts.create(store, [first])

    again = receipted(one_shot(), fingerprint="another", created_at=NOW + MINUTE)
    assert await acts.create(store, [again]) == [first.receipt]

    assert ids(await stored(store)) == [run.id]
    assert await store.receipt("ada", "k", now=NOW) == first.receipt


async def test_a_repeated_request_for_a_recurring_job_writes_nothing_of_it(store: Store) -> None:
    job, other = recurring(key="k"), recurring(key="other")
    first = receipted(firing(job))
    await acts.create(store, [first])
    assert await acts.create(store, [receipted(firing(other, slot_run(other, NOW)))]) == [first.receipt]
    assert await store.job(other.id, owner=None) is None
    assert await stored(store) == []
    another = recurring(key="other")
    assert await acts.create(store, [firing(another)]) == [another.id], "the key was not taken"


async def test_a_manual_run_may_have_a_receipt(store: Store) -> None:
    job = await given_job(store)
    once, twice = (receipted(manual_run(job, None, now=NOW, new_id=new_id)) for _ in range(2))
    assert await acts.create(store, [once]) == [job.id]
    assert await acts.create(store, [twice]) == [once.receipt]
    assert len(await stored(store)) == 1


async def test_a_receipt_is_good_long_after_its_job_has_ended(store: Store) -> None:
    run = one_shot(key="mine")
    first = receipted(run)
    await acts.create(store, [first])
    [held] = await claimed(store, await given_node(store))
    assert await store.settle([succeed(start(held, NOW), None, NOW)]) == [True]
    assert await acts.create(store, [receipted(one_shot(key="mine"), created_at=NOW + RECEIPT_LIFE - SECOND)]) == [
        first.receipt
    ]


async def test_two_of_a_batch_with_one_receipt_are_one(store: Store) -> None:
    runs = [one_shot() for _ in range(4)]
    batch = [receipted(runs[0], "a"), receipted(runs[1], "b"), receipted(runs[2], "a"), runs[3]]
    assert await acts.create(store, batch) == [runs[0].id, runs[1].id, batch[0].receipt, runs[3].id]
    assert sorted(ids(await stored(store))) == sorted([runs[0].id, runs[1].id, runs[3].id])


async def test_where_a_key_is_taken_no_receipt_is_kept(store: Store) -> None:
    """Both are written, or neither: when the key is free again the request may be repeated."""
    holder = one_shot(key="k")
    await acts.create(store, [holder])
    refused, also = one_shot(key="k"), one_shot(key="fresh")
    assert await acts.create(store, [receipted(refused, "a"), receipted(also, "b")]) == [holder.job_id, also.job_id]
    assert await store.receipt("ada", "a", now=NOW) is None
    assert await store.receipt("ada", "b", now=NOW) is not None
    assert await store.run(refused.id, owner=None) is None


async def test_one_of_a_batch_whose_key_is_taken_leaves_its_receipt_to_the_next(store: Store) -> None:
    await acts.create(store, [one_shot(key="taken")])
    refused, free = receipted(one_shot(key="taken"), "a"), receipted(one_shot(key="free"), "a")
    answers = await acts.create(store, [refused, free])
    assert not isinstance(free.item, Firing)
    assert answers[1] == free.item.job_id
    assert await store.receipt("ada", "a", now=NOW) == free.receipt


async def test_receipts_belong_to_their_owners(store: Store) -> None:
    mine, yours = one_shot(), one_shot(owner="bob")
    assert await acts.create(store, [receipted(mine), receipted(yours, owner="bob")]) == [mine.id, yours.id]
    assert await store.receipt("bob", "k", now=NOW) != await store.receipt("ada", "k", now=NOW)
    assert await store.receipt("eve", "k", now=NOW) is None


async def test_any_text_can_be_a_key_and_an_answer(store: Store) -> None:
    receipt = a_receipt(f"{ODD}/17", owner=ODD, answer=ODD * 1000, fingerprint="0" * 64)
    assert await acts.create(store, [Receipted(item=one_shot(owner=ODD), receipt=receipt)]) != [receipt]
    assert await store.receipt(ODD, f"{ODD}/17", now=NOW) == receipt
    assert await acts.create(store, [Receipted(item=one_shot(owner=ODD), receipt=receipt)]) == [receipt]


async def test_of_many_at_once_one_is_done_and_all_get_its_answer(store: Store, connect: Connect) -> None:
    stores = [store, await connect(), await connect()]
    requests = [receipted(one_shot()) for _ in range(30)]

    answers = await asyncio.gather(
        *(acts.create(stores[number % 3], [request]) for number, request in enumerate(requests))
    )

    [winner] = [request for request, [answer] in zip(requests, answers, strict=True) if isinstance(answer, str)]
    assert not isinstance(winner.item, Firing)
    assert ids(await stored(store)) == [winner.item.id]
    others = [answer for [answer] in answers if not isinstance(answer, str)]
    assert others == [winner.receipt] * 29


async def test_large_batches_with_receipts_are_taken(store: Store) -> None:
    batch = [receipted(one_shot(), str(number)) for number in range(2000)]
    assert [answer for answer in await acts.create(store, batch) if isinstance(answer, Receipt)] == []
    again = [receipted(one_shot(), str(number)) for number in range(1000, 3000)]
    answers = await acts.create(store, again)
    assert answers[:1000] == [request.receipt for request in batch[1000:]]
    assert len(await acts.create(store, [])) == 0
    assert [answer for answer in answers[1000:] if isinstance(answer, Receipt)] == []


# --- how long they hold


@pytest.mark.parametrize(
    ("later", "valid"), [(timedelta(0), True), (RECEIPT_LIFE - SECOND, True), (RECEIPT_LIFE + SECOND, False)]
)
async def test_receipts_hold_for_a_day(store: Store, later: timedelta, valid: bool) -> None:
    first, again = receipted(one_shot()), receipted(one_shot(), created_at=NOW + later)
    await acts.create(store, [first])
    assert await store.receipt("ada", "k", now=NOW + later) == (first.receipt if valid else None)

    [answer] = await acts.create(store, [again])

    assert isinstance(answer, Receipt) is valid
    assert await store.receipt("ada", "k", now=NOW + later) == (first if valid else again).receipt


async def test_expired_receipts_are_deleted_in_bounded_steps(store: Store) -> None:
    old = [receipted(one_shot(), f"old/{number}", created_at=NOW - DAY) for number in range(25)]
    new = receipted(one_shot(), "new")
    await acts.create(store, [*old, new])
    now = NOW + SECOND

    steps = [await store.expire(now=now, limit=10) for _ in range(5)]

    assert steps == [10, 10, 5, 0, 0]
    assert await store.receipt("ada", "old/0", now=NOW - DAY) is None
    assert await store.receipt("ada", "new", now=now) == new.receipt
    assert len(await stored(store)) == 26, "what they were about stays"


# --- other acts


async def test_a_manual_run_that_its_cancelled_job_refuses_leaves_no_receipt(store: Store) -> None:
    job = await given_job(store, recurring(plan_at=None))
    before, after = (manual_run(job, None, now=NOW, new_id=new_id) for _ in range(2))
    kept = receipted(before, "a")
    assert await acts.create(store, [kept]) == [job.id]
    changed = replace(job, status=JobStatus.CANCELLED, revision=job.revision + 1)
    assert await acts.change(store, JobChange(job=changed, expected=job.revision)) is not None

    requests = [receipted(after, "a"), receipted(after, "b"), receipted(after, "b")]
    assert await acts.create(store, requests) == [kept.receipt, NOBODY, NOBODY]

    assert await store.receipt("ada", "b", now=NOW) is None
    assert await store.run(after.id, owner=None) is None


async def test_a_backfill_begins_once(store: Store) -> None:
    job = await given_job(store, recurring(plan_at=None))
    first, again = a_receipt(), a_receipt(created_at=NOW + SECOND)
    backfill = a_backfill(job)

    assert await acts.backfill(store, backfill, first) is True
    assert await acts.backfill(store, a_backfill(job, end=NOW + DAY), again) == first

    found = (await store.plannable(ALL_SHARDS, now=NOW, limit=10)).backfills
    assert [each for each, _ in found] == [backfill]
    assert await store.receipt("ada", "k", now=NOW) == first


async def test_a_backfill_of_a_cancelled_job_does_not_begin_and_leaves_no_receipt(store: Store) -> None:
    job = await given_job(store, recurring(plan_at=None))
    first, other = a_receipt("a"), a_receipt("b")
    backfill = a_backfill(job)
    assert await acts.backfill(store, backfill, first) is True
    changed = replace(job, status=JobStatus.CANCELLED, revision=job.revision + 1)
    assert await acts.change(store, JobChange(job=changed, expected=job.revision)) is not None

    assert await acts.backfill(store, a_backfill(job), a_receipt("a")) == first
    assert await acts.backfill(store, a_backfill(job), other) is False
    assert await acts.backfill(store, a_backfill(job)) is False

    assert await store.receipt("ada", "b", now=NOW) is None
    assert [each for each, _ in (await store.plannable(ALL_SHARDS, now=NOW, limit=10)).backfills] == [backfill]


async def test_a_backfill_needs_no_receipt(store: Store) -> None:
    job = await given_job(store, recurring(plan_at=None))
    assert await acts.backfill(store, a_backfill(job)) is True
    assert await acts.backfill(store, a_backfill(job)) is True
    assert len((await store.plannable(ALL_SHARDS, now=NOW, limit=10)).backfills) == 2


async def test_the_answer_to_an_act_that_is_over_is_kept_once(store: Store) -> None:
    def at(moment: datetime) -> Receipt:
        return a_receipt(created_at=moment)

    first, second, third = at(NOW), at(NOW + SECOND), at(NOW + RECEIPT_LIFE + SECOND)
    assert await acts.keep_receipt(store, first) == first
    assert await acts.keep_receipt(store, first) == first
    assert await acts.keep_receipt(store, second) == first
    assert await store.receipt("ada", "k", now=NOW) == first
    assert await acts.keep_receipt(store, third) == third, "the first has expired"
    assert await store.receipt("ada", "k", now=third.created_at) == third


async def test_of_many_that_keep_an_answer_one_holds(store: Store, connect: Connect) -> None:
    stores = [store, await connect()]
    receipts = [a_receipt() for _ in range(20)]
    kept = await asyncio.gather(*(acts.keep_receipt(stores[n % 2], receipt) for n, receipt in enumerate(receipts)))
    assert len({receipt.answer for receipt in kept}) == 1
    assert await store.receipt("ada", "k", now=NOW) == kept[0]


async def test_creating_and_keeping_share_their_keys(store: Store) -> None:
    receipt = a_receipt()
    await acts.keep_receipt(store, receipt)
    assert await acts.create(store, [receipted(one_shot())]) == [receipt]
    assert await stored(store) == []
