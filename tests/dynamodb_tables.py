"""Tables of a DynamoDB store for one test, under a prefix of its own."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import quote

from horae.aws_api.client import ServiceClient
from horae.stores.dynamodb.database import Names
from horae.stores.dynamodb.store import DynamoStore


@asynccontextmanager
async def fresh_tables(endpoint: str) -> AsyncIterator[str]:
    """The address of a store whose tables are new, and deleted at the end."""
    prefix = f"t{secrets.token_hex(6)}"
    address = f"dynamodb://us-east-1/{prefix}?endpoint={quote(endpoint, safe='')}&backups=off"
    await DynamoStore(address).migrate()
    try:
        yield address
    finally:
        await _delete_tables(endpoint, prefix)


async def _delete_tables(endpoint: str, prefix: str) -> None:
    client = ServiceClient("dynamodb", region="us-east-1", endpoint=endpoint)
    await client.open()
    try:
        names = Names.of(prefix)
        for kind in Names.__struct_fields__:
            await client.call("DeleteTable", {"TableName": getattr(names, kind)})
    finally:
        await client.close()
