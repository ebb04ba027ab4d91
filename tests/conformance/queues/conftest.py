"""The queues that the suite is run against: each test has one for itself, by a name of its own."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime

import pytest

from horae.adapters import make_queue
from horae.ports.queue import Queue
from tests.engines.provisioned import elasticmq_url
from tests.engines.servers import ministack_url, own_name, valkey_url
from tests.memory_queue import MemoryQueue

QUEUES = ("memory", "valkey", "ministack", "elasticmq")  # the one in memory is that of other tests; two are of SQS

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
    if kind == "valkey":
        return f"{valkey_url()}/0?prefix={prefix}"
    return f"sqs://us-east-1/{prefix}?endpoint={ministack_url() if kind == 'ministack' else elasticmq_url()}"


@pytest.fixture
async def queue(connect_queue: Connect) -> Queue:
    """The queue of this test."""
    return await connect_queue()
