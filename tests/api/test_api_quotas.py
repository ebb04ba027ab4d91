"""Quotas: an owner at a limit is told so and changes nothing, while others go on."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from horae.api.dispatch.context import Services
from horae.api.quotas import meter
from horae.api.quotas.meter import RECENT, UsageMeter
from horae.core.decisions.quotas import Amount, Limits
from horae.core.errors import Unavailable
from horae.jobs.bulk import acts
from horae.ports.reader import Kept, KeptPage
from horae.ports.store import Store
from tests.api.harness import Hand
from tests.api.tenants import Tenant, tenant, tenants_client
from tests.clocks import ManualClock

LIMITS = Limits(waiting=4, recurring=2, queues=2, stored_bytes=10_000)
LATER = "2099-01-01T00:00:00Z"


@pytest.fixture
async def client(services: Services) -> AsyncIterator[httpx2.AsyncClient]:
    async with tenants_client(services, limits=LIMITS) as client:
        yield client
    await services.usage.close()


@pytest.fixture
def ann(client: httpx2.AsyncClient) -> Tenant:
    return tenant(client, "ann")


async def fill(ann: Tenant) -> None:
    """Create as many one-shots as an owner may have."""
    for _ in range(LIMITS.waiting):
        await ann.create(schedule=LATER)


async def count_again(ann: Tenant, services: Services, clock: ManualClock) -> None:
    """Let the node count what an owner keeps, after the counts in progress: these may count a new job twice."""
    await counts_end(services)
    clock.advance(seconds=6)
    await ann.done("GET", "/v1/usage")
    await counts_end(services)


async def counts_end(services: Services) -> None:
    async with asyncio.timeout(5):
        while not all(account.idle for account in services.usage._accounts.values()):  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.001)


async def over(ann: Tenant, method: str, path: str, body: Any) -> str:
    """Return why a request is refused for a quota."""
    answer = await ann.ask(method, path, body)
    assert (answer.status_code, answer.json()["code"]) == (429, "quota_exceeded"), answer.text
    assert answer.headers["retry-after"] == "10"
    return str(answer.json()["detail"])


# --- waiting jobs


async def test_an_owner_at_its_quota_is_refused_while_another_creates(client: httpx2.AsyncClient, ann: Tenant) -> None:
    await fill(ann)
    detail = await over(ann, "POST", "/v1/jobs", {"task": "demo.echo", "schedule": LATER})
    assert detail == (
        "the owner has 4 waiting jobs, the request adds 1, and the limit is 4: wait until some have run, or cancel"
        " some, or ask the operator for a higher limit (HORAE_MAX_WAITING)"
    )
    assert len((await ann.done("GET", "/v1/jobs"))["items"]) == 4
    await fill(tenant(client, "bob"))


@pytest.mark.parametrize("scope", ["jobs:read jobs:write admin", "jobs:read jobs:write admin shell"])
async def test_administrators_have_no_quota(client: httpx2.AsyncClient, scope: str) -> None:
    root = tenant(client, "ann", scope)
    await fill(root)
    await root.create(schedule=LATER)


async def test_a_batch_that_would_pass_the_quota_is_refused_as_a_whole(ann: Tenant) -> None:
    await ann.create(schedule=LATER)
    jobs = [{"task": "demo.echo", "schedule": LATER}] * 4
    detail = await over(ann, "POST", "/v1/jobs/batch", {"jobs": jobs})
    assert "has 1 waiting jobs, the request adds 4" in detail
    assert len((await ann.done("GET", "/v1/jobs"))["items"]) == 1
    accepted = await ann.done("POST", "/v1/jobs/batch", {"jobs": jobs[:3]})
    assert (accepted["accepted"], accepted["rejected"]) == (3, 0)


async def test_what_a_batch_did_not_create_is_not_counted(ann: Tenant) -> None:
    jobs = [{"task": "demo.echo", "schedule": LATER}, {"task": "demo.nothing"}, {"task": 1}, {"task": "demo.sleep"}]
    assert (await ann.done("POST", "/v1/jobs/batch", {"jobs": jobs}))["accepted"] == 1
    for _ in range(3):
        await ann.create(schedule=LATER)
    await over(ann, "POST", "/v1/jobs", {"task": "demo.echo", "schedule": LATER})


async def test_what_was_refused_for_another_reason_is_not_counted(ann: Tenant) -> None:
    for _ in range(9):
        await ann.refused(422, "POST", "/v1/jobs", {"task": "demo.sleep"})
    await fill(ann)


async def test_a_request_that_is_repeated_is_counted_once(client: httpx2.AsyncClient, ann: Tenant) -> None:
    again = Tenant(client, {**ann.headers, "Idempotency-Key": "k"})
    for _ in range(9):
        await again.create(schedule=LATER)
    for _ in range(3):
        await ann.create(schedule=LATER)
    await over(ann, "POST", "/v1/jobs", {"task": "demo.echo"})
    await again.create(schedule=LATER)


async def test_requests_at_the_same_time_do_not_slip_through(ann: Tenant) -> None:
    body = {"task": "demo.echo", "schedule": LATER}
    answers = await asyncio.gather(*(ann.ask("POST", "/v1/jobs", body) for _ in range(20)))
    assert sorted(answer.status_code for answer in answers) == [201] * 4 + [429] * 16


async def test_when_some_have_ended_there_is_room_again(ann: Tenant, hand: Hand, clock: ManualClock) -> None:
    for _ in range(4):
        await ann.create()
    for run in await hand.claim():
        await hand.succeed(await hand.start(run))
    await over(ann, "POST", "/v1/jobs", {"task": "demo.echo"})  # the last count is young
    clock.advance(seconds=6)
    await ann.create()


async def test_what_other_nodes_accepted_is_found_by_the_next_count(
    store: Store, services: Services, clock: ManualClock, ann: Tenant
) -> None:
    await ann.create(schedule=LATER)
    other = with_meter(services, store, clock)
    async with tenants_client(other, limits=LIMITS) as elsewhere:
        for _ in range(3):
            await tenant(elsewhere, "ann").create(schedule=LATER)
        await over(tenant(elsewhere, "ann"), "POST", "/v1/jobs", {"task": "demo.echo"})
    await count_again(ann, services, clock)
    await over(ann, "POST", "/v1/jobs", {"task": "demo.echo"})


async def test_every_act_that_makes_runs_is_within_the_quota(
    ann: Tenant, hand: Hand, services: Services, clock: ManualClock
) -> None:
    failing = (await ann.create("demo.echo", max_retries=0))["id"].replace("job", "run")
    [run] = await hand.claim()
    await hand.fail(await hand.start(run))
    job = (await ann.create(schedule="every 1h", key="k"))["id"]
    await count_again(ann, services, clock)
    await fill(ann)
    for method, path, body in [
        ("POST", f"/v1/jobs/{job}/run", {}),
        ("POST", f"/v1/jobs/{job}/backfill", {"start": "2020-01-01T00:00:00Z", "end": "2020-01-01T01:00:00Z"}),
        ("POST", f"/v1/runs/{failing}/retry", {}),
        ("POST", "/v1/dead-letters/requeue", {"ids": [failing]}),
        ("POST", "/v1/dead-letters/requeue", {"filter": {}}),
        ("PUT", "/v1/jobs/by-key/new", {"task": "demo.echo", "schedule": LATER}),
        ("PUT", "/v1/jobs/by-key/k", {"task": "demo.echo", "schedule": LATER}),
    ]:
        assert "waiting jobs" in await over(ann, method, path, body), path
    await ann.done("PATCH", f"/v1/jobs/{job}", {"labels": {"a": "b"}})
    await ann.done("POST", f"/v1/jobs/{job}/pause")
    await ann.done("POST", f"/v1/jobs/{job}/resume", {})


async def test_an_act_on_many_stays_within_the_quota_however_many_come_at_once(
    ann: Tenant, services: Services, clock: ManualClock
) -> None:
    for _ in range(2):
        await ann.create(schedule="every 1h")
    await count_again(ann, services, clock)
    run = {"action": "run", "filter": {}}
    answers = await asyncio.gather(*(ann.ask("POST", "/v1/jobs/bulk", run) for _ in range(4)))
    assert sorted(answer.status_code for answer in answers) == [200, 200, 429, 429]
    assert len((await ann.done("GET", "/v1/runs?trigger=manual"))["items"]) == LIMITS.waiting
    counted = await ann.done("POST", "/v1/jobs/bulk", {**run, "dry_run": True})
    assert counted["matched"] == 2, "to count adds nothing"


async def test_an_act_on_many_that_comes_to_the_quota_says_how_far_it_got_and_where_to_go_on(
    client: httpx2.AsyncClient, ann: Tenant, hand: Hand, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acts, "CHUNK", 1)
    root = tenant(client, "ann", "jobs:read jobs:write admin")
    for number in range(6):
        await root.create(schedule="every 1h", name=str(number))
    run = {"action": "run", "filter": {}}
    first = await ann.done("POST", "/v1/jobs/bulk", run)
    assert (first["matched"], first["done"], first["remaining"]) == (4, 4, 2)
    await over(ann, "POST", "/v1/jobs/bulk", {**run, "cursor": first["cursor"]})
    for waiting in await hand.claim():
        await hand.succeed(await hand.start(waiting))
    clock.advance(seconds=6)
    rest = await ann.done("POST", "/v1/jobs/bulk", {**run, "cursor": first["cursor"]})
    assert (rest["matched"], rest["done"], rest["remaining"], rest["cursor"]) == (2, 2, 0, None)
    started = (await ann.done("GET", "/v1/runs?trigger=manual"))["items"]
    assert sorted(each["name"] for each in started) == ["0", "1", "2", "3", "4", "5"], "each job once"


# --- the other resources


async def test_recurring_jobs_have_a_limit(ann: Tenant) -> None:
    for key in ("a", "b"):
        await ann.done("PUT", f"/v1/jobs/by-key/{key}", {"task": "demo.echo", "schedule": "@daily"})
    assert "2 recurring jobs" in await over(ann, "POST", "/v1/jobs", {"task": "demo.echo", "schedule": "every 5m"})
    await over(ann, "PUT", "/v1/jobs/by-key/c", {"task": "demo.echo", "schedule": {"type": "every", "seconds": 60}})
    await ann.done("PUT", "/v1/jobs/by-key/a", {"task": "demo.echo", "schedule": "@hourly"})
    await ann.create(schedule={"type": "at", "time": LATER})


async def test_queues_have_a_limit_and_those_in_use_stay_open(ann: Tenant) -> None:
    job = (await ann.create(queue="a", schedule="@daily"))["id"]
    await ann.create(queue="b", schedule=LATER)
    assert "2 queues" in await over(ann, "POST", "/v1/jobs", {"task": "demo.echo", "queue": "c"})
    await over(ann, "POST", "/v1/jobs", {"task": "demo.echo"})
    await over(ann, "PATCH", f"/v1/jobs/{job}", {"queue": "c"})
    await ann.create(queue="a", schedule=LATER)
    await ann.done("PATCH", f"/v1/jobs/{job}", {"queue": "b"})


async def test_stored_bytes_have_a_limit_that_ended_runs_count_for(ann: Tenant, hand: Hand, clock: ManualClock) -> None:
    for _ in range(2):
        await ann.create(params={"message": "x" * 4_000})
    for run in await hand.claim():
        await hand.succeed(await hand.start(run), '"' + "y" * 1_000 + '"')
    clock.advance(seconds=61)
    body = {"task": "demo.echo", "params": {"message": "x" * 4_000}}
    assert "stored bytes" in await over(ann, "POST", "/v1/jobs", body)
    clock.advance(seconds=61)
    assert "stored bytes" in await over(ann, "POST", "/v1/jobs", body)
    used = (await ann.done("GET", "/v1/usage"))["stored_bytes"]["used"]
    assert 10_000 < used < 10_200


# --- limits of a token


async def test_a_token_may_say_other_limits(client: httpx2.AsyncClient) -> None:
    small = tenant(client, "ann", limits={"waiting": 1, "recurring": 0})
    await small.create(schedule=LATER)
    assert "limit is 1" in await over(small, "POST", "/v1/jobs", {"task": "demo.echo"})
    for _ in range(3):
        await small.create(schedule="@daily")
    usage = await small.done("GET", "/v1/usage")
    assert [usage[name]["limit"] for name in ("waiting", "recurring", "queues")] == [1, None, 2]


@pytest.mark.parametrize("limits", [{"waiting": -1}, {"jobs": 1}, {"waiting": "5"}, 5], ids=str)
async def test_wrong_limits_allow_nothing(client: httpx2.AsyncClient, limits: Any) -> None:
    assert "limits" in (await tenant(client, "ann", limits=limits).refused(401, "GET", "/v1/jobs"))["detail"]


# --- usage


async def test_everybody_sees_how_much_they_keep(
    client: httpx2.AsyncClient, ann: Tenant, services: Services, clock: ManualClock
) -> None:
    await ann.create(schedule=LATER, queue="a", params={"message": "hi"})
    await ann.create(schedule="@daily")
    await count_again(ann, services, clock)
    usage = await ann.done("GET", "/v1/usage")
    size = len('{"message":"hi"}') + 2
    assert usage["owner"] == "ann"
    assert usage["waiting"] == {"used": 1, "limit": 4}
    assert usage["recurring"] == {"used": 1, "limit": 2}
    assert usage["queues"] == {"used": 2, "limit": 2}
    assert usage["stored_bytes"] == {"used": size, "limit": 10_000}
    assert usage["counted_at"] == "2026-03-01T12:00:06Z"
    bob = await tenant(client, "bob").done("GET", "/v1/usage")
    assert (bob["owner"], bob["waiting"]["used"]) == ("bob", 0)


async def test_only_administrators_see_another_owner_s_usage(client: httpx2.AsyncClient, ann: Tenant) -> None:
    await ann.create(schedule=LATER)
    await tenant(client, "bob").refused(403, "GET", "/v1/usage?owner=ann")
    root = tenant(client, "root", "jobs:read jobs:write admin")
    assert (await root.done("GET", "/v1/usage?owner=ann"))["waiting"] == {"used": 1, "limit": 4}
    await root.refused(422, "GET", "/v1/usage?owner=*")


# --- counts


class CountedStore:
    """Counts the pages that are read of a store, which sometimes does not answer."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.pages = 0
        self.down = False

    async def kept_by(self, owner: str, part: Kept, *, cursor: str | None, limit: int) -> KeptPage:
        self.pages += 1
        if self.down:
            raise Unavailable("the store does not answer")
        return await self._store.kept_by(owner, part, cursor=cursor, limit=limit)


def with_meter(services: Services, store: Any, clock: ManualClock) -> Services:
    """Return the services of another node, which counts for itself."""
    return replace(services, usage=UsageMeter(store, clock))


async def test_creating_jobs_asks_the_store_nothing_more(services: Services, store: Store, clock: ManualClock) -> None:
    counted = CountedStore(store)
    services = with_meter(services, counted, clock)
    async with tenants_client(services, limits=Limits()) as client:
        ann = tenant(client, "ann")
        await ann.create(schedule=LATER)
        first = counted.pages
        for _ in range(50):
            await ann.create(schedule=LATER)
        assert (first, counted.pages) == (5, 5)  # jobs and live runs, and for the bytes these and ended ones
        clock.advance(seconds=61)
        await ann.create(schedule=LATER)
        await count_again(ann, services, clock)
        assert counted.pages <= 20
        assert (await ann.done("GET", "/v1/usage"))["waiting"]["used"] == 52


async def test_a_count_goes_page_by_page(
    services: Services, clock: ManualClock, ann: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meter, "PAGE", 2)
    await fill(ann)
    await count_again(ann, services, clock)
    assert (await ann.done("GET", "/v1/usage"))["waiting"]["used"] == 4


async def test_what_is_accepted_during_a_count_is_not_forgotten(store: Store, clock: ManualClock) -> None:
    slow = SlowStore(store)
    usage = UsageMeter(slow, clock)
    counting = asyncio.create_task(usage.measured("ann", RECENT))
    await slow.asked.wait()
    account = usage._accounts["ann"]
    account.reserve(Amount(waiting=3, queues=frozenset({"a"})))
    account.settle(Amount(waiting=3), Amount(waiting=2))
    slow.go.set()
    assert (await counting).waiting == 2
    assert account.queues == {"a"}
    await usage.close()


class SlowStore:
    """Answers when the test lets it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.asked, self.go = asyncio.Event(), asyncio.Event()

    async def kept_by(self, owner: str, part: Kept, *, cursor: str | None, limit: int) -> KeptPage:
        self.asked.set()
        await self.go.wait()
        return await self._store.kept_by(owner, part, cursor=cursor, limit=limit)


async def test_a_slow_count_makes_nobody_wait_for_long(
    services: Services, store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meter, "WAIT_SECONDS", 0.01)
    services = with_meter(services, SlowStore(store), clock)
    async with tenants_client(services, limits=LIMITS) as client:
        ann = tenant(client, "ann")
        await fill(ann)
        await over(ann, "POST", "/v1/jobs", {"task": "demo.echo"})
        assert (await ann.done("GET", "/v1/usage"))["counted_at"] is None
    await services.usage.close()


async def test_while_nothing_can_be_counted_jobs_are_accepted(
    services: Services, store: Store, clock: ManualClock
) -> None:
    counted = CountedStore(store)
    counted.down = True
    services = with_meter(services, counted, clock)
    async with tenants_client(services, limits=LIMITS) as client:
        await fill(tenant(client, "ann"))
        assert (await tenant(client, "ann").done("GET", "/v1/usage"))["counted_at"] is None
        counted.down = False
        clock.advance(seconds=6)
        assert (await tenant(client, "ann").done("GET", "/v1/usage"))["counted_at"] is not None


async def test_accounts_of_owners_that_are_silent_are_forgotten(
    store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meter, "MAX_ACCOUNTS", 3)
    usage = UsageMeter(store, clock)
    for owner in ("a", "b", "c", "a", "d"):
        await usage.measured(owner, RECENT)
    assert set(usage._accounts) == {"c", "a", "d"}
