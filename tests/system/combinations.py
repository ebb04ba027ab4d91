"""The combinations of stores, queues and blobs that Horae is meant for, as addresses of servers of the tests."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.engines import aws_client
from tests.engines.provisioned import S3_ACCESS, S3_SECRET, dynamodb_local_url, elasticmq_url, redis_url, s3_url
from tests.engines.servers import ministack_url, own_name, valkey_url
from tests.postgres_server import postgres_url, scratch_schema


@dataclass(frozen=True, kw_only=True)
class Servers:
    """Where the servers of one kind of test are."""

    dynamodb: Callable[[], str]
    sqs: Callable[[], str]
    redis: Callable[[], str]
    s3: Callable[[], str]
    s3_key: tuple[str, str]


WHEELS = Servers(dynamodb=ministack_url, sqs=ministack_url, redis=valkey_url, s3=ministack_url, s3_key=("test", "test"))
REAL = Servers(
    dynamodb=dynamodb_local_url, sqs=elasticmq_url, redis=redis_url, s3=s3_url, s3_key=(S3_ACCESS, S3_SECRET)
)


@dataclass(frozen=True, kw_only=True)
class Combination:
    """What a cluster keeps its truth, its tickets, its logs and its archive in."""

    store: str
    queue: str = "store"
    blobs: str = "store"

    def __str__(self) -> str:
        return f"{self.store}-{self.queue}" + ("" if self.blobs == "store" else f"-{self.blobs}")


COMBINATIONS = (
    Combination(store="sqlite"),
    Combination(store="sqlite", queue="redis"),
    Combination(store="postgres"),
    Combination(store="postgres", queue="redis"),
    Combination(store="postgres", blobs="s3"),
    Combination(store="dynamodb"),
    Combination(store="dynamodb", queue="redis"),
    Combination(store="dynamodb", queue="sqs", blobs="s3"),
)


@asynccontextmanager
async def scratch_store(kind: str, folder: Path, servers: Servers = WHEELS) -> AsyncIterator[str]:
    """Yield the address of an empty store, and remove it at the end."""
    if kind == "sqlite":
        yield f"sqlite:///{folder / 'horae.db'}"
    elif kind == "postgres":
        async with scratch_schema(postgres_url()) as address:
            yield address
    else:
        prefix, endpoint = own_name(), servers.dynamodb()
        try:
            yield f"dynamodb://{aws_client.REGION}/{prefix}?endpoint={endpoint}"
        finally:
            aws_client.delete_tables(endpoint, prefix)


@contextmanager
def scratch_settings(combination: Combination, servers: Servers = WHEELS) -> Iterator[dict[str, str]]:
    """Yield the settings of a queue and blobs of one's own, which are cleared away at the end."""
    with ExitStack() as stack:
        settings = {}
        if combination.queue != "store":
            settings["HORAE_QUEUE"] = stack.enter_context(scratch_queue(combination.queue, servers))
        if combination.blobs == "s3":
            settings |= stack.enter_context(scratch_bucket(servers))
        yield settings


@contextmanager
def scratch_queue(kind: str, servers: Servers = WHEELS) -> Iterator[str]:
    """Yield the address of an empty queue, and remove it at the end."""
    prefix = own_name()
    if kind == "redis":
        yield f"{servers.redis()}/0?prefix={prefix}"
        return
    endpoint = servers.sqs()
    try:
        yield f"sqs://{aws_client.REGION}/{prefix}?endpoint={endpoint}"
    finally:
        aws_client.delete_queues(endpoint, prefix)


@contextmanager
def scratch_bucket(servers: Servers = WHEELS) -> Iterator[dict[str, str]]:
    """Yield the settings of blobs and an archive in a bucket of one's own; it goes with its server."""
    endpoint, bucket = servers.s3(), own_name()
    access, secret = servers.s3_key
    aws_client.create_bucket(endpoint, bucket, access=access, secret=secret)
    place = f"?endpoint={endpoint}&region={aws_client.REGION}"
    yield {
        "HORAE_BLOBS": f"s3://{bucket}/blobs{place}",
        "HORAE_ARCHIVE": f"s3://{bucket}/archive{place}",
        "AWS_ACCESS_KEY_ID": access,
        "AWS_SECRET_ACCESS_KEY": secret,
    }
