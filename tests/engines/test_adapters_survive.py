"""Whatever the services do to requests, a store loses and doubles nothing, and a queue hands out every ticket."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import pytest

from horae.adapters import make_queue, make_store
from horae.core.decisions.results import start, succeed
from horae.core.errors import Unavailable
from horae.core.model import NodeId, Run, RunId, State
from horae.core.tickets import Ticket
from horae.ports.queue import Queue
from horae.ports.reader import RunFilter
from horae.ports.store import ClaimRequest, Store
from horae.proof.checking import Checker
from tests import acts
from tests.conformance.builders import a_node, one_shot
from tests.engines import aws_client
from tests.engines.aws_answers import Fault
from tests.engines.aws_faults import AwsFaults, AwsLink
from tests.engines.servers import fresh_ministack, ministack_url, own_name, valkey_url
from tests.engines.tcp_faults import TcpFaults, TcpLink
from tests.system.combinations import scratch_queue

T = TypeVar("T")

RUNS = 64  # more than two batches of DynamoDB
TRIES = 40  # of one verb, as the engine would go on for ever
BETWEEN_TRIES = 0.02  # seconds
WAIT = timedelta(seconds=0.2)
SECOND = timedelta(seconds=1)

STORE_FAULTS = (
    Fault.THROTTLED,
    Fault.THROTTLED_STATEMENT,
    Fault.CONFLICTING_STATEMENT,
    Fault.UNPROCESSED_ITEMS,
    Fault.CUT_BEFORE,
    Fault.CUT_AFTER,
    Fault.ERROR,
    Fault.ERROR_AFTER,
)
QUEUE_FAULTS = (
    Fault.THROTTLED,
    Fault.FAILED_ENTRY,
    Fault.DELIVERED_TWICE,
    Fault.CUT_BEFORE,
    Fault.CUT_AFTER,
    Fault.ERROR,
    Fault.ERROR_AFTER,
)


async def insist(act: Callable[[], Awaitable[T]]) -> T:
    """Do it again while the backend does not answer, as every loop of the engine does."""
    for _ in range(TRIES):
        try:
            return await act()
        except Unavailable:
            await asyncio.sleep(BETWEEN_TRIES)
    return await act()


# --- the store


@contextmanager
def faulty_store(fault: Fault, chance: float) -> Iterator[tuple[AwsLink, str, str]]:
    """A link that breaks requests, the address of a store through it, and the one without."""
    prefix, endpoint = own_name(), ministack_url()
    with AwsFaults(endpoint, lag=0.1) as proxy:
        link = proxy.link()
        link.chances = {fault: chance}
        place = f"dynamodb://{aws_client.REGION}/{prefix}?endpoint="
        try:
            yield link, place + link.url, place + endpoint
        finally:
            aws_client.delete_tables(endpoint, prefix)


@pytest.mark.parametrize("fault", STORE_FAULTS, ids=lambda fault: fault.value)
async def test_every_run_lives_once_through_a_store_whose_requests_are_hit(fault: Fault) -> None:
    with faulty_store(fault, chance=0.4) as (link, hit_url, url):
        await make_store(url).migrate()
        store: Store = make_store(hit_url)
        await insist(store.open)
        try:
            runs = await live_through(store)
        finally:
            await store.close()
        link.heal()
        assert link.fired[fault] > 0
        await check_lived_once(make_store(url), runs)


async def live_through(store: Store) -> list[Run]:
    """Create, claim, start and settle some runs, and come back to what was not answered."""
    now = await insist(store.time)
    runs = [one_shot(now, created_at=now) for _ in range(RUNS)]
    node = a_node(started_at=now, beat_at=now)
    await insist(lambda: acts.register(store, node))
    await insist(lambda: store.create(runs))
    held: dict[RunId, Run] = {}
    for _ in range(TRIES):
        held |= {run.id: run for run in await insist(lambda: claim(store, node.id, now))}
        held |= {run.id: run for run in await insist(lambda: store.held_by(node.id, until=now))}
        if len(held) == RUNS:
            break
    assert held.keys() == {run.id for run in runs}
    begun = [start(run, now) for run in held.values()]
    assert await insist(lambda: store.start(begun)) == [True] * RUNS
    results = [succeed(run, '"done"', now + SECOND) for run in begun]
    assert await insist(lambda: store.settle(results)) == [True] * RUNS
    return runs


async def claim(store: Store, node: NodeId, now: datetime) -> list[Run]:
    request = ClaimRequest(node=node, queues=(), tasks=("demo.echo",), now=now, until=now)
    return list((await store.claim(request)).runs)


async def check_lived_once(store: Store, runs: list[Run]) -> None:
    await store.open()
    try:
        found = (await store.list_runs(RunFilter(), cursor=None, limit=1000)).items
        assert sorted(run.id for run in found) == sorted(run.id for run in runs)
        assert {run.state for run in found} == {State.SUCCEEDED}
        assert not [violation async for violation in Checker(store).violations()]
    finally:
        await store.close()


# --- queues


@pytest.mark.parametrize("fault", QUEUE_FAULTS, ids=lambda fault: fault.value)
async def test_every_ticket_is_handed_out_by_an_sqs_whose_requests_are_hit(fault: Fault) -> None:
    prefix, endpoint = own_name(), ministack_url()
    with AwsFaults(endpoint) as proxy:
        link = proxy.link()
        try:
            await hand_out(
                make_queue(f"sqs://{aws_client.REGION}/{prefix}?endpoint={link.url}"), lambda: hit(link, fault)
            )
        finally:
            aws_client.delete_queues(endpoint, prefix)
        assert link.fired[fault] > 0


def hit(link: AwsLink, fault: Fault) -> None:
    link.chances = {fault: 1.0 if fault is Fault.DELIVERED_TWICE else 0.4}


@pytest.mark.parametrize("fault", ["cut", "answer lost", "refused"])
async def test_every_ticket_is_handed_out_by_a_redis_whose_link_is_broken(fault: str) -> None:
    with scratch_queue("redis") as address, TcpFaults(("127.0.0.1", int(valkey_url().rpartition(":")[2]))) as proxy:
        link = proxy.link()
        await hand_out(make_queue(address.replace(valkey_url(), link.url)), lambda: break_link(link, fault))
        assert link.fired[fault] > 0


def break_link(link: TcpLink, fault: str) -> None:
    link.cut()
    link.answers_to_lose = 2 if fault == "answer lost" else 0
    link.refuses = fault == "refused"
    asyncio.get_running_loop().call_later(0.2, link.heal)


async def hand_out(queue: Queue, break_it: Callable[[], None]) -> None:
    """Offer tickets to a queue that is then broken, and take them all; what was lost is offered again by a sweep."""
    now = datetime.now(UTC)
    tickets = [Ticket.of(one_shot(now)) for _ in range(RUNS)]
    wanted = {ticket.run_id for ticket in tickets}
    await queue.open()
    try:
        await insist(lambda: queue.offer(tickets[: RUNS // 2], now=now))
        break_it()
        await insist(lambda: queue.offer(tickets[RUNS // 2 :], now=now))
        got: set[RunId] = set()
        for _ in range(TRIES):
            taken = await insist(
                lambda: queue.take(
                    queues=(), without=(), tasks=("demo.echo",), now=now, until=now, limit=RUNS, wait=WAIT
                )
            )
            await insist(lambda: queue.done(taken))  # noqa: B023
            got |= {each.ticket.run_id for each in taken}
            if got == wanted:
                break
            missing = [ticket for ticket in tickets if ticket.run_id not in got]
            await insist(lambda: queue.offer(missing, now=now))  # noqa: B023
        assert got == wanted
    finally:
        await queue.close()


async def test_an_sqs_that_comes_back_without_its_queues_takes_tickets_again() -> None:
    now = datetime.now(UTC)
    ticket = Ticket.of(one_shot(now))
    with fresh_ministack() as server:
        queue = make_queue(f"sqs://{aws_client.REGION}/{own_name()}?endpoint={server.url}")
        assert queue is not None
        await queue.open()
        try:
            await queue.offer([ticket], now=now)
            server.restart()
            await insist(lambda: queue.offer([ticket], now=now))
            taken = await insist(
                lambda: queue.take(
                    queues=(), without=(), tasks=("demo.echo",), now=now, until=now, limit=1, wait=10 * SECOND
                )
            )
            assert [each.ticket.run_id for each in taken] == [ticket.run_id]
        finally:
            await queue.close()
