"""The number of shards follows what all processes write together, although each of them writes little."""

import pytest

from horae.stores.dynamodb import times
from horae.stores.dynamodb.database import Database, Names
from horae.stores.dynamodb.growth import BUSY, MOST_SHARDS, REPORT
from horae.stores.dynamodb.owners import Owners
from horae.stores.dynamodb.tables.definitions import TABLES
from tests.dynamodb_memory.client import MemoryClient
from tests.dynamodb_memory.server import DynamoServer

PROCESSES, STEP = 20, 0.1


def meta_table() -> DynamoServer:
    server = DynamoServer()
    [meta] = [table for table in TABLES if table.kind == "meta"]
    keys = [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}]
    types = [{"AttributeName": name, "AttributeType": kind} for name, kind in meta.keys.items()]
    server.call("CreateTable", {"TableName": "x-meta", "KeySchema": keys, "AttributeDefinitions": types})
    return server


async def shards_after(monkeypatch: pytest.MonkeyPatch, *, rate: int, seconds: int) -> tuple[int, DynamoServer]:
    """How many sub-shards an owner has after all processes together wrote so much for so long."""
    now = 0.0
    monkeypatch.setattr(times, "steady", lambda: now)
    server = meta_table()
    processes = [Owners(Database(MemoryClient(server), Names.of("x"))) for _ in range(PROCESSES)]
    for step in range(int(seconds / STEP)):
        now = step * STEP
        for process in processes:
            await process.sub_shards(["ann"])
            await process.wrote({"ann": round(rate * STEP / PROCESSES)})
    return (await processes[0].all())["ann"], server


async def test_an_owner_of_whom_many_processes_write_little_each_gets_the_shards_that_all_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shards, server = await shards_after(monkeypatch, rate=5000, seconds=30)
    assert shards == 16
    assert 5000 / shards <= BUSY
    reports = server.requests["UpdateItem"]
    assert reports <= 1.1 * 30 * 5000 / REPORT, "reports cost little of what they count"


async def test_an_owner_with_little_load_keeps_one_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    shards, _ = await shards_after(monkeypatch, rate=200, seconds=10)
    assert shards == 1


async def test_shards_never_grow_beyond_their_most(monkeypatch: pytest.MonkeyPatch) -> None:
    shards, _ = await shards_after(monkeypatch, rate=100_000, seconds=15)
    assert shards == MOST_SHARDS
