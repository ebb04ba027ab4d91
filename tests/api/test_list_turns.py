"""Owners take turns at lists: however many one asks for, another's next one does not wait for all of them."""

import asyncio
from contextlib import suppress

import pytest

from horae.api.http.list_turns import ListTurns
from horae.api.http.problems import RateLimited


class Lists:
    """Lists that run until they are told to end."""

    def __init__(self, turns: ListTurns) -> None:
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
    lists = Lists(ListTurns(at_once=2))
    for name in ("a1", "a2", "a3"):
        await lists.ask("ada", name)
    await lists.ask("bob", "b1")
    assert lists.running == ["a1", "b1"]
    await lists.end("a1")
    assert lists.running == ["b1", "a2"]


async def test_owners_take_turns() -> None:
    lists = Lists(ListTurns(at_once=1))
    for owner, name in (("ada", "a1"), ("ada", "a2"), ("ada", "a3"), ("bob", "b1"), ("eve", "e1"), ("bob", "b2")):
        await lists.ask(owner, name)
    seen = []
    while lists.running:
        [name] = lists.running
        seen.append(name)
        await lists.end(name)
    assert seen == ["a1", "a2", "b1", "e1", "a3", "b2"]


async def test_a_line_that_is_too_long_is_refused_and_says_when_to_come_again() -> None:
    turns = ListTurns(at_once=1, waiting=2)
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
    lists = Lists(ListTurns(at_once=1))
    for owner, name in (("ada", "a1"), ("ada", "a2"), ("bob", "b1")):
        await lists.ask(owner, name)
    await lists.leave("a2")
    await lists.leave("a1")
    assert lists.running == ["b1"]
    await lists.end("b1")
    await lists.ask("ada", "a3")
    assert lists.running == ["a3"]


async def test_a_turn_that_comes_as_its_client_leaves_goes_to_the_next() -> None:
    turns = ListTurns(at_once=1)
    async with turns.turn("ada"):
        waiting = asyncio.create_task(turns.turn("bob").__aenter__())
        await asyncio.sleep(0)
    waiting.cancel()  # its turn has come, but it does not know yet
    with suppress(asyncio.CancelledError):
        await waiting
    async with asyncio.timeout(1), turns.turn("eve"):
        pass
