"""Makes the tables and checks them: `horae db migrate` and `horae db status`."""

import asyncio
from collections.abc import Mapping
from typing import Any

from horae.aws_api.client import ServiceClient
from horae.aws_api.errors import RequestRefused, ResourceInUse, ResourceMissing
from horae.core.errors import Unavailable
from horae.ports.database import SchemaStatus, Tell
from horae.stores.dynamodb.database import Database
from horae.stores.dynamodb.items import Item
from horae.stores.dynamodb.tables.address import Options
from horae.stores.dynamodb.tables.definitions import TABLES, VERSION, Index, Table

LOOK_EVERY = (0.02, 2.0)  # seconds between looks at a table that is being made: the first, and the longest
PATIENCE = 600.0  # seconds until a table must be ready
TTL_ATTRIBUTE = "ttl"
SCHEMA_KEY: Item = {"pk": {"S": "schema"}, "sk": {"S": "schema"}}


async def status(db: Database) -> SchemaStatus:
    """Return the version that the tables were made by; 0 when they are not there."""
    try:
        found = await db.get(db.names.meta, SCHEMA_KEY)
    except ResourceMissing:
        found = None
    version, oldest = (0, 0) if found is None else (int(found["version"]["N"]), int(found["oldest"]["N"]))
    return SchemaStatus(version=version, expected=VERSION, oldest=oldest)


async def migrate(db: Database, options: Options, tell: Tell) -> list[int]:
    """Make tables and indexes that are missing, set what the options say, and note the version."""
    before = await status(db)
    made = await asyncio.gather(*(_ensure(db.client, _name(db, table), table, options) for table in TABLES))
    for table, is_new in zip(TABLES, made, strict=True):
        if is_new:
            tell(f"made the table {_name(db, table)}")
    await asyncio.gather(*(_set_up(db.client, _name(db, table), table, options) for table in TABLES))
    if before.version >= VERSION:
        return []
    await db.client.call("PutItem", {"TableName": db.names.meta, "Item": version_item()})
    return list(range(before.version + 1, VERSION + 1))


def version_item() -> Item:
    """What says by which version the tables were made."""
    return {**SCHEMA_KEY, "version": {"N": str(VERSION)}, "oldest": {"N": "1"}}


def _name(db: Database, table: Table) -> str:
    name: str = getattr(db.names, table.kind)
    return name


async def _ensure(client: ServiceClient, name: str, table: Table, options: Options) -> bool:
    """Make a table and its indexes unless they are there; returns whether the table is new."""
    described = await _describe(client, name)
    is_new = described is None
    if is_new:
        try:
            await client.call("CreateTable", create_request(name, table, options))
        except ResourceInUse:
            is_new = False  # another process makes it
    described = await _ready(client, name)
    there = {index["IndexName"] for index in described.get("GlobalSecondaryIndexes", ())}
    for index in table.indexes:
        if index.name not in there:
            request = {"Create": _index(index, options)}
            body = {"TableName": name, "AttributeDefinitions": _attributes(table)}
            await client.call("UpdateTable", {**body, "GlobalSecondaryIndexUpdates": [request]})
            await _ready(client, name)
    return is_new


async def _describe(client: ServiceClient, name: str) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = (await client.call("DescribeTable", {"TableName": name}))["Table"]
    except ResourceMissing:
        return None
    return found


async def _ready(client: ServiceClient, name: str) -> dict[str, Any]:
    """Wait until a table and all its indexes can be used."""
    wait, longest = LOOK_EVERY
    async with asyncio.timeout(PATIENCE):
        while True:
            found = await _describe(client, name)
            if found is not None and found["TableStatus"] == "ACTIVE":
                indexes = found.get("GlobalSecondaryIndexes", ())
                if all(index.get("IndexStatus", "ACTIVE") == "ACTIVE" for index in indexes):
                    return found
            await asyncio.sleep(wait)
            wait = min(2 * wait, longest)


def create_request(name: str, table: Table, options: Options) -> dict[str, Any]:
    """The request that makes a table."""
    body: dict[str, Any] = {
        "TableName": name,
        "AttributeDefinitions": _attributes(table),
        "KeySchema": _keys(table.pk, table.sk),
        "DeletionProtectionEnabled": options.protect,
        **_throughput(options),
        "BillingMode": "PAY_PER_REQUEST" if options.provisioned is None else "PROVISIONED",
    }
    if table.indexes:
        body["GlobalSecondaryIndexes"] = [_index(index, options) for index in table.indexes]
    if options.key is not None:
        body["SSESpecification"] = {"Enabled": True, "SSEType": "KMS", "KMSMasterKeyId": options.key}
    return body


def _attributes(table: Table) -> list[Mapping[str, str]]:
    return [{"AttributeName": name, "AttributeType": kind} for name, kind in table.keys.items()]


def _keys(pk: str, sk: str | None) -> list[Mapping[str, str]]:
    keys: list[Mapping[str, str]] = [{"AttributeName": pk, "KeyType": "HASH"}]
    return keys if sk is None else [*keys, {"AttributeName": sk, "KeyType": "RANGE"}]


def _index(index: Index, options: Options) -> dict[str, Any]:
    projection = {"ProjectionType": "KEYS_ONLY"}
    keys = _keys(index.pk, index.sk)
    return {"IndexName": index.name, "KeySchema": keys, "Projection": projection, **_throughput(options)}


def _throughput(options: Options) -> dict[str, Any]:
    sizes: dict[str, Any] = {}
    if options.provisioned is not None:
        read, write = options.provisioned
        sizes["ProvisionedThroughput"] = {"ReadCapacityUnits": read, "WriteCapacityUnits": write}
    if options.warm is not None:
        read, write = options.warm
        sizes["WarmThroughput"] = {"ReadUnitsPerSecond": read, "WriteUnitsPerSecond": write}
    return sizes


async def _set_up(client: ServiceClient, name: str, table: Table, options: Options) -> None:
    """Set what a table can only be given once it is there: expiry, and backups."""
    if table.expires:
        described = await client.call("DescribeTimeToLive", {"TableName": name})
        if described["TimeToLiveDescription"].get("TimeToLiveStatus") in ("DISABLED", None):
            wanted = {"Enabled": True, "AttributeName": TTL_ATTRIBUTE}
            await client.call("UpdateTimeToLive", {"TableName": name, "TimeToLiveSpecification": wanted})
    if options.backups:
        wanted = {"PointInTimeRecoveryEnabled": True}
        body = {"TableName": name, "PointInTimeRecoverySpecification": wanted}
        try:
            await client.call("UpdateContinuousBackups", body)
        except RequestRefused as exc:
            if exc.code != "UnknownOperationException":  # DynamoDB Local has none
                raise


async def table_problems(db: Database) -> list[str]:
    """Return what is wrong with the tables, for `horae db status`; nothing when all is well."""
    problems = []
    for table in TABLES:
        name = _name(db, table)
        found = await _describe(db.client, name)
        if found is None:
            problems.append(f"the table {name} is missing")
            continue
        there = {index["IndexName"] for index in found.get("GlobalSecondaryIndexes", ())}
        problems += [
            f"the index {index.name} of {name} is missing" for index in table.indexes if index.name not in there
        ]
    return problems


def refuse_incomplete(problems: list[str]) -> None:
    """Raise Unavailable when tables are not as this version needs them."""
    if problems:
        raise Unavailable(f"{problems[0]}: run `horae db migrate`")
