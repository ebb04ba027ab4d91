"""Too many requests or bytes at once are refused early, with Retry-After, and without affecting other owners."""

import asyncio
import json
from collections.abc import AsyncIterator

import httpx2
import pytest
from starlette.requests import Request

from horae.api.app import create_app
from horae.api.dispatch.context import Services
from horae.api.http.admission import MAX_REQUESTS, MAX_STREAMS, MAX_STREAMS_OF_OWNER, SHARE, Admission
from horae.api.http.body import MAX_BATCH_BODY
from horae.api.http.problems import RateLimited
from horae.api.http.protocol import MAX_CONNECTIONS
from horae.core.errors import Unavailable
from tests.api.serving import ByName

LARGE = json.dumps({"task": "demo.echo", "params": {"message": "x" * 100_000}}).encode()


def a_request() -> Request:
    return Request({"type": "http"})


def test_an_owner_has_half_of_what_there_is_and_all_together_no_more_than_that() -> None:
    admission = Admission(requests=4)
    stays = [admission.enter(a_request(), owner) for owner in ("ann", "ann", "bob")]
    with pytest.raises(RateLimited):
        admission.enter(a_request(), "ann")
    stays.append(admission.enter(a_request(), "bob"))
    with pytest.raises(Unavailable):
        admission.enter(a_request(), "eve")
    stays[0].leave()
    admission.enter(a_request(), "eve")
    with pytest.raises(Unavailable):
        admission.enter(a_request(), "ann")


def test_an_owner_may_send_the_largest_batch() -> None:
    Admission().enter(a_request(), "ann").add_bytes(MAX_BATCH_BODY)


def test_bodies_are_counted_while_they_come_and_forgotten_with_their_request() -> None:
    admission = Admission(size=100)
    first, second = (admission.enter(a_request(), "ann") for _ in range(2))
    first.add_bytes(30)
    first.add_bytes(10)
    with pytest.raises(RateLimited):
        second.add_bytes(11)
    second.add_bytes(10)
    first.leave()
    second.add_bytes(40)
    second.leave()
    assert not admission._requests
    assert not admission._bytes


def test_who_brings_too_much_leaves_nothing_behind() -> None:
    admission = Admission(size=100)
    for _ in range(10):
        admitted = admission.enter(a_request(), "ann")
        with pytest.raises(RateLimited):
            admitted.add_bytes(51)
        admitted.leave()
    admission.enter(a_request(), "ann").add_bytes(50)


def test_streams_have_a_limit_of_their_own_for_each_owner_and_for_all() -> None:
    admission = Admission(streams=4)
    streams = [admission.open_stream(owner) for owner in ("ann", "ann", "bob")]
    with pytest.raises(RateLimited, match="2 streams"):
        admission.open_stream("ann")
    streams.append(admission.open_stream("bob"))
    with pytest.raises(Unavailable):
        admission.open_stream("eve")
    streams[0].leave()
    admission.open_stream("eve").leave()
    for stream in streams[1:]:
        stream.leave()
    assert not admission._streams


def test_one_owner_has_no_more_streams_than_can_be_written_to_beside_other_work() -> None:
    admission = Admission(streams=10_000)
    for _ in range(MAX_STREAMS_OF_OWNER):
        admission.open_stream("ann")
    with pytest.raises(RateLimited, match=f"{MAX_STREAMS_OF_OWNER} streams"):
        admission.open_stream("ann")
    admission.open_stream("bob")


def test_all_requests_and_streams_of_one_owner_leave_connections_for_others() -> None:
    assert min(MAX_REQUESTS, MAX_CONNECTIONS) // SHARE + MAX_STREAMS // SHARE < MAX_CONNECTIONS


@pytest.fixture
async def client(services: Services) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of an API that admits six requests and half a megabyte at once."""
    app = create_app(services, guard=ByName(), admission=Admission(requests=6, size=500_000))
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost") as client:
        yield client


class Slow:
    """Request bodies whose rest is sent when the test says so."""

    def __init__(self) -> None:
        self.begun = 0
        self.goes_on = asyncio.Event()

    async def body(self) -> AsyncIterator[bytes]:
        self.begun += 1
        yield LARGE[:10]
        await self.goes_on.wait()
        yield LARGE[10:]

    async def wait(self, begun: int) -> None:
        """Wait until so many bodies are being read."""
        async with asyncio.timeout(10):
            while self.begun < begun:  # noqa: ASYNC110 - the server has no event for it
                await asyncio.sleep(0.001)


async def test_one_owner_who_sends_too_much_at_once_is_told_and_others_are_served(client: httpx2.AsyncClient) -> None:
    slow = Slow()
    flood = [asyncio.create_task(_create(client, "flood", slow.body())) for _ in range(3)]
    await slow.wait(3)
    refused = await _create(client, "flood", LARGE)
    quiet = await _create(client, "quiet", LARGE)
    health = await client.get("/healthz")
    slow.goes_on.set()
    answers = await asyncio.gather(*flood)

    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    assert refused.json()["code"] == "rate_limited"
    assert quiet.status_code == 201
    assert health.status_code == 200
    assert sorted(answer.status_code for answer in answers) == [201, 201, 429], "two such bodies are half of the room"
    assert (await _create(client, "flood", LARGE)).status_code == 201, "when they are answered there is room again"


async def test_when_all_have_too_much_under_way_everybody_is_told(client: httpx2.AsyncClient) -> None:
    slow = Slow()
    under_way = [asyncio.create_task(_create(client, owner, slow.body())) for owner in ("ann", "bob") for _ in range(3)]
    await slow.wait(6)
    refused = await _create(client, "eve", LARGE)
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    assert (await client.get("/readyz")).status_code == 200
    slow.goes_on.set()
    await asyncio.gather(*under_way)
    assert (await _create(client, "eve", LARGE)).status_code == 201


async def _create(client: httpx2.AsyncClient, owner: str, body: "bytes | AsyncIterator[bytes]") -> httpx2.Response:
    return await client.post("/v1/jobs", content=body, headers={"Authorization": f"Bearer {owner}"})
