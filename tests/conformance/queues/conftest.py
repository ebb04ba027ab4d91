"""The queues that the suite is run against: each test has one for itself, by a name of its own."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime

import pytest

from horae.adapters import make_queue
from horae.ports.queue import Queue
from tests.engines.provisioned import elasticmq_url, redis_url
from tests.engines.servers import ministack_url, own_name, valkey_url
from tests.memory_queue import MemoryQueue

REDIS = {"valkey": valkey_url, "redis": redis_url}
SQS = {"ministack": ministack_url, "elasticmq": elasticmq_url}
QUEUES = (  # the one in memory is that of other tests; `make acceptance` has the one on a JVM
    "memory",
    *REDIS,
    "ministack",
    pytest.param("elasticmq", marks=pytest.mark.acceptance),
)

Connect = Callable[[], Awaitable[Queue]]


@pytest.fixture(params=QUEUES)
async def connect_queue(request: pytest.FixtureRequest) -> AsyncIterator[Connect]:
    """Opens the queue of this test once more, as another process would."""
    memory = MemoryQueue(lambda: datetime.now(UTC))
    prefix = own_name()
    async with AsyncExitStack() as stack:

        async def opened() -> Queue:
            if request.param == "memory":
                return memory
            queue = make_queue(_address(request.param, prefix))
            assert queue is not None
            await queue.open()
            stack.push_async_callback(queue.close)
            return queue

        yield opened


def _address(kind: str, prefix: str) -> str:
    if kind in REDIS:
        return f"{REDIS[kind]()}/0?prefix={prefix}"
    return f"sqs://us-east-1/{prefix}?endpoint={SQS[kind]()}"


@pytest.fixture
async def queue(connect_queue: Connect) -> Queue:
    """The queue of this test."""
    return await connect_queue()
