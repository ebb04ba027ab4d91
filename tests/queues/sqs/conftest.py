"""Queues on the SQS of ministack, and on ElasticMQ where it is."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta

import pytest

from horae.aws_api.address import AwsAddress
from horae.core.model import RunId
from horae.core.tickets import Ticket
from horae.ports.queue import Taken
from horae.queues.sqs.queue import SqsQueue
from tests.engines.provisioned import elasticmq_url
from tests.engines.servers import ministack_url, own_name

SERVERS = {"ministack": ministack_url, "elasticmq": elasticmq_url}

Connect = Callable[..., Awaitable[SqsQueue]]


@pytest.fixture(params=["ministack", pytest.param("elasticmq", marks=pytest.mark.acceptance)])
def endpoint(request: pytest.FixtureRequest) -> str:
    return SERVERS[request.param]()


@pytest.fixture
def prefix() -> str:
    return own_name()


@pytest.fixture
async def connect(endpoint: str, prefix: str) -> AsyncIterator[Connect]:
    """Opens one more process's queue, with the address of a proxy if one is given."""
    async with AsyncExitStack() as stack:

        async def opened(url: str = endpoint) -> SqsQueue:
            queue = SqsQueue(address(url, prefix))
            await queue.open()
            stack.push_async_callback(queue.close)
            return queue

        yield opened


@pytest.fixture
async def queue(connect: Connect) -> SqsQueue:
    return await connect()


def address(endpoint: str, prefix: str) -> AwsAddress:
    return AwsAddress(region="us-east-1", prefix=prefix, endpoint=endpoint, options={})


def now() -> datetime:
    return datetime.now(UTC)


def ticket(
    number: int = 1, *, after: float = 0.0, queue: str = "default", priority: int = 0, owner: str = "o", task: str = "t"
) -> Ticket:
    wake_at = now() + timedelta(seconds=after)
    return Ticket(
        run_id=RunId(f"{number:032x}"), task=task, queue=queue, priority=priority, owner=owner, wake_at=wake_at
    )


async def take(
    queue: SqsQueue,
    *,
    queues: tuple[str, ...] = (),
    without: tuple[str, ...] = (),
    tasks: tuple[str, ...] = ("t",),
    limit: int = 100,
    wait: float = 5.0,
    ahead: float = 1.0,
) -> list[Taken]:
    """Take as a worker does, again and again until something comes or the wait is over."""
    deadline = now() + timedelta(seconds=wait)
    while True:
        at = now()
        taken = await queue.take(
            queues=queues,
            without=without,
            tasks=tasks,
            now=at,
            until=at + timedelta(seconds=ahead),
            limit=limit,
            wait=max(deadline - at, timedelta()),
        )
        if taken or now() >= deadline:
            return taken


async def take_all(queue: SqsQueue, count: int, **options: object) -> list[Taken]:
    """Take until so many have come; fails when nothing comes for five seconds."""
    taken: list[Taken] = []
    while len(taken) < count:
        more = await take(queue, **options)  # type: ignore[arg-type]
        assert more, f"only {len(taken)} of {count} came"
        taken += more
    return taken


def numbers(taken: list[Taken]) -> list[int]:
    return [int(each.ticket.run_id, 16) for each in taken]
