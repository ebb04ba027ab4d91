"""Requests that are too large, too slow or not HTTP get a problem document, and the server goes on."""

import asyncio
import contextlib
import json
import logging
import resource
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from horae.api.http import protocol
from horae.api.http.protocol import (
    MAX_HEADER_BYTES,
    MAX_HEADERS,
    MAX_PIPELINED,
    MAX_URL,
    LimitedConnection,
    connections_allowed,
)
from horae.api.http.transport import MAX_BUFFERED, CoalescingTransport

LARGE = 40_000_000  # bytes: more than the buffers of any two sockets hold


class Server(uvicorn.Server):
    """Serves in the test's event loop without signal handlers."""

    def __init__(self, app: Starlette, port: int) -> None:
        super().__init__(
            uvicorn.Config(app, http=LimitedConnection, ws="none", lifespan="off", log_config=None, port=port)
        )
        self.release = asyncio.Event()  # of the responses to /slow
        app.state.release = self.release

    def install_signal_handlers(self) -> None: ...

    async def until_connections(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.server_state.connections) != count:  # noqa: ASYNC110 - uvicorn has no event for it
                await asyncio.sleep(0.005)


async def echo(request: Request) -> Response:
    body = await request.body()
    return JSONResponse({"headers": len(request.headers), "body": len(body), "path": len(request.url.path)})


async def large(request: Request) -> Response:
    return Response(b"x" * LARGE)


async def slow(request: Request) -> Response:
    await request.app.state.release.wait()
    return JSONResponse("at last")


async def stream(request: Request) -> Response:
    async def messages() -> AsyncIterator[bytes]:
        yield b"begun"
        await asyncio.Event().wait()

    return StreamingResponse(messages())


@pytest.fixture
async def server(unused_tcp_port: int) -> AsyncIterator[Server]:
    routes = [Route("/large", large), Route("/slow", slow), Route("/stream", stream)]
    routes += [Route("/{rest:path}", echo, methods=["GET", "POST"])]
    server = Server(Starlette(routes=routes), unused_tcp_port)
    serving = asyncio.create_task(server._serve())
    async with asyncio.timeout(10):
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)
    yield server
    server.should_exit = True
    await serving


@pytest.fixture
def port(server: Server) -> int:
    return server.config.port


async def say(port: int, *pieces: bytes) -> tuple[int, Any, bytes]:
    """Send pieces and read until the server closes; return the status, JSON and head of the response."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        answer = await asyncio.wait_for(reader.read(), 10)
    except ConnectionError:
        answer = b""
    finally:
        writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return (int(head.split()[1]) if head else 0), (json.loads(body) if body else None), head


def request(*, path: str = "/", headers: dict[str, str] | None = None, body: bytes = b"") -> bytes:
    lines = {"Host": "localhost", "Connection": "close", "Content-Length": str(len(body)), **(headers or {})}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body


async def test_a_request_within_the_limits_is_served(port: int) -> None:
    headers = {f"X-{number}": "v" * 500 for number in range(MAX_HEADERS - 3)}
    status, result, _ = await say(port, request(path="/" + "p" * 9000, headers=headers, body=b"x" * 1_000_000))
    assert (status, result) == (200, {"headers": MAX_HEADERS, "body": 1_000_000, "path": 9001})


@pytest.mark.parametrize(
    ("pieces", "status", "code"),
    [
        ([request(path="/" + "p" * MAX_URL)], 414, "uri_too_long"),
        ([request(headers={f"X-{number}": "v" for number in range(MAX_HEADERS)})], 431, "headers_too_large"),
        ([request(headers={"X": "v" * MAX_HEADER_BYTES})], 431, "headers_too_large"),
        ([request(headers={f"X-{number}": "v" * 10_000 for number in range(10)})], 431, "headers_too_large"),
        ([b"GET / HTTP/1.1\r\nX: ", *[b"v" * 10_000] * 20], 431, "headers_too_large"),
        ([b"nonsense\r\n\r\n"], 400, "malformed"),
        ([b"GET / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"], 400, "malformed"),
        ([b"GET / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd"], 400, "malformed"),
    ],
)
async def test_what_is_too_large_or_no_http_is_refused(port: int, pieces: list[bytes], status: int, code: str) -> None:
    answered, problem, head = await say(port, *pieces)
    if answered:  # a client that is still writing may lose the response with its connection
        assert answered == status, problem
        assert b"application/problem+json" in head
        assert problem["status"] == status
        assert problem["code"] == code
    else:
        assert len(pieces) > 1
    assert (await say(port, request()))[0] == 200


async def test_a_head_that_does_not_come_is_not_waited_for(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.2)
    for beginning in (b"", b"GET / HTTP/1.1\r\nHost: x\r\n"):
        status, problem, _ = await say(port, beginning)
        assert (status, problem["code"]) == (408, "request_timeout")


async def test_a_body_that_does_not_end_is_not_waited_for(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "BODY_SECONDS", 0.2)
    beginning = request(headers={"Content-Length": "1000"}, body=b"x")
    status, _, _ = await say(port, beginning)
    assert status == 0


async def test_a_connection_can_be_used_again_and_has_as_much_time_again(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(3):
        writer.write(request(headers={"Connection": "keep-alive"}))
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split()[0]))
    writer.close()


async def test_requests_that_come_in_a_row_are_answered_in_their_order(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    sizes = range(500)
    pipelined = [request(headers={"Connection": "keep-alive"}, body=b"x" * size) for size in sizes]
    writer.write(b"".join(pipelined))
    result = []
    for _ in sizes:
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
        size = int(head.lower().partition(b"content-length: ")[2].split()[0])
        result.append(json.loads(await reader.readexactly(size))["body"])
    writer.close()
    assert result == list(sizes)


async def test_an_answer_that_nobody_takes_is_not_kept(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched, socket.create_connection(("127.0.0.1", server.config.port)) as deaf:
        patched.setattr(protocol, "WRITE_SECONDS", 0.2)
        deaf.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        await server.until_connections(1)
        await server.until_connections(0)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.config.port)
    writer.write(b"GET /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert len(await asyncio.wait_for(reader.read(), 20)) > LARGE  # a client that reads gets all of it
    writer.close()


async def test_the_connection_that_waited_longest_makes_room(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "MAX_CONNECTIONS", 3)
    waiting = []
    for beginning in (b"", b"GET / HT", b"GET / HTTP/1.1\r\nX: y\r\n"):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.config.port)
        writer.write(beginning)
        waiting.append((reader, writer))
        await server.until_connections(len(waiting))
    for reader, _ in waiting[:3]:
        assert (await say(server.config.port, request()))[0] == 200
        assert b" 408 " in await asyncio.wait_for(reader.readline(), 10)
        waiting.append(await asyncio.open_connection("127.0.0.1", server.config.port))
        await server.until_connections(3)
    for _, writer in waiting:
        writer.close()


async def test_when_all_connections_are_at_work_a_new_one_is_to_come_back(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "MAX_CONNECTIONS", 2)
    at_work = [
        asyncio.create_task(say(server.config.port, b"GET /slow HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
        for _ in range(2)
    ]
    await server.until_connections(2)
    async with asyncio.timeout(10):
        while len(server.server_state.tasks) < 2:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.005)
    status, problem, head = await say(server.config.port, request())
    assert (status, problem["code"]) == (503, "unavailable")
    assert b"retry-after: 1" in head
    server.release.set()
    assert [(await done)[0] for done in at_work] == [200, 200]
    assert (await say(server.config.port, request()))[0] == 200


async def at_work(server: Server, count: int) -> list[asyncio.Task[tuple[int, Any, bytes]]]:
    """Open connections whose requests are not answered yet."""
    asking = b"GET /slow HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    tasks = [asyncio.create_task(say(server.config.port, asking)) for _ in range(count)]
    async with asyncio.timeout(10):
        while len(server.server_state.tasks) < count:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.005)
    return tasks


async def test_when_all_connections_are_at_work_probes_are_answered(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "MAX_CONNECTIONS", 2)
    busy = await at_work(server, 2)
    for path in ("/healthz", "/readyz", "/metrics", "/metrics?name=horae_runs_total"):
        status, _, head = await say(server.config.port, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert (status, b"connection: close" in head.lower()) == (200, True)
    for path in ("/", "/v1/jobs", "/healthz/more", "/docs"):
        assert (await say(server.config.port, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()))[0] == 503
    server.release.set()
    assert [(await done)[0] for done in busy] == [200, 200]


async def test_silent_connections_do_not_take_the_places_of_probes(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "MAX_CONNECTIONS", 2)
    monkeypatch.setattr(protocol, "RESERVED", 3)
    busy = await at_work(server, 2)
    silent = [await asyncio.open_connection("127.0.0.1", server.config.port) for _ in range(10)]
    assert (await say(server.config.port, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"))[0] == 200
    assert len(server.server_state.connections) <= 5
    for _, writer in silent:
        writer.close()
    server.release.set()
    await asyncio.gather(*busy)


async def deaf_connections(server: Server, count: int, asking: bytes) -> list[socket.socket]:
    """Open connections that send requests and never read, and wait until each of them holds answers back."""
    loop = asyncio.get_running_loop()
    deaf = []
    for _ in range(count):
        sock = socket.create_connection(("127.0.0.1", server.config.port))
        sock.setblocking(False)
        deaf.append(sock)
        await loop.sock_sendall(sock, asking)
    async with asyncio.timeout(20):
        while sum(one.flow.write_paused for one in server.server_state.connections) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    return deaf


async def test_connections_that_never_read_make_room_for_others(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "MAX_CONNECTIONS", 5)
    deaf = await deaf_connections(server, 5, b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n" * 3)
    for _ in range(5):
        assert (await say(server.config.port, request()))[0] == 200
    for sock in deaf:
        sock.close()


async def test_what_waits_to_be_written_is_limited_in_total(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "MAX_UNSENT", 2 * LARGE)
    deaf = await deaf_connections(server, 1, b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
    for _ in range(5):
        sock = socket.create_connection(("127.0.0.1", server.config.port))
        sock.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        deaf.append(sock)
    await server.until_connections(2)
    for sock in deaf:
        sock.close()


async def test_a_client_that_reads_slowly_is_served_and_one_that_reads_next_to_nothing_is_not(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "WRITE_SECONDS", 0.3)
    asking = b"GET /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", server.config.port)
    writer.write(asking)
    taken = 0
    while piece := await reader.read(LARGE // 16):
        taken += len(piece)
        await asyncio.sleep(0.02)  # a slow reader: it takes longer than WRITE_SECONDS for all of it
    assert taken > LARGE
    writer.close()
    [stingy] = await deaf_connections(server, 1, asking)
    async with asyncio.timeout(10):
        while server.server_state.connections:
            with contextlib.suppress(BlockingIOError, ConnectionError):
                stingy.recv(1)
            await asyncio.sleep(0.01)
    stingy.close()


async def test_requests_that_wait_for_their_turn_are_few(server: Server) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.config.port)
    short = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    writer.write(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n" + short * 2000)
    await writer.drain()
    async with asyncio.timeout(10):
        while not server.server_state.tasks:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.005)
    await asyncio.sleep(0)
    [connection] = server.server_state.connections
    assert len(connection.pipeline) <= MAX_PIPELINED
    server.release.set()
    for _ in range(2001):
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
        await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split()[0]))
    writer.close()


async def test_a_stream_ends_with_its_connection_also_when_requests_wait_behind_it(server: Server) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.config.port)
    writer.write(b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n" + request() * 2)
    await asyncio.wait_for(reader.readuntil(b"begun"), 10)
    assert server.server_state.tasks
    writer.close()
    async with asyncio.timeout(10):
        while server.server_state.tasks:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.005)


@pytest.mark.parametrize(
    ("files", "connections"),
    [(256, 128), (1024, 768), (4096, 3840), (1_048_576, 10_000), (resource.RLIM_INFINITY, 10_000)],
)
def test_connections_leave_files_for_all_else(files: int, connections: int) -> None:
    assert connections_allowed(files) == connections


async def test_nonsense_from_outside_is_not_logged(port: int, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="uvicorn"):
        for _ in range(5):
            assert (await say(port, b"nonsense\r\n\r\n"))[0] == 400
            upgrade = {"Connection": "Upgrade, close", "Upgrade": "websocket"}
            assert (await say(port, request(headers=upgrade)))[0] == 200
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


class Wire(asyncio.Transport):
    """Records what is sent, piece by piece."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []

    def write(self, data: Any) -> None:
        self.sent.append(data)

    def close(self) -> None:
        self.sent.append(b"closed")

    def is_closing(self) -> bool:
        return b"closed" in self.sent


async def test_a_head_and_its_body_are_sent_together() -> None:
    wire = Wire()
    transport = CoalescingTransport(wire, asyncio.get_running_loop())
    transport.write(b"head ")
    transport.write(b"body")
    assert wire.sent == []
    await asyncio.sleep(0)
    assert wire.sent == [b"head body"]
    transport.write(b"more")
    await asyncio.sleep(0)
    assert wire.sent == [b"head body", b"more"]


async def test_answers_that_are_ready_together_are_sent_in_a_row() -> None:
    wire, ready = Wire(), asyncio.Event()
    made: list[int] = []

    async def answer(number: int) -> None:
        await ready.wait()
        CoalescingTransport(wire, asyncio.get_running_loop()).write(b"%d" % number)
        made.append(len(wire.sent))

    answers = [asyncio.create_task(answer(number)) for number in range(3)]
    await asyncio.sleep(0)
    ready.set()
    await asyncio.gather(*answers)
    assert made == [0, 0, 0]  # nothing was sent before all of them were ready
    assert wire.sent == [b"0", b"1", b"2"]


async def test_what_is_kept_back_until_the_end_of_a_turn_has_a_limit() -> None:
    wire = Wire()
    transport = CoalescingTransport(wire, asyncio.get_running_loop())
    for _ in range(3):
        transport.write(b"x" * (MAX_BUFFERED // 2))
    assert wire.sent == [b"x" * (MAX_BUFFERED // 2 * 3)]
    await asyncio.sleep(0)
    assert len(wire.sent) == 1


async def test_a_connection_that_is_closed_has_sent_everything() -> None:
    wire = Wire()
    transport = CoalescingTransport(wire, asyncio.get_running_loop())
    transport.write(b"head")
    transport.close()
    await asyncio.sleep(0)
    assert wire.sent == [b"head", b"closed"]


async def test_what_is_written_to_a_connection_that_was_closed_is_dropped() -> None:
    wire = Wire()
    transport = CoalescingTransport(wire, asyncio.get_running_loop())
    transport.write(b"head")
    wire.close()
    transport.write(b"body")
    await asyncio.sleep(0)
    assert wire.sent == [b"closed"]
