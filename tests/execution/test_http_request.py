"""`http.request`: one request, to public addresses only."""

import asyncio
import encodings
import socket
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from horae.core.decisions.results import Failure
from horae.engine.execution.outcome import AttemptResult, Stopped, Success
from horae.secrets.sealer import Sealer
from horae.tasks import http_request
from horae.tasks.name_lookups import MAX_OF_OWNER
from horae.tasks.network_policy import is_permitted
from tests.execution.executing import Stage, stage, until

ENDLESS = {
    "/endless/body": b"x",
    "/endless/head": b"X: " + b"y" * 1000 + b"\r\n",
    "/endless/prelude": b"HTTP/1.1 100 Continue\r\n\r\n",
    "/endless/silence": b"",
}


class Server:
    """Answers as the path asks, and records the requests."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.url = ""
        self.hanging: list[asyncio.StreamWriter] = []

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            line, *rest = head.strip().split("\r\n")
            headers = {name.lower(): value for name, _, value in (item.partition(": ") for item in rest)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            self.requests.append((line, headers, body))
            writer.write(self._reply(line.split()[1]))
            if line.split()[1] == "/hang":
                self.hanging.append(writer)
                return
            while line.split()[1].startswith("/endless") and not reader.at_eof():
                await writer.drain()
                await asyncio.sleep(0.001)
                writer.write(ENDLESS[line.split()[1]])
            await writer.drain()
            writer.close()
        except (ConnectionError, asyncio.IncompleteReadError):
            writer.close()

    def _reply(self, path: str) -> bytes:
        match path.strip("/").split("/"):
            case ["hang"]:
                return b""
            case ["cut"]:
                return b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc"
            case ["large"]:
                return b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1_000_000
            case ["later"]:
                return b"HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nContent-Length: 4\r\n\r\nbusy"
            case ["moved", status]:
                return f"HTTP/1.1 {status} Moved\r\nLocation: /200\r\nContent-Length: 0\r\n\r\n".encode()
            case ["elsewhere", *path]:
                place = f"{self.url.replace('127.0.0.1', 'localhost')}/{'/'.join(path) or '200'}"
                return f"HTTP/1.1 307 Moved\r\nLocation: {place}\r\nContent-Length: 0\r\n\r\n".encode()
            case ["missing", *_]:
                page = f"<h1>There is no {path}</h1>".encode()
                return f"HTTP/1.1 404 Not Found\r\nContent-Length: {len(page)}\r\n\r\n".encode() + page
            case ["round"]:
                return b"HTTP/1.1 302 Found\r\nLocation: /round\r\nContent-Length: 0\r\n\r\n"
            case ["astray", *place]:
                return f"HTTP/1.1 302 Found\r\nLocation: {'/'.join(place)}\r\nContent-Length: 0\r\n\r\n".encode()
            case ["nowhere"]:
                return b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n"
            case ["endless", "body"]:
                return b"HTTP/1.1 200 OK\r\n\r\n"
            case ["endless", "head"]:
                return b"HTTP/1.1 200 OK\r\n"
            case ["endless", _]:
                return b""
            case ["charset", name]:
                text = b"a" * 30_000 + b"-" + b"9" * 30_000
                head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset={name}\r\nContent-Length: {len(text)}"
                return head.encode() + b"\r\n\r\n" + text
            case ["latin"]:
                return b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=latin-1\r\nContent-Length: 1\r\n\r\n\xe9"
            case [status]:
                return f"HTTP/1.1 {status} Status\r\nX-Thing: yes\r\nContent-Length: 5\r\n\r\nhello".encode()
        raise AssertionError(path)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    listening = await asyncio.start_server(server.answer, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    yield server
    listening.close()
    for writer in server.hanging:
        writer.close()


@pytest.fixture
async def play() -> AsyncIterator[Stage]:
    async with stage(http_allow=("127.0.0.0/8", "localhost")) as play:
        yield play


def returned(result: AttemptResult) -> Any:
    assert isinstance(result, Success), result
    assert result.result is not None
    return msgspec.json.decode(result.result)


def failure(result: AttemptResult) -> Failure:
    assert isinstance(result, Failure), result
    return result


async def test_a_request_carries_the_run_and_its_reply_is_the_result(play: Stage, server: Server) -> None:
    attempt = play.begin("http.request", url=f"{server.url}/200", headers={"X-Mine": "1"})
    reply = returned(await attempt.result())
    assert (reply["status"], reply["body"], reply["headers"]["x-thing"]) == (200, "hello", "yes")
    [(line, headers, body)] = server.requests
    assert (line, body) == ("GET /200 HTTP/1.1", b"")
    assert headers["idempotency-key"] == f"run_{attempt.run.id}"
    assert headers["host"] == server.url.removeprefix("http://")
    assert headers["x-mine"] == "1"


async def test_the_name_of_the_host_is_kept_although_its_address_is_pinned(play: Stage, server: Server) -> None:
    url = server.url.replace("127.0.0.1", "localhost")
    assert returned(await play.result("http.request", url=f"{url}/200"))["status"] == 200
    assert server.requests[0][1]["host"] == url.removeprefix("http://")


@pytest.mark.parametrize(
    ("body", "sent", "content_type"),
    [("text", b"text", None), ({"a": [1]}, b'{"a":[1]}', "application/json"), ([], b"[]", "application/json")],
)
async def test_a_body_is_text_or_json(
    play: Stage, server: Server, body: object, sent: bytes, content_type: str | None
) -> None:
    await play.result("http.request", url=f"{server.url}/200", method="post", body=body)
    [(line, headers, got)] = server.requests
    assert line.startswith("POST ")
    assert (got, headers.get("content-type")) == (sent, content_type)


@pytest.mark.parametrize(
    ("path", "type_", "fatal", "after"),
    [
        ("404", "Rejected", True, None),
        ("nowhere", "Rejected", True, None),
        ("astray/ftp:/127.0.0.1/", "Rejected", True, None),
        ("429", "UnexpectedStatus", False, None),
        ("500", "UnexpectedStatus", False, None),
        ("later", "Throttled", False, 7),
        ("cut", "Unreachable", False, None),
    ],
)
async def test_other_replies_are_failures_which_are_tried_again_where_that_makes_sense(
    play: Stage, server: Server, path: str, type_: str, fatal: bool, after: int | None
) -> None:
    result = failure(await play.result("http.request", url=f"{server.url}/{path}"))
    assert (result.error.type, result.fatal) == (type_, fatal)
    assert (result.retry_after and result.retry_after.total_seconds()) == after
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("method", "status", "methods"),
    [("GET", 301, "GET GET"), ("GET", 302, "GET GET"), ("HEAD", 303, "HEAD HEAD"), ("POST", 307, "POST POST")],
)
async def test_a_redirect_is_followed_by_the_same_request(
    play: Stage, server: Server, method: str, status: int, methods: str
) -> None:
    headers = {"X-Token": "t"}
    body = "text" if method == "POST" else None
    reply = returned(
        await play.result("http.request", url=f"{server.url}/moved/{status}", method=method, headers=headers, body=body)
    )
    assert reply["status"] == 200
    assert " ".join(line.split()[0] for line, _, _ in server.requests) == methods
    assert [(sent["x-token"], content) for _, sent, content in server.requests] == [("t", (body or "").encode())] * 2


@pytest.mark.parametrize("status", [301, 302, 303])
async def test_a_redirect_that_would_lose_the_body_is_told(play: Stage, server: Server, status: int) -> None:
    result = failure(await play.result("http.request", url=f"{server.url}/moved/{status}", method="POST", body="text"))
    assert (result.error.type, result.fatal) == ("Rejected", True)
    assert "the redirect to /200 is not followed" in result.error.message
    assert len(server.requests) == 1


async def test_another_host_is_not_told_the_headers_that_were_for_the_first(play: Stage, server: Server) -> None:
    headers = {"Authorization": "Bearer t", "X-Api-Key": "k", "Accept": "text/plain"}
    await play.result("http.request", url=f"{server.url}/elsewhere", headers=headers)
    [(_, first, _), (_, second, _)] = server.requests
    assert {"authorization", "x-api-key"} <= first.keys()
    assert not {"authorization", "x-api-key"} & second.keys()
    assert (second["accept"], second["host"][:9]) == ("text/plain", "localhost")


@pytest.mark.parametrize(
    ("secrets", "params", "path"),
    [
        ({"body": "T0K3N-1"}, {"method": "POST"}, "/elsewhere"),
        ({"body": {"password": "T0K3N-1"}}, {"method": "PUT"}, "/elsewhere"),
        ({"headers": {"Accept": "T0K3N-1"}}, {}, "/elsewhere"),
        ({"headers": {"Authorization": "Bearer T0K3N-1"}}, {}, "/elsewhere/T0K3N-1"),
    ],
)
async def test_another_host_is_not_told_a_secret(
    play: Stage, server: Server, secrets: dict[str, Any], params: dict[str, Any], path: str
) -> None:
    sealed = Sealer().seal(msgspec.json.encode(secrets).decode())
    result = failure(await play.result("http.request", secrets=sealed, url=f"{server.url}{path}", **params))
    assert (result.error.type, result.fatal) == ("Rejected", True)
    assert "would tell another host a secret" in result.error.message
    assert "T0K3N-1" not in result.error.message
    assert len(server.requests) == 1


async def test_a_body_without_secrets_is_sent_to_where_a_redirect_leads(play: Stage, server: Server) -> None:
    secrets = Sealer().seal('{"headers":{"Authorization":"Bearer T0K3N-1"}}')
    url = f"{server.url}/elsewhere"
    reply = returned(await play.result("http.request", secrets=secrets, url=url, method="POST", body="text"))
    assert reply["status"] == 200
    assert [content for _, _, content in server.requests] == [b"text", b"text"]


@pytest.mark.parametrize("path", ["/missing/hooks/T0K3N-1", "/elsewhere/T0K3N-1", "/astray/ftp:/127.0.0.1/T0K3N-1"])
async def test_a_secret_address_is_not_told_by_what_its_server_answers(play: Stage, server: Server, path: str) -> None:
    for method in ("GET", "POST"):
        secrets = Sealer().seal(msgspec.json.encode({"url": f"{server.url}{path}"}).decode())
        attempt = play.begin("http.request", secrets=secrets, method=method)
        result = failure(await attempt.result())
        assert result.error.type == "Rejected"
        assert "T0K3N" not in f"{result} {await play.log(attempt)}"
    expected = returned(await play.result("http.request", secrets=secrets, expect=["2xx", "3xx", "4xx"]))
    assert "T0K3N" not in str(expected)


async def test_redirects_come_to_an_end(play: Stage, server: Server) -> None:
    result = failure(await play.result("http.request", url=f"{server.url}/round"))
    assert (result.error.type, result.fatal) == ("Rejected", True)
    assert len(server.requests) == 6


async def test_a_redirect_that_is_expected_is_the_reply(play: Stage, server: Server) -> None:
    assert returned(await play.result("http.request", url=f"{server.url}/moved/302", expect="3xx"))["status"] == 302
    assert len(server.requests) == 1


@pytest.mark.parametrize("expect", [404, [200, 404], "4xx", ["5xx", "4xx"]])
async def test_what_is_expected_is_a_success(play: Stage, server: Server, expect: object) -> None:
    assert returned(await play.result("http.request", url=f"{server.url}/404", expect=expect))["status"] == 404


async def test_a_large_reply_is_cut(play: Stage, server: Server) -> None:
    assert len(returned(await play.result("http.request", url=f"{server.url}/large"))["body"]) == 65_536


async def test_a_reply_is_read_in_its_own_encoding(play: Stage, server: Server) -> None:
    assert returned(await play.result("http.request", url=f"{server.url}/latin"))["body"] == "é"


@pytest.mark.parametrize("name", ["punycode", "idna", "unicode_escape", "undefined", "zlib", "no-such", "%00"])
async def test_what_is_no_charset_is_read_as_utf_8_in_no_time(play: Stage, server: Server, name: str) -> None:
    began = time.monotonic()
    reply = returned(await play.result("http.request", url=f"{server.url}/charset/{name}"))
    assert reply["body"] == "a" * 30_000 + "-" + "9" * 30_000
    assert time.monotonic() - began < 2


async def test_invented_charsets_leave_nothing_in_memory(play: Stage, server: Server) -> None:
    await play.result("http.request", url=f"{server.url}/charset/latin-1")
    known = len(encodings._cache)  # type: ignore[attr-defined]
    for name in ("x-invented-1", "x-invented-2", "latin----1", "LATIN__1"):
        assert returned(await play.result("http.request", url=f"{server.url}/charset/{name}"))["status"] == 200
    assert len(encodings._cache) == known  # type: ignore[attr-defined]


@pytest.mark.parametrize("what", ["body", "head", "prelude", "silence"])
async def test_a_reply_that_never_ends_is_waited_for_as_long_as_there_is_time(
    play: Stage, server: Server, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_request, "TOTAL_SECONDS", 0.3)
    monkeypatch.setattr(http_request, "MAX_REPLY", 10**9)
    result = failure(await play.result("http.request", url=f"{server.url}/endless/{what}"))
    assert (result.error.type, result.fatal) == ("Unreachable", False)


async def test_a_request_can_be_stopped(play: Stage, server: Server) -> None:
    attempt = play.begin("http.request", url=f"{server.url}/hang")
    await until(lambda: server.requests)
    attempt.running.stop()
    assert await attempt.result() == Stopped()


class NameServers:
    """A resolver that blocks for some names until it is released."""

    def __init__(self) -> None:
        self.speak = threading.Event()
        self.asked = 0
        self._really = socket.getaddrinfo

    def getaddrinfo(self, host: str, *args: Any, **keywords: Any) -> list[Any]:
        if host.endswith(".silent.example"):
            self.asked += 1
            assert self.speak.wait(20)
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return self._really(host, *args, **keywords)


async def test_name_servers_that_are_silent_keep_nobody_else_waiting(
    play: Stage, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = NameServers()
    monkeypatch.setattr(socket, "getaddrinfo", servers.getaddrinfo)
    waiting = [play.begin("http.request", url=f"http://{n}.silent.example/") for n in range(300)]
    await until(lambda: servers.asked == MAX_OF_OWNER)
    url = server.url.replace("127.0.0.1", "localhost")
    others = [play.begin("http.request", owner="bob", url=f"{url}/200") for _ in range(40)]
    assert {returned(await attempt.result())["status"] for attempt in others} == {200}
    for given_up in waiting[:10] + waiting[-10:]:
        given_up.running.stop()
        assert await given_up.result() == Stopped()
    assert servers.asked == MAX_OF_OWNER
    servers.speak.set()
    assert {failure(await attempt.result()).error.type for attempt in waiting[10:-10]} == {"UnknownHost"}
    assert servers.asked == 290
    assert returned(await play.result("http.request", url=f"{server.url}/200"))["status"] == 200


async def test_nobody_there_is_tried_again(play: Stage, unused_tcp_port: int) -> None:
    result = failure(await play.result("http.request", url=f"http://127.0.0.1:{unused_tcp_port}/"))
    assert (result.error.type, result.fatal) == ("Unreachable", False)
    unknown = failure(await play.result("http.request", url="http://no-such-host.invalid/"))
    assert (unknown.error.type, unknown.fatal) == ("UnknownHost", False)


@pytest.mark.parametrize(
    "params",
    [
        {"url": "ftp://example.com/"},
        {"url": "/etc/passwd"},
        {"url": "http://"},
        {"url": "http://exa\nmple.com/"},
        {"url": "http://127.0.0.1/", "method": "GET / HTTP/1.1\r\nX: y"},
        {"url": "http://127.0.0.1/", "headers": {"X": "a\r\nY: b"}},
        {"url": "http://127.0.0.1/", "headers": {"X\n": "a"}},
        {"url": "http://127.0.0.1:99999/"},
        {"url": "http://127.0.0.1:0/"},
        {"url": "http://0177.0.0.1/"},
    ],
)
async def test_a_request_that_cannot_be_made_fails_for_good(play: Stage, params: dict[str, Any]) -> None:
    assert failure(await play.result("http.request", **params)).fatal


async def test_an_internal_address_is_refused_with_what_to_do_about_it() -> None:
    async with stage() as play:
        result = failure(await play.result("http.request", url="http://127.0.0.1:1/"))
        assert (result.error.type, result.fatal) == ("BlockedAddress", True)
        assert "HORAE_HTTP_ALLOW" in result.error.message


@pytest.mark.parametrize("address", ["1.1.1.1", "2606:4700::1111", "64:ff9b::1.1.1.1", "::ffff:1.1.1.1"])
def test_public_addresses_are_not(address: str) -> None:
    assert is_permitted(address, ())
