"""The servers of `make engines`: DynamoDB Local, ElasticMQ, an S3 server and Redis, shared by a session's tests.

Tests that need one which is not here are skipped with that reason.
"""

import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NoReturn

import httpx2
import pytest

from tests.engines.places import dynamodb_local_folder, elasticmq_folder, redis_program, versitygw_program
from tests.engines.separate_server import SeparateServer
from tests.engines.servers import redis_answers, redis_command
from tests.engines.shared_server import Recipe, url_of

# Little memory, and as many threads as two cores are good for.
JAVA = ("java", "-XX:+UseSerialGC", "-Xms64m", "-Xmx384m", "-Xshare:auto")
ELASTICMQ_SETTINGS = """
include classpath("application.conf")
node-address {{ protocol = http, host = "127.0.0.1", port = {port}, context-path = "" }}
rest-sqs {{ enabled = true, bind-hostname = "127.0.0.1", bind-port = {port}, sqs-limits = strict }}
rest-stats {{ enabled = false }}
"""
S3_ACCESS, S3_SECRET = "test", "test-secret"


@cache
def dynamodb_local_url() -> str:
    """The address of this session's DynamoDB Local."""
    _need(dynamodb_local_folder(), "DynamoDB Local")
    return url_of(DYNAMODB_LOCAL)


@cache
def elasticmq_url() -> str:
    """The address of this session's ElasticMQ."""
    _need(elasticmq_folder(), "ElasticMQ")
    return url_of(ELASTICMQ)


@cache
def s3_url() -> str:
    """The address of this session's S3 server; `S3_ACCESS` and `S3_SECRET` are its key."""
    _need(versitygw_program(), "the S3 server versitygw")
    return url_of(VERSITYGW)


@cache
def redis_url() -> str:
    """The address of this session's Redis."""
    _redis_program()
    return url_of(REDIS)


@contextmanager
def fresh_elasticmq() -> Iterator[SeparateServer]:
    """An ElasticMQ for one test, which may stop and start it again: it comes back empty."""
    _need(elasticmq_folder(), "ElasticMQ")
    with SeparateServer(ELASTICMQ) as server:
        yield server


@contextmanager
def fresh_redis() -> Iterator[SeparateServer]:
    """A Redis for one test, which may stop and start it again: it comes back empty."""
    _redis_program()
    with SeparateServer(REDIS) as server:
        yield server


@contextmanager
def fresh_dynamodb_local() -> Iterator[SeparateServer]:
    """A DynamoDB Local for one test, which may freeze it."""
    _need(dynamodb_local_folder(), "DynamoDB Local")
    with SeparateServer(DYNAMODB_LOCAL) as server:
        yield server


def _need(place: Path, what: str) -> None:
    if not place.exists():
        _skip(what)


def _skip(what: str) -> NoReturn:
    pytest.skip(f"{what} is not here: `make engines` puts it there")


def _redis_program() -> Path:
    return redis_program() or _skip("Redis")


def _dynamodb_local(folder: Path, port: int) -> Sequence[str]:
    classes = dynamodb_local_folder()
    options = ("-port", str(port), "-inMemory", "-sharedDb", "-disableTelemetry")
    return (*JAVA, "-cp", f"{classes}:{classes}/lib/*", "LoopbackDynamoDB", *options)


def _dynamodb_local_answers(port: int) -> bool:
    try:  # anything but a refused connection: without a signature it answers 400
        return (
            httpx2.get(f"http://127.0.0.1:{port}/", trust_env=False, timeout=2).status_code == httpx2.codes.BAD_REQUEST
        )
    except httpx2.TransportError:
        return False


def _elasticmq(folder: Path, port: int) -> Sequence[str]:
    (folder / "elasticmq.conf").write_text(ELASTICMQ_SETTINGS.format(port=port))
    settings = f"-Dconfig.file={folder / 'elasticmq.conf'}"
    return (*JAVA, settings, "-cp", f"{elasticmq_folder()}/lib/*", "org.elasticmq.server.Main")


def _versitygw(folder: Path, port: int) -> Sequence[str]:
    buckets = folder / "buckets"
    buckets.mkdir(exist_ok=True)
    key = ("--access", S3_ACCESS, "--secret", S3_SECRET)
    return (str(versitygw_program()), *key, "--port", f"127.0.0.1:{port}", "--quiet", "posix", str(buckets))


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=2).close()
    except OSError:
        return False
    return True


def _own_temporary_folder(folder: Path, port: int) -> Mapping[str, str]:
    """What a JVM unpacks for itself goes with its folder."""
    return {"JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={folder}", "TMPDIR": str(folder)}


DYNAMODB_LOCAL = Recipe(
    name="dynamodb-local",
    command=_dynamodb_local,
    answers=_dynamodb_local_answers,
    environment=_own_temporary_folder,
)
ELASTICMQ = Recipe(name="elasticmq", command=_elasticmq, answers=_listens, environment=_own_temporary_folder)
VERSITYGW = Recipe(name="versitygw", command=_versitygw, answers=_listens)
REDIS = Recipe(
    name="redis",
    scheme="redis",
    command=lambda folder, port: redis_command(_redis_program(), folder, port),
    answers=redis_answers,
)
