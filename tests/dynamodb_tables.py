"""Tables of a DynamoDB store for one test, under a prefix of its own."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import quote

from horae.aws_api.client import ServiceClient
from horae.stores.dynamodb.store import DynamoStore
from horae.stores.dynamodb.tables.definitions import TABLES
from horae.stores.dynamodb.tables.schema import SCHEMA_KEY, TTL_ATTRIBUTE

MOST_ITEMS = 200  # that are deleted one by one; of more, the tables are made anew

_idle: dict[str, list[str]] = {}  # prefixes of empty tables, by the server that has them


@asynccontextmanager
async def fresh_tables(endpoint: str) -> AsyncIterator[str]:
    """The address of a store whose tables are empty; they are emptied at the end, for the next test of this process.

    Nothing expires in them: tests have times of the past, and a server deletes by its own clock, once a minute.
    """
    client = ServiceClient("dynamodb", region="us-east-1", endpoint=endpoint)
    await client.open()
    idle = _idle.setdefault(endpoint, [])
    try:
        prefix = idle.pop() if idle else await _made(client, endpoint)
        try:
            yield _address(endpoint, prefix)
        finally:
            if await _emptied(client, prefix):
                idle.append(prefix)
    finally:
        await client.close()


def _address(endpoint: str, prefix: str) -> str:
    return f"dynamodb://us-east-1/{prefix}?endpoint={quote(endpoint, safe='')}&backups=off"


async def _made(client: ServiceClient, endpoint: str) -> str:
    prefix = f"t{secrets.token_hex(6)}"
    await DynamoStore(_address(endpoint, prefix)).migrate()
    off = {"AttributeName": TTL_ATTRIBUTE, "Enabled": False}
    for table in TABLES:
        await client.call("UpdateTimeToLive", {"TableName": f"{prefix}-{table.kind}", "TimeToLiveSpecification": off})
    return prefix


async def _emptied(client: ServiceClient, prefix: str) -> bool:
    """Delete what a test has left but the version of the tables; or, if that is much, the tables, and return False."""
    deletes = []
    for table in TABLES:
        answer = await client.call("Scan", {"TableName": f"{prefix}-{table.kind}"})
        names = [name for name in (table.pk, table.sk) if name is not None]
        keys = [{name: item[name] for name in names} for item in answer["Items"]]
        deletes += [(f"{prefix}-{table.kind}", key) for key in keys if key != SCHEMA_KEY]
        if "LastEvaluatedKey" in answer or len(deletes) > MOST_ITEMS:
            for each in TABLES:
                await client.call("DeleteTable", {"TableName": f"{prefix}-{each.kind}"})
            return False
    for start in range(0, len(deletes), 25):
        requests: dict[str, list[object]] = {}
        for name, key in deletes[start : start + 25]:
            requests.setdefault(name, []).append({"DeleteRequest": {"Key": key}})
        await client.call("BatchWriteItem", {"RequestItems": requests})
    return True
