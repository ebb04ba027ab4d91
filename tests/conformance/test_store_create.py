"""Creating: what is written comes back as it was, keys are unique, and a batch sent twice is written once."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from horae.core.decisions.new_runs import manual_run
from horae.core.decisions.results import cancel, start, succeed
from horae.core.job_rules import job_of
from horae.core.model import Job, JobStatus, Reason, Run, Trigger
from horae.core.records import TaskSchema
from horae.core.schedule.types import CronSchedule, Now
from horae.core.values import replace
from horae.lookup import find_job, find_run
from horae.ports.reader import RunFilter
from horae.ports.store import Store
from tests import acts
from tests.acts import NOBODY, JobChange
from tests.conformance.builders import (
    DAY,
    MINUTE,
    NOW,
    ODD,
    SECOND,
    a_backfill,
    attempts_of,
    claimed,
    firing,
    given_ended,
    given_job,
    given_node,
    ids,
    new_id,
    one_shot,
    recurring,
    skipped,
    slot_run,
    unusual_policy,
)
from tests.conformance.conftest import Connect


async def test_a_one_shot_comes_back_as_it_was_written(store: Store) -> None:
    run = one_shot(
        NOW + SECOND,
        params='{"to": "🦉"}',
        params_blob="params/x",
        name="report",
        key="daily",
        labels={"team": "a", "größe": "1"},
        queue="mail",
        priority=-100,
        ordering_key="user-42",
        policy=unusual_policy(),
        secrets='plain:{"token": "🦉"}',
        gate="key:ada:user-42",
        paused=True,
        revision=3,
    )

    assert await acts.create(store, [run]) == [run.job_id]

    assert await find_run(store, run.id, owner="ada") == run
    assert await find_job(store, run.job_id, owner="ada") == job_of(run)


async def test_a_recurring_job_comes_back_as_it_was_fired(store: Store) -> None:
    schedule = CronSchedule(expression="0 9 * * mon-fri", timezone="Europe/Paris", jitter=timedelta(seconds=30))
    job = recurring(
        name="morning", key="k", labels={"a": "b"}, policy=unusual_policy(), secrets="v1:x", schedule=schedule
    )
    run = slot_run(job, NOW + MINUTE, gate=f"job:{job.id}")
    skip = skipped(job, NOW - MINUTE, NOW, 2)
    backfill = a_backfill(job, NOW - DAY)

    await acts.create(
        store,
        [
            firing(
                job,
                run,
                skips=(skip,),
                backfill=backfill,
                next_fire_at=NOW + DAY,
                plan_at=NOW + MINUTE,
                status=JobStatus.PAUSED,
            )
        ],
    )

    stored = replace(job, next_fire_at=NOW + DAY, plan_at=NOW + MINUTE, status=JobStatus.PAUSED)
    assert await find_job(store, job.id, owner="ada") == stored
    assert await find_run(store, run.id, owner="ada") == run
    ledger = await store.ledger(job.id, start=NOW - DAY, end=NOW + DAY, limit=10)
    assert (ledger.runs, ledger.skips, ledger.backfills) == ([run], [skip], [backfill])


async def test_a_manual_run_belongs_to_its_job(store: Store) -> None:
    job = await given_job(store)
    manual = manual_run(job, now=NOW, new_id=new_id)
    manual = replace(manual, spec=replace(manual.spec, params='{"x": 1}'))

    assert await acts.create(store, [manual]) == [job.id]

    assert await find_run(store, manual.id, owner=None) == manual
    assert (await store.list_runs(RunFilter(job_id=job.id), cursor=None, limit=10)).items == [manual]


async def job_that_stands(store: Store, status: JobStatus) -> Job:
    job = await given_job(store)
    changed = replace(job, status=status, plan_at=None, revision=job.revision + 1)
    assert await acts.change(store, JobChange(job=changed, expected=job.revision)) is not None
    return changed


@pytest.mark.parametrize("status", JobStatus)
async def test_a_manual_run_is_written_unless_its_job_is_cancelled(store: Store, status: JobStatus) -> None:
    job = await job_that_stands(store, status)
    manual, other = manual_run(job, now=NOW, new_id=new_id), one_shot()
    allowed = status is not JobStatus.CANCELLED

    assert await acts.create(store, [manual, other]) == [job.id if allowed else NOBODY, other.job_id]

    assert await find_run(store, manual.id, owner=None) == (manual if allowed else None)
    assert await find_run(store, other.id, owner=None) == other


@pytest.mark.parametrize("status", JobStatus)
async def test_a_manual_run_of_a_one_shot_is_written_unless_that_is_cancelled(store: Store, status: JobStatus) -> None:
    run = one_shot(paused=status is JobStatus.PAUSED)
    await acts.create(store, [run])
    if status is JobStatus.CANCELLED:
        assert await store.settle([cancel(run, NOW)]) == [True]
    elif status is JobStatus.FINISHED:
        [held] = await claimed(store, await given_node(store))
        assert await store.settle([succeed(start(held, NOW), None, NOW)]) == [True]
    manual, allowed = manual_run(job_of(run), now=NOW, new_id=new_id), status is not JobStatus.CANCELLED

    assert await acts.create(store, [manual]) == [run.job_id if allowed else NOBODY]

    assert await find_run(store, manual.id, owner=None) == (manual if allowed else None)


@pytest.mark.parametrize(("reason", "allowed"), [(Reason.CANCELLED, False), (Reason.PAUSED, True)])
async def test_a_one_shot_whose_worker_is_asked_for_its_end_is_cancelled(
    store: Store, reason: Reason, allowed: bool
) -> None:
    run, node = one_shot(), await given_node(store)
    await acts.create(store, [run])
    await claimed(store, node)
    assert await acts.request_stop(store, [run.id], reason) == [node]
    manual = manual_run(job_of(run), now=NOW, new_id=new_id)

    assert await acts.create(store, [manual]) == [run.job_id if allowed else NOBODY]

    assert await find_run(store, manual.id, owner=None) == (manual if allowed else None)


@pytest.mark.parametrize(
    "moment",
    [
        datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
        datetime(1999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        datetime(2038, 1, 19, 3, 14, 8, 7, tzinfo=UTC),
        datetime(2999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    ],
)
async def test_times_are_kept_to_the_microsecond(store: Store, moment: datetime) -> None:
    run = one_shot(moment)
    await acts.create(store, [run])
    assert await find_run(store, run.id, owner=None) == run


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
async def test_any_text_and_any_time_comes_back(store: Store, data: st.DataObject) -> None:
    text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=20)
    moments = st.integers(0, 10**10).map(lambda n: datetime(1970, 1, 1, tzinfo=UTC) + n * timedelta(seconds=3.141593))
    run = one_shot(
        data.draw(moments),
        owner=data.draw(text),
        task=data.draw(text),
        name=data.draw(text),
        queue=data.draw(text),
        ordering_key=data.draw(text),
        labels=data.draw(st.dictionaries(text, text, max_size=3)),
        gate=data.draw(text),
    )
    await acts.create(store, [run])
    assert await find_run(store, run.id, owner=run.owner) == run


async def test_odd_strings_are_kept_everywhere(store: Store) -> None:
    run = one_shot(
        owner=ODD, task=ODD, queue=ODD, name=ODD, key=ODD, params='{"x": "\\u0000"}', gate=ODD, labels={ODD: ODD}
    )
    await acts.create(store, [run])
    node = await given_node(store, name=ODD, tasks={ODD: ODD}, queues=(ODD,))

    [held] = await claimed(store, node, queues=[ODD], tasks=[ODD])

    assert held.spec == run.spec
    assert await store.records(TaskSchema) == [TaskSchema(name=ODD, schema=ODD)]
    assert ids((await store.list_runs(RunFilter(owner=ODD, task=ODD, queue=ODD), cursor=None, limit=9)).items) == [
        run.id
    ]


async def test_an_unfinished_job_holds_its_key(store: Store) -> None:
    first, second = one_shot(key="k"), recurring(key="k")
    foreign = one_shot(key="k", owner="bob")

    assert await acts.create(store, [first]) == [first.job_id]
    assert await acts.create(store, [firing(second, slot_run(second, NOW)), foreign]) == [first.job_id, foreign.job_id]

    assert await find_job(store, second.id, owner=None) is None
    assert (await store.list_runs(RunFilter(job_id=second.id), cursor=None, limit=9)).items == []


async def test_within_a_batch_the_first_of_a_key_wins(store: Store) -> None:
    runs = [one_shot(key="k"), one_shot(key="other"), one_shot(key="k")]
    assert await acts.create(store, runs) == [runs[0].job_id, runs[1].job_id, runs[0].job_id]
    assert await find_run(store, runs[2].id, owner=None) is None


async def test_of_two_stores_only_one_gets_a_key(store: Store, connect: Connect) -> None:
    other = await connect()
    mine, yours = [one_shot(key=f"k{n}") for n in range(20)], [one_shot(key=f"k{n}") for n in range(20)]
    for a, b in zip(mine, yours, strict=True):
        [[first], [second]] = [await acts.create(store, [a]), await acts.create(other, [b])]
        assert first == second == a.job_id


async def test_a_key_is_free_once_its_one_shot_has_ended(store: Store) -> None:
    await given_ended(store, one_shot(key="k"))
    again = one_shot(key="k")
    assert await acts.create(store, [again]) == [again.job_id]

    await store.settle([cancel(again, NOW)])
    third = recurring(key="k")
    assert await acts.create(store, [firing(third)]) == [third.id]


async def test_a_key_is_free_once_its_recurring_job_has_finished(store: Store) -> None:
    job = await given_job(store, recurring(key="k", next_fire_at=None))
    assert await acts.fire(store, [firing(job, plan_at=None, status=JobStatus.FINISHED)]) == [True]
    again = one_shot(key="k")
    assert await acts.create(store, [again]) == [again.job_id]


async def test_a_run_of_a_job_does_not_free_the_key_of_the_job(store: Store) -> None:
    job = recurring(key="k")
    await given_job(store, job, slot_run(job, NOW))
    node = await given_node(store)
    [run] = await claimed(store, node)
    await store.settle([cancel(run, NOW)])
    assert await acts.create(store, [one_shot(key="k")]) == [job.id]


async def test_a_batch_that_is_sent_again_is_written_once(store: Store) -> None:
    job = recurring(key="k")
    batch: list[Run] = [one_shot(), one_shot(key="mine")]
    await acts.create(store, [*batch, firing(job)])

    assert await acts.create(store, [*batch, firing(job)]) == [*(run.job_id for run in batch), job.id]

    assert len((await store.list_runs(RunFilter(owner="ada"), cursor=None, limit=9)).items) == 2


async def test_large_batches_are_taken(store: Store) -> None:
    runs = [one_shot(NOW + n * timedelta(microseconds=1)) for n in range(10_000)]
    assert len(await acts.create(store, runs)) == 10_000
    node = await given_node(store)
    held = await claimed(store, node, until=NOW + DAY, limit=20_000)
    assert ids(held) == ids(runs)
    assert await store.settle([cancel(run, NOW) for run in held]) == [True] * 10_000
    assert (await store.queues(now=NOW)) == []


async def test_empty_batches_are_nothing(store: Store) -> None:
    assert await acts.create(store, []) == []
    assert await acts.fire(store, []) == []
    assert await acts.fill(store, []) == []
    assert await store.start([]) == []
    assert await store.settle([]) == []
    assert await store.settle([]) == []
    assert await acts.request_stop(store, [], Reason.CANCELLED) == []
    assert await store.last_runs([], now=NOW) == {}
    await acts.park(store, [])
    assert await store.list_runs(RunFilter(), cursor=None, limit=10) is not None


async def test_what_does_not_exist_is_none(store: Store) -> None:
    run = one_shot()
    assert await find_run(store, run.id, owner=None) is None
    assert await find_job(store, run.job_id, owner=None) is None
    assert await attempts_of(store, run.id) == []


async def test_another_owners_things_are_not_found(store: Store) -> None:
    run, job = one_shot(schedule=Now()), recurring()
    await acts.create(store, [run, firing(job)])
    assert await find_run(store, run.id, owner="bob") is None
    assert await find_job(store, run.job_id, owner="bob") is None
    assert await find_job(store, job.id, owner="bob") is None
    assert await find_job(store, job.id, owner="ada") == job


async def test_a_run_of_a_job_is_not_a_job(store: Store) -> None:
    job = recurring()
    run = slot_run(job, NOW)
    await given_job(store, job, run)
    manual = replace(slot_run(job, NOW), trigger=Trigger.MANUAL, slot=None)
    await acts.create(store, [manual])
    for each in (run, manual):
        assert await find_job(store, each.id, owner=None) is None  # type: ignore[arg-type]
