"""Reads of the DynamoDB store under throttling, partial answers and stale indexes, and what a page costs."""

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from horae.aws_api.client import ServiceClient
from horae.core.decisions.results import start, succeed
from horae.core.model import State
from horae.ports.reader import JobFilter, RunFilter
from horae.ports.store import Store
from horae.proof.checking import Checker
from horae.stores.dynamodb.database import Names
from horae.stores.dynamodb.store import DynamoStore
from horae.stores.dynamodb.tables.address import parse_dynamodb
from horae.stores.sqlite.store import SqliteStore
from tests import acts
from tests.conformance.builders import (
    DAY,
    MINUTE,
    NOW,
    SECOND,
    claimed,
    failed,
    firing,
    given_job,
    given_node,
    given_running,
    ids,
    one_shot,
    pages,
    recurring,
    slot_run,
)
from tests.conformance.test_store_look import given_many
from tests.engines.aws_answers import Fault
from tests.engines.aws_faults import AwsFaults, AwsLink
from tests.engines.servers import ministack_url

LAG = 0.3
READ_FAULTS = {Fault.THROTTLED: 0.1, Fault.UNPROCESSED_KEYS: 0.3, Fault.CUT_BEFORE: 0.05, Fault.ERROR: 0.05}


@pytest.fixture
def link() -> Iterator[AwsLink]:
    with AwsFaults(ministack_url(), lag=LAG) as faults:
        yield faults.link()


@pytest.fixture
async def beyond(address: str, link: AwsLink) -> AsyncIterator[DynamoStore]:
    """A store that reads the same tables through the proxy."""
    found = DynamoStore(address.replace(quote(ministack_url(), safe=""), quote(link.url, safe="")))
    await found.open()
    yield found
    await found.close()


async def everything(store: Store) -> dict[str, object]:
    """What a store answers to lists and questions of every kind."""
    runs = await pages(lambda cursor, size: store.list_runs(RunFilter(), cursor=cursor, limit=size), 7)
    jobs = await pages(lambda cursor, size: store.list_jobs(JobFilter(owner="ada"), cursor=cursor, limit=size), 7)
    return {
        "runs": runs,
        "jobs": jobs,
        "by id": await store.runs([run.id for run in runs]),
        "last": await store.last_runs([job.id for job in jobs], now=NOW),
        "attempts": await store.attempts([run.id for run in runs]),
        "letters": await store.dead_letter_groups(RunFilter(dead_letters=True)),
        "queues": await store.queues(now=NOW),
        "late": await store.queue_lateness(since=NOW - 9 * MINUTE),
    }


async def test_throttling_and_partial_answers_change_nothing_of_what_is_read(
    store: DynamoStore, beyond: DynamoStore, link: AwsLink
) -> None:
    await given_many(store)
    expected = await everything(store)
    link.chances = READ_FAULTS
    assert await everything(beyond) == expected
    assert link.fired[Fault.UNPROCESSED_KEYS] > 0
    assert link.fired[Fault.THROTTLED] > 0


async def test_with_a_stale_index_a_run_is_listed_late_and_never_in_a_state_that_it_has_left(
    store: DynamoStore, beyond: DynamoStore, link: AwsLink
) -> None:
    old, new = one_shot(NOW - SECOND), one_shot(NOW)
    await acts.create(store, [old])
    which = RunFilter(owner="ada")
    assert ids((await beyond.list_runs(which, cursor=None, limit=5)).items) == [old.id]
    await acts.create(store, [new])
    [held] = [run for run in await claimed(store, await given_node(store)) if run.id == old.id]
    assert await store.settle([succeed(start(held, NOW), None, NOW)]) == [True]

    link.chances = {Fault.STALE_INDEX: 1.0}
    listed = (await beyond.list_runs(which, cursor=None, limit=5)).items

    assert [(run.id, run.state) for run in listed] == [(old.id, State.SUCCEEDED)]
    assert (await beyond.runs([new.id]))[new.id].state is State.CLAIMED
    assert link.fired[Fault.STALE_INDEX] > 0
    link.heal()
    assert ids((await beyond.list_runs(which, cursor=None, limit=5)).items) == [new.id, old.id]


async def test_with_a_stale_index_no_dead_letter_is_lost_or_comes_back(
    store: DynamoStore, beyond: DynamoStore, link: AwsLink
) -> None:
    [run] = await given_running(store, one_shot())
    letters = RunFilter(dead_letters=True)
    assert (await beyond.list_runs(letters, cursor=None, limit=5)).items == []
    await store.settle([failed(run)])
    assert ids((await beyond.list_runs(letters, cursor=None, limit=5)).items) == [run.id]

    assert await acts.resolve(store, [acts.Resolution(run_id=run.id)], now=NOW) == [True]
    link.chances = {Fault.STALE_INDEX: 1.0}

    assert (await beyond.list_runs(letters, cursor=None, limit=5)).items == []
    assert await acts.resolve(beyond, [acts.Resolution(run_id=run.id)], now=NOW) == [False]


async def test_a_page_costs_the_same_however_many_runs_there_are(store: DynamoStore) -> None:
    costs = []
    for count in (60, 240):  # so few that the owner gets no further sub-shards
        await acts.create(store, [one_shot(NOW - n * SECOND) for n in range(count)])
        for which in (RunFilter(owner="ada"), RunFilter(owner="ada", task="demo.echo"), RunFilter()):
            store.counters.reset()
            page = await store.list_runs(which, cursor=None, limit=50)
            assert len(page.items) == 50
            costs.append(store.counters.by_verb()["list_runs"].requests)  # others may go on beside it
    assert costs[:3] == costs[3:]
    assert max(costs) <= 3


async def test_live_runs_of_a_job_are_found_without_its_history(store: DynamoStore) -> None:
    """Acts on a job ask for them without a bound."""
    job = recurring()
    await given_job(store, job, *(slot_run(job, NOW - n * MINUTE) for n in range(1, 41)))
    held = await claimed(store, await given_node(store), limit=100)
    assert all(await store.settle([succeed(start(run, NOW), None, NOW) for run in held]))
    waiting = slot_run(job, NOW + MINUTE)
    assert await acts.fire(store, [firing(job, waiting)]) == [True]

    live = RunFilter(job_id=job.id, states=frozenset({State.SCHEDULED, State.RETRYING}))
    assert ids((await store.list_runs(live, cursor=None, limit=100)).items) == [waiting.id]


async def test_nothing_is_left_of_runs_whose_time_is_over(store: DynamoStore, address: str) -> None:
    """Journals would grow for ever."""
    job = recurring()
    await given_job(store, job, slot_run(job, NOW))
    await acts.create(store, [one_shot() for _ in range(130)])
    held = await claimed(store, await given_node(store), limit=200)
    assert all(await store.settle([succeed(start(run, NOW), None, NOW) for run in held]))
    waiting = one_shot(NOW + MINUTE)
    await acts.create(store, [waiting])

    while await store.prune(now=NOW, before=(NOW + DAY).date(), limit=50):
        pass

    left = Counter(pk.partition("#")[0] for pk in await partitions(address))
    assert left["ended"] == 0
    assert left["made"] == 1
    assert ids((await store.list_jobs(JobFilter(owner="ada"), cursor=None, limit=9)).items) == [waiting.id, job.id]


async def partitions(address: str) -> list[str]:
    """The partition key of everything in `meta`."""
    parsed, _ = parse_dynamodb(address)
    client = ServiceClient("dynamodb", region=parsed.region, endpoint=parsed.endpoint)
    await client.open()
    answer = await client.call("Scan", {"TableName": Names.of(parsed.prefix).meta})
    await client.close()
    return [item["pk"]["S"] for item in answer["Items"]]


async def test_the_checker_finds_on_dynamodb_what_it_finds_on_sqlite(store: DynamoStore, tmp_path: Path) -> None:
    other = SqliteStore(tmp_path / "horae.db")
    await other.open()
    found = []
    for each in (other, store):
        await given_many(each)
        checker = Checker(each, pause=0)
        codes = Counter([violation.code async for violation in checker.violations()])
        found.append((codes, checker.counts.jobs, checker.counts.runs))
    await other.close()
    assert found[0] == found[1]
    assert found[1][2] > 70
