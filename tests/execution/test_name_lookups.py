"""Look-ups of names: a share for each owner, in turn, and never for ever."""

import asyncio
import socket
import threading
from typing import Any

import pytest

from horae.tasks.name_lookups import NameLookups
from tests.execution.executing import until


class Resolver:
    """Answers a name when the test says so."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._answers: dict[str, threading.Event] = {}

    def getaddrinfo(self, host: str, port: int, **options: Any) -> list[Any]:
        answer = self._answers.setdefault(host, threading.Event())
        self.asked.append(host)
        assert answer.wait(20)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", port))] * 2

    def answer(self, host: str) -> None:
        self._answers.setdefault(host, threading.Event()).set()


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Resolver:
    resolver = Resolver()
    monkeypatch.setattr(socket, "getaddrinfo", resolver.getaddrinfo)
    return resolver


def ask(lookups: NameLookups, owner: str, *hosts: str) -> list[asyncio.Task[list[str]]]:
    return [asyncio.create_task(lookups.addresses(host, 80, owner=owner)) for host in hosts]


async def test_owners_take_turns_when_every_place_is_taken(resolver: Resolver) -> None:
    lookups = NameLookups(limit=4, of_owner=3)
    asked = ask(lookups, "ann", "a1", "a2", "a3", "a4", "a5") + ask(lookups, "bob", "b1", "b2", "b3")
    await until(lambda: len(resolver.asked) == 4)
    assert sorted(resolver.asked) == ["a1", "a2", "a3", "b1"]
    for host, following in (("a1", "a4"), ("a2", "b2"), ("a3", "a5"), ("b1", "b3")):
        resolver.answer(host)
        await until(lambda: len(resolver.asked) > 4)
        assert resolver.asked.pop() == following
    for host in ("a4", "a5", "b2", "b3"):
        resolver.answer(host)
    assert await asyncio.gather(*asked) == [["192.0.2.1"]] * 8


async def test_the_same_question_is_asked_once_at_a_time(resolver: Resolver) -> None:
    lookups = NameLookups()
    asked = ask(lookups, "ann", *["slow"] * 100)
    await until(lambda: resolver.asked)
    resolver.answer("slow")
    await asyncio.gather(*asked)
    assert resolver.asked == ["slow"]
    await lookups.addresses("slow", 80, owner="ann")
    assert resolver.asked == ["slow", "slow"]


async def test_whoever_has_an_answer_finds_a_free_place(resolver: Resolver) -> None:
    lookups = NameLookups(limit=1)
    resolver.answer("quick")
    for _ in range(50):
        await lookups.addresses("quick", 80, owner="ann")
        assert not lookups._running


async def test_an_answer_that_does_not_come_is_not_waited_for(resolver: Resolver) -> None:
    lookups = NameLookups(of_owner=1, seconds=0.1)
    asked = ask(lookups, "ann", "silent", "behind", "behind")
    for answer in await asyncio.gather(*asked, return_exceptions=True):
        assert isinstance(answer, TimeoutError)
    assert resolver.asked == ["silent"]
    assert not lookups._waiting
    resolver.answer("silent")
    await until(lambda: not lookups._lookups)
    resolver.answer("behind")
    assert await lookups.addresses("behind", 80, owner="ann") == ["192.0.2.1"]
