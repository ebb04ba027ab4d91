"""A DynamoDB store of its own for each test."""

from collections.abc import AsyncIterator

import pytest

from horae.stores.dynamodb.store import DynamoStore
from tests.dynamodb_tables import fresh_tables
from tests.engines.servers import ministack_url


@pytest.fixture
async def address() -> AsyncIterator[str]:
    """The address of new tables."""
    async with fresh_tables(ministack_url()) as found:
        yield found


@pytest.fixture
async def store(address: str) -> AsyncIterator[DynamoStore]:
    """An open store."""
    found = DynamoStore(address)
    await found.open()
    yield found
    await found.close()
