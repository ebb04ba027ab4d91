"""The shop at work: a node inside the web server, on a real PostgreSQL that is restarted."""

import asyncio
import time

import httpx2
import psycopg
import pytest
from webshop.api import api
from webshop.database import POOL_SIZE, Order, database
from webshop.tasks import send_receipt

from horae import RunFailed
from tests.system.postgres import OwnPostgres

WITHIN = 30.0


def pooled_connections(server: OwnPostgres) -> int:
    """Return how many connections the pool of the shop has open."""
    with psycopg.connect(server.url) as observer:
        found = observer.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'webshop'").fetchone()
        assert found is not None
        return int(found[0])


async def orders(count: int) -> list[dict[str, int]]:
    """Create orders; returns the parameters of a task for each."""
    created = [Order(customer=f"customer {number}") for number in range(count)]
    async with database.session.begin() as session:
        session.add_all(created)
    return [{"order": order.id} for order in created]


async def test_an_order_and_its_job_are_one_transaction(client: httpx2.AsyncClient) -> None:
    created = (await client.post("/orders", json={"customer": "Ann"})).json()
    assert await send_receipt.handle(created["job"]).result(timeout=WITHIN) == "Thank you, Ann!"
    assert (await client.get(f"/orders/{created['order']}/receipt")).json() == {"text": "Thank you, Ann!"}


async def test_a_request_that_fails_leaves_neither_an_order_nor_a_job(client: httpx2.AsyncClient) -> None:
    before = (await client.get("/horae/v1/jobs")).json()["items"]
    assert (await client.post("/orders", json={"customer": ""})).status_code == 422
    assert (await client.get("/horae/v1/jobs")).json()["items"] == before


async def test_many_tasks_share_few_connections(client: httpx2.AsyncClient, webshop: OwnPostgres) -> None:
    handles = await send_receipt.submit_many(await orders(300))
    await asyncio.gather(*(handle.result(timeout=WITHIN) for handle in handles))
    assert pooled_connections(webshop) <= POOL_SIZE


async def test_the_pool_survives_a_restart_of_the_database(client: httpx2.AsyncClient, webshop: OwnPostgres) -> None:
    """The connections of the pool are all cut, and the next tasks succeed at once."""
    warm = await send_receipt.submit_many(await orders(40))
    await asyncio.gather(*(handle.result(timeout=WITHIN) for handle in warm))
    await asyncio.to_thread(webshop.start)  # which stops it first, as by a power cut
    handles = await send_receipt.using(max_retries=0).submit_many(await orders(40))
    await asyncio.gather(*(handle.result(timeout=WITHIN) for handle in handles))


async def test_a_failing_task_is_reported_by_a_hook(client: httpx2.AsyncClient) -> None:
    handle = await send_receipt.submit(order=-1)
    with pytest.raises(RunFailed, match="there is no order -1"):
        await handle.result(timeout=WITHIN)
    deadline = time.monotonic() + WITHIN
    while "error tracker knows" not in (await client.get(f"/horae/v1/runs/{handle.run_id}/logs")).text:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


async def test_the_pool_opens_with_the_server_and_closes_with_it(webshop: OwnPostgres) -> None:
    async with api.router.lifespan_context(api):
        assert pooled_connections(webshop) == 1
    deadline = time.monotonic() + WITHIN
    while pooled_connections(webshop) > 0:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
