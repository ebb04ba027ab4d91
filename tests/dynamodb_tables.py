"""Tables of a DynamoDB store for one test, under a prefix of its own."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import quote

from horae.aws_api.client import ServiceClient
from horae.stores.dynamodb.database import Names
from horae.stores.dynamodb.store import DynamoStore
from horae.stores.dynamodb.tables.schema import TTL_ATTRIBUTE


@asynccontextmanager
async def fresh_tables(endpoint: str) -> AsyncIterator[str]:
    """The address of a store whose tables are new, and deleted at the end.

    Nothing expires in them: tests have times of the past, and a server deletes by its own clock, once a minute.
    """
    prefix = f"t{secrets.token_hex(6)}"
    address = f"dynamodb://us-east-1/{prefix}?endpoint={quote(endpoint, safe='')}&backups=off"
    await DynamoStore(address).migrate()
    client = ServiceClient("dynamodb", region="us-east-1", endpoint=endpoint)
    await client.open()
    names = [getattr(Names.of(prefix), kind) for kind in Names.__struct_fields__]
    off = {"AttributeName": TTL_ATTRIBUTE, "Enabled": False}
    try:
        for name in names:
            await client.call("UpdateTimeToLive", {"TableName": name, "TimeToLiveSpecification": off})
        yield address
    finally:
        for name in names:
            await client.call("DeleteTable", {"TableName": name})
        await client.close()
