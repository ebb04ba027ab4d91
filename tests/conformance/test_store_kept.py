"""What an owner keeps: counted page by page, each row once, whatever others keep."""

import pytest

from horae.core.decisions.quotas import NOTHING, Amount
from horae.core.drafts import MAX_INLINE_PARAMS
from horae.core.model import JobStatus
from horae.ports.reader import Kept
from horae.ports.store import Store
from tests import acts
from tests.conformance.builders import (
    MINUTE,
    NOW,
    SECOND,
    given_claimed,
    given_ended,
    given_job,
    given_running,
    one_shot,
    recurring,
    slot_run,
)

PARAMS = '{"a": "ä"}'
SIZE = len(PARAMS.encode())


async def kept(store: Store, part: Kept, *, owner: str = "ada", limit: int = 100) -> list[Amount]:
    """The amounts of all pages."""
    found: list[Amount] = []
    cursor = None
    while True:
        page = await store.kept_by(owner, part, cursor=cursor, limit=limit)
        found.append(page.amount)
        if (cursor := page.cursor) is None:
            return found
        assert len(found) < 100


@pytest.mark.parametrize("part", Kept)
async def test_whoever_has_nothing_keeps_nothing(store: Store, part: Kept) -> None:
    await acts.create(store, [one_shot(owner="bob")])
    await given_job(store, recurring(owner="bob"))
    await given_ended(store, one_shot(owner="bob"))
    assert await kept(store, part) == [NOTHING]


async def test_live_runs_count_in_every_state_until_they_end(store: Store) -> None:
    later = [one_shot(NOW + MINUTE, params=PARAMS, queue="mail"), one_shot(NOW + MINUTE, params=PARAMS, paused=True)]
    await acts.create(store, [*later, one_shot(owner="bob")])
    job = recurring(params=PARAMS)
    await given_job(store, job, slot_run(job, NOW + MINUTE))
    await given_claimed(store, one_shot(params=PARAMS))
    await given_running(store, one_shot(params=PARAMS, queue="web"))
    await given_ended(store, one_shot(params=PARAMS, queue="gone"))
    [amount] = await kept(store, Kept.LIVE)
    assert amount == Amount(waiting=5, queues=frozenset({"default", "mail", "web"}), stored_bytes=5 * SIZE)


async def test_recurring_jobs_count_until_they_end_and_their_bytes_afterwards(store: Store) -> None:
    await given_job(store, recurring(params=PARAMS, queue="mail"))
    await given_job(store, recurring(params=PARAMS, status=JobStatus.PAUSED, plan_at=None))
    await given_job(store, recurring(params=PARAMS, queue="gone", status=JobStatus.CANCELLED, plan_at=None))
    await given_job(store, recurring(params=PARAMS, owner="bob"))
    [amount] = await kept(store, Kept.JOBS)
    assert amount == Amount(recurring=2, queues=frozenset({"mail", "default"}), stored_bytes=3 * SIZE)


async def test_ended_runs_count_their_bytes_and_their_results(store: Store) -> None:
    await given_ended(store, one_shot(params=PARAMS), one_shot(params=PARAMS, queue="mail"))
    await acts.create(store, [one_shot(params=PARAMS)])
    [amount] = await kept(store, Kept.ENDED)
    assert amount == Amount(stored_bytes=2 * (SIZE + len('"done"')))


async def test_labels_and_secrets_are_stored_bytes(store: Store) -> None:
    await acts.create(store, [one_shot(params="{}", secrets="sealed", labels={"a": "b"})])
    [amount] = await kept(store, Kept.LIVE)
    assert amount.stored_bytes == len("{}") + len("sealed") + len('{"a":"b"}')


async def test_large_parameters_count_what_their_blob_has_or_the_least_that_one_has(store: Store) -> None:
    await store.blobs.put([("params/here", b"x" * 100_000)])
    await acts.create(store, [one_shot(params_blob="params/here"), one_shot(params_blob="params/elsewhere")])
    await given_job(store, recurring(params_blob="params/here"))
    assert sum(amount.stored_bytes for amount in await kept(store, Kept.LIVE)) == 100_000 + MAX_INLINE_PARAMS + 2 * 2
    assert sum(amount.stored_bytes for amount in await kept(store, Kept.JOBS)) == 100_000 + 2


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
async def test_pages_count_each_row_once(store: Store, limit: int) -> None:
    await acts.create(
        store,
        [one_shot(NOW + (n % 3) * SECOND, params=PARAMS, queue=f"q{n % 2}", task=f"t{n % 3}") for n in range(10)],
    )
    for n in range(5):
        await given_job(store, recurring(params=PARAMS, queue=f"q{n % 2}"))
    live, jobs = await kept(store, Kept.LIVE, limit=limit), await kept(store, Kept.JOBS, limit=limit)
    assert sum(amount.waiting for amount in live) == 10
    assert sum(amount.stored_bytes for amount in live) == 10 * SIZE
    assert max(amount.waiting for amount in live) <= limit
    assert sum(amount.recurring for amount in jobs) == 5
    assert max(amount.recurring for amount in jobs) <= limit
    assert {queue for amount in (*live, *jobs) for queue in amount.queues} == {"q0", "q1"}


@pytest.mark.parametrize("limit", [1, 2, 3])
async def test_pages_of_ended_runs_count_each_once(store: Store, limit: int) -> None:
    runs = [one_shot(NOW - (n % 2) * SECOND, params=PARAMS, queue=f"q{n % 2}") for n in range(7)]
    await given_ended(store, *runs)
    await acts.create(store, [one_shot(NOW + MINUTE, params=PARAMS) for _ in range(3)])
    found = await kept(store, Kept.ENDED, limit=limit)
    assert sum(amount.stored_bytes for amount in found) == 7 * (SIZE + len('"done"'))
