"""Owners take turns at lists and at acts on many: however many one asks for, another does not wait for all of them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import httpx2
import pytest

from horae.api.app import create_app
from horae.api.dispatch.context import Services
from horae.api.http.admission import Admission
from horae.api.http.owner_turns import OwnerTurns
from horae.api.http.problems import RateLimited
from tests.api.matrix import ENTRIES
from tests.api.serving import ByName


def turns_of(at_once: int, waiting: int = 9) -> OwnerTurns:
    return OwnerTurns("lists", at_once=at_once, waiting=waiting)


class Lists:
    """Lists that run until they are told to end."""

    def __init__(self, turns: OwnerTurns) -> None:
        self._turns = turns
        self.running: list[str] = []
        self._ends: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def ask(self, owner: str, name: str) -> None:
        """Ask for a list, and let it come as far as it can."""
        self._ends[name] = asyncio.Event()
        self._tasks[name] = asyncio.create_task(self._list(owner, name))
        await self._settled()

    async def end(self, name: str) -> None:
        self._ends[name].set()
        await self._tasks[name]
        await self._settled()

    async def leave(self, name: str) -> None:
        """The client closes the connection."""
        self._tasks[name].cancel()
        with suppress(asyncio.CancelledError):
            await self._tasks[name]
        await self._settled()

    async def _list(self, owner: str, name: str) -> None:
        async with self._turns.turn(owner):
            self.running.append(name)
            try:
                await self._ends[name].wait()
            finally:
                self.running.remove(name)

    async def _settled(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)


async def test_each_owner_has_one_list_at_a_time_and_room_is_left_for_another() -> None:
    lists = Lists(turns_of(at_once=2))
    for name in ("a1", "a2", "a3"):
        await lists.ask("ada", name)
    await lists.ask("bob", "b1")
    assert lists.running == ["a1", "b1"]
    await lists.end("a1")
    assert lists.running == ["b1", "a2"]


async def test_owners_take_turns() -> None:
    lists = Lists(turns_of(at_once=1))
    for owner, name in (("ada", "a1"), ("ada", "a2"), ("ada", "a3"), ("bob", "b1"), ("eve", "e1"), ("bob", "b2")):
        await lists.ask(owner, name)
    seen = []
    while lists.running:
        [name] = lists.running
        seen.append(name)
        await lists.end(name)
    assert seen == ["a1", "a2", "b1", "e1", "a3", "b2"]


async def test_a_line_that_is_too_long_is_refused_and_says_when_to_come_again() -> None:
    turns = turns_of(at_once=1, waiting=2)
    lists = Lists(turns)
    for name in ("a1", "a2", "a3"):
        await lists.ask("ada", name)
    with pytest.raises(RateLimited, match="2 lists wait") as refused:
        async with turns.turn("ada"):
            pass
    assert refused.value.headers["Retry-After"] == "1"
    await lists.ask("bob", "b1")
    await lists.end("a1")
    await lists.end("a2")
    assert lists.running == ["b1"]


async def test_who_leaves_gives_up_the_place() -> None:
    lists = Lists(turns_of(at_once=1))
    for owner, name in (("ada", "a1"), ("ada", "a2"), ("bob", "b1")):
        await lists.ask(owner, name)
    await lists.leave("a2")
    await lists.leave("a1")
    assert lists.running == ["b1"]
    await lists.end("b1")
    await lists.ask("ada", "a3")
    assert lists.running == ["a3"]


async def test_a_turn_that_comes_as_its_client_leaves_goes_to_the_next() -> None:
    turns = turns_of(at_once=1)
    async with turns.turn("ada"):
        waiting = asyncio.create_task(turns.turn("bob").__aenter__())
        await asyncio.sleep(0)
    waiting.cancel()  # its turn has come, but it does not know yet
    with suppress(asyncio.CancelledError):
        await waiting
    async with asyncio.timeout(1), turns.turn("eve"):
        pass


# --- over the API

BULK = ("/v1/jobs/bulk", "/v1/runs/bulk", "/v1/dead-letters/requeue", "/v1/dead-letters/discard")
CANCEL = {"action": "cancel", "filter": {}}


@pytest.fixture
def admission() -> Admission:
    return Admission()


@pytest.fixture
async def client(services: Services, admission: Admission) -> AsyncIterator[httpx2.AsyncClient]:
    app = create_app(services, guard=ByName(), admission=admission)
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost") as client:
        yield client


def of(owner: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {owner}"}


class Unending:
    """A body whose end never comes."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b'{"filter": {}'
        self.asked.set()
        await asyncio.Event().wait()


@pytest.mark.parametrize("path", BULK)
async def test_a_slow_sender_keeps_no_turn(client: httpx2.AsyncClient, path: str) -> None:
    body = Unending()
    slow = asyncio.create_task(client.post(path, content=body, headers=of("ann")))
    await body.asked.wait()
    async with asyncio.timeout(5):
        done = await client.post("/v1/runs/bulk", json=CANCEL, headers=of("ann"))
        listed = await client.get("/v1/jobs", headers=of("ann"))
    assert (done.status_code, listed.status_code) == (200, 200)
    slow.cancel()
    with suppress(asyncio.CancelledError):
        await slow


def test_a_list_has_no_body_whose_sender_could_keep_its_turn() -> None:
    listings = [entry for entry in ENTRIES if entry.operation.listing]
    assert len(listings) > 5
    assert [str(entry) for entry in listings if entry.operation.body is not None] == []


async def test_acts_on_many_and_lists_do_not_wait_for_each_other(
    client: httpx2.AsyncClient, admission: Admission
) -> None:
    async with asyncio.timeout(5), admission.bulk.turn("ann"):
        assert (await client.get("/v1/jobs", headers=of("ann"))).status_code == 200
        assert (await client.post("/v1/runs/bulk", json=CANCEL, headers=of("bob"))).status_code == 200


@pytest.mark.parametrize("path", BULK)
async def test_few_acts_on_many_of_one_owner_wait_and_more_are_refused(
    client: httpx2.AsyncClient, admission: Admission, path: str
) -> None:
    admission.bulk = OwnerTurns("acts on many", at_once=9, waiting=1)
    body = {"filter": {}} if "dead-letters" in path else CANCEL
    async with admission.bulk.turn("ann"):
        waits = asyncio.create_task(client.post(path, json=body, headers=of("ann")))
        async with asyncio.timeout(5):
            while not admission.bulk._lines:  # noqa: ASYNC110 - no event tells of it
                await asyncio.sleep(0.001)
        refused = await client.post(path, json=body, headers=of("ann"))
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    assert refused.json()["detail"].startswith("1 acts on many wait, as many as one owner may have")
    assert (await waits).status_code == 200
