"""`http.request` reaches nothing internal, however the address is written, resolved or redirected to."""

import socket
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from horae.core.decisions.results import Failure
from horae.engine.execution.outcome import Success
from tests.execution.executing import stage
from tests.execution.ssrf import REDIRECTS, ROWS, Listener, Row, listener


@pytest.fixture
def inside() -> Iterator[Listener]:
    with listener() as found:
        yield found


class Resolver:
    """A DNS double: each query gets the next answer, and the last one from then on."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self._answers = list(answers)
        self.asked = 0

    def getaddrinfo(self, host: str, port: int, **options: Any) -> list[Any]:
        assert host == "rebinding.example"
        self.asked += 1
        addresses = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return [
            (socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))
            for address in addresses
        ]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
async def test_an_internal_address_is_refused_in_every_spelling(inside: Listener, row: Row) -> None:
    async with stage() as play:
        result = await play.result("http.request", url=row.url(inside.port))
    assert isinstance(result, Failure), result
    assert result.error.type in row.errors, result
    assert inside.heard == []


@pytest.mark.parametrize("row", [row for row in ROWS if row.local], ids=lambda row: row.name)
async def test_the_same_spelling_leads_inside_where_that_is_allowed(inside: Listener, row: Row) -> None:
    async with stage(http_allow=("127.0.0.0/8", "0.0.0.0/32", "::1/128", "::/128")) as play:
        result = await play.result("http.request", url=row.url(inside.port))
    assert isinstance(result, Success), result
    assert len(inside.heard) == 1


@pytest.mark.parametrize("place", REDIRECTS)
async def test_a_redirect_inside_is_not_followed(inside: Listener, place: str) -> None:
    with listener(place.format(port=inside.port)) as outside:
        async with stage(http_allow=("localhost",)) as play:
            result = await play.result("http.request", url=f"http://localhost:{outside.port}/")
    assert isinstance(result, Failure)
    assert result.error.type == "BlockedAddress"
    assert (len(outside.heard), inside.heard) == (1, [])


async def test_a_redirect_inside_is_followed_where_that_is_allowed(inside: Listener) -> None:
    with listener(f"http://127.0.0.1:{inside.port}/") as outside:
        async with stage(http_allow=("localhost", "127.0.0.1")) as play:
            result = await play.result("http.request", url=f"http://localhost:{outside.port}/")
    assert isinstance(result, Success)
    assert (len(outside.heard), len(inside.heard)) == (1, 1)


async def test_a_name_is_resolved_once_and_its_address_pinned(
    inside: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolver = Resolver(["127.0.0.2"], ["127.0.0.1"])  # the second answer would lead elsewhere
    monkeypatch.setattr(socket, "getaddrinfo", resolver.getaddrinfo)
    async with stage(http_allow=("127.0.0.2",)) as play:
        result = await play.result("http.request", url=f"http://rebinding.example:{inside.port}/")
    assert isinstance(result, Success)
    assert (resolver.asked, inside.heard) == (1, ["127.0.0.2"])


async def test_a_name_that_turns_inward_is_refused_when_it_does(
    inside: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolver = Resolver(["127.0.0.2"], ["127.0.0.1"])
    monkeypatch.setattr(socket, "getaddrinfo", resolver.getaddrinfo)
    async with stage(http_allow=("127.0.0.2",)) as play:
        first = await play.result("http.request", url=f"http://rebinding.example:{inside.port}/")
        second = await play.result("http.request", url=f"http://rebinding.example:{inside.port}/")
    assert isinstance(first, Success)
    assert isinstance(second, Failure)
    assert second.error.type == "BlockedAddress"
    assert inside.heard == ["127.0.0.2"]


@pytest.mark.parametrize(
    "answers", [["1.1.1.1", "127.0.0.1"], ["127.0.0.1", "1.1.1.1"], ["2606:4700::1111", "::1"], ["::ffff:127.0.0.1"]]
)
async def test_one_internal_answer_among_public_ones_is_enough(
    inside: Listener, monkeypatch: pytest.MonkeyPatch, answers: list[str]
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", Resolver(answers).getaddrinfo)
    async with stage() as play:
        result = await play.result("http.request", url=f"http://rebinding.example:{inside.port}/")
    assert isinstance(result, Failure)
    assert result.error.type == "BlockedAddress"
    assert inside.heard == []
