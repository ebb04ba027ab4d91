"""The proxy before DynamoDB and SQS does what the real services do, to the requests that it may hit, and counts it."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import pytest

from tests.engines.aws_answers import Fault
from tests.engines.aws_faults import AwsFaults, AwsLink
from tests.engines.servers import ministack_url, own_name

Document = dict[str, Any]

LAG = 0.2
INDEX = {
    "IndexName": "by_group",
    "KeySchema": [{"AttributeName": "group", "KeyType": "HASH"}],
    "Projection": {"ProjectionType": "KEYS_ONLY"},
}


class Table:
    """A table with an index, asked through the proxy."""

    def __init__(self, link: AwsLink, client: aiohttp.ClientSession) -> None:
        self.link = link
        self.name = own_name("faults")
        self._client = client

    async def ask(self, verb: str, body: Document, *, status: int = 200) -> Document:
        return await ask(self._client, self.link.url, f"DynamoDB_20120810.{verb}", body, status=status)

    async def write(self, *ids: str) -> Document:
        puts = [{"PutRequest": {"Item": {"id": {"S": each}, "group": {"S": "all"}}}} for each in ids]
        return await self.ask("BatchWriteItem", {"RequestItems": {self.name: puts}})

    async def update(self, *ids: str) -> list[Document]:
        statements = [
            {"Statement": f'UPDATE "{self.name}" SET seen=1 WHERE id=?', "Parameters": [{"S": each}]} for each in ids
        ]
        answer = await self.ask("BatchExecuteStatement", {"Statements": statements})
        found: list[Document] = answer["Responses"]
        return found

    async def ids(self) -> set[str]:
        answer = await self.ask("Scan", {"TableName": self.name})
        return {item["id"]["S"] for item in answer["Items"]}

    async def seen(self) -> set[str]:
        answer = await self.ask("Scan", {"TableName": self.name})
        return {item["id"]["S"] for item in answer["Items"] if "seen" in item}

    async def indexed(self) -> set[str]:
        values = {":g": {"S": "all"}}
        names = {"#g": "group"}
        query = {"KeyConditionExpression": "#g = :g", "ExpressionAttributeValues": values}
        query |= {"TableName": self.name, "IndexName": "by_group", "ExpressionAttributeNames": names}
        return {item["id"]["S"] for item in (await self.ask("Query", query))["Items"]}


async def ask(client: aiohttp.ClientSession, url: str, target: str, body: Document, *, status: int = 200) -> Document:
    credential = "Credential=test/20260101/us-east-1/dynamodb/aws4_request"
    headers = {
        "X-Amz-Target": target,
        "Content-Type": "application/x-amz-json-1.0",
        "Authorization": f"AWS4-HMAC-SHA256 {credential}, SignedHeaders=host, Signature=none",
    }
    async with client.post(url, json=body, headers=headers) as response:
        found: Document = await response.json(content_type=None) or {}
        assert response.status == status, found
        return found


@pytest.fixture
def link() -> Iterator[AwsLink]:
    with AwsFaults(ministack_url(), lag=LAG) as proxy:
        yield proxy.link()


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as client:
        yield client


@pytest.fixture
async def table(link: AwsLink, client: aiohttp.ClientSession) -> AsyncIterator[Table]:
    table = Table(link, client)
    attributes = [{"AttributeName": name, "AttributeType": "S"} for name in ("id", "group")]
    key = [{"AttributeName": "id", "KeyType": "HASH"}]
    shape = {"AttributeDefinitions": attributes, "KeySchema": key, "GlobalSecondaryIndexes": [INDEX]}
    await table.ask("CreateTable", {"TableName": table.name, "BillingMode": "PAY_PER_REQUEST", **shape})
    yield table
    link.heal()
    await table.ask("DeleteTable", {"TableName": table.name})


async def test_without_a_fault_everything_passes(table: Table) -> None:
    assert await table.write("a", "b") == {"UnprocessedItems": {}}
    assert [response.get("Error") for response in await table.update("a", "b")] == [None, None]
    assert await table.ids() == await table.seen() == await table.indexed() == {"a", "b"}
    assert not table.link.fired


async def test_a_throttled_request_does_nothing(table: Table) -> None:
    told = table.link.next(Fault.THROTTLED)
    problem = await table.ask("Scan", {"TableName": table.name}, status=400)
    assert problem["__type"].endswith("#ThrottlingException")
    assert told.result(timeout=0) == "Scan"
    assert table.link.fired == {Fault.THROTTLED: 1}


@pytest.mark.parametrize(
    ("fault", "code"),
    [(Fault.THROTTLED_STATEMENT, "ThrottlingError"), (Fault.CONFLICTING_STATEMENT, "TransactionConflict")],
)
async def test_a_statement_that_is_hit_does_nothing_and_the_others_take_effect(
    table: Table, fault: Fault, code: str
) -> None:
    ids = [f"{place:02}" for place in range(20)]
    await table.write(*ids)
    table.link.next(fault)
    answers = await table.update(*ids)
    hit = {each for each, answer in zip(ids, answers, strict=True) if answer.get("Error", {}).get("Code") == code}
    assert hit
    assert await table.seen() == set(ids) - hit


async def test_unprocessed_items_come_back_as_they_were_sent(table: Table) -> None:
    table.link.next(Fault.UNPROCESSED_ITEMS)
    answer = await table.write("a", "b", "c")
    left = answer["UnprocessedItems"][table.name]
    assert {each["PutRequest"]["Item"]["id"]["S"] for each in left} == {"a", "b", "c"} - await table.ids() != set()
    await table.ask("BatchWriteItem", {"RequestItems": answer["UnprocessedItems"]})
    assert await table.ids() == {"a", "b", "c"}


async def test_unprocessed_keys_keep_the_options_of_the_request(table: Table) -> None:
    await table.write("a", "b")
    table.link.next(Fault.UNPROCESSED_KEYS)
    keys = [{"id": {"S": each}} for each in "ab"]
    answer = await table.ask("BatchGetItem", {"RequestItems": {table.name: {"Keys": keys, "ConsistentRead": True}}})
    left = answer["UnprocessedKeys"][table.name]
    assert left["ConsistentRead"] is True
    found = [item["id"]["S"] for item in answer["Responses"].get(table.name, [])]
    assert sorted(found + [key["id"]["S"] for key in left["Keys"]]) == ["a", "b"]


async def test_a_transaction_in_conflict_does_nothing_and_names_the_item(table: Table) -> None:
    table.link.next(Fault.CONFLICT)
    puts = [{"Put": {"TableName": table.name, "Item": {"id": {"S": each}}}} for each in "ab"]
    problem = await table.ask("TransactWriteItems", {"TransactItems": puts}, status=400)
    assert [reason["Code"] for reason in problem["CancellationReasons"]] == ["None", "TransactionConflict"]
    assert await table.ids() == set()


async def test_an_index_that_lags_shows_what_is_new_a_little_later(table: Table) -> None:
    await table.write("a")
    assert await table.indexed() == {"a"}
    await table.write("b")
    table.link.chances = {Fault.STALE_INDEX: 1.0}
    assert await table.indexed() == {"a"}
    assert table.link.fired[Fault.STALE_INDEX] == 1
    await asyncio.sleep(LAG)
    assert await table.indexed() == {"a", "b"}


@pytest.mark.parametrize(("fault", "takes_effect"), [(Fault.CUT_BEFORE, False), (Fault.CUT_AFTER, True)])
async def test_a_connection_is_cut_before_or_after_a_write_takes_effect(
    table: Table, fault: Fault, takes_effect: bool
) -> None:
    table.link.next(fault)
    with pytest.raises(aiohttp.ClientError):
        await table.write("a")
    assert await table.ids() == ({"a"} if takes_effect else set())


@pytest.mark.parametrize(("fault", "takes_effect"), [(Fault.ERROR, False), (Fault.ERROR_AFTER, True)])
async def test_an_internal_error_tells_nothing_of_whether_a_write_took_effect(
    table: Table, fault: Fault, takes_effect: bool
) -> None:
    table.link.next(fault)
    puts = [{"PutRequest": {"Item": {"id": {"S": "a"}}}}]
    await table.ask("BatchWriteItem", {"RequestItems": {table.name: puts}}, status=500)
    assert await table.ids() == ({"a"} if takes_effect else set())


async def test_what_is_hit_by_chance_follows_from_the_seed(client: aiohttp.ClientSession) -> None:
    async def hits() -> list[int]:
        with AwsFaults(ministack_url(), seed=7) as proxy:
            link = proxy.link()
            link.chances = {Fault.THROTTLED: 0.5}
            found = []
            for _ in range(20):
                before = link.fired.total()
                async with client.post(link.url, json={}, headers={"X-Amz-Target": "AmazonSQS.SendMessage"}):
                    found.append(link.fired.total() - before)
            return found

    first, second = await hits(), await hits()
    assert first == second
    assert 0 < sum(first) < 20


async def test_entries_of_a_batch_of_messages_fail_and_messages_come_twice(
    link: AwsLink, client: aiohttp.ClientSession
) -> None:
    queue = (await ask(client, link.url, "AmazonSQS.CreateQueue", {"QueueName": own_name()}))["QueueUrl"]
    link.next(Fault.FAILED_ENTRY)
    entries = [{"Id": each, "MessageBody": each} for each in "abc"]
    answer = await ask(client, link.url, "AmazonSQS.SendMessageBatch", {"QueueUrl": queue, "Entries": entries})
    failed = {entry["Id"] for entry in answer["Failed"]}
    assert failed
    assert failed | {entry["Id"] for entry in answer.get("Successful", [])} == set("abc")
    resend = [entry for entry in entries if entry["Id"] in failed]
    await ask(client, link.url, "AmazonSQS.SendMessageBatch", {"QueueUrl": queue, "Entries": resend})

    take = {"QueueUrl": queue, "MaxNumberOfMessages": 10, "WaitTimeSeconds": 0}
    first = (await ask(client, link.url, "AmazonSQS.ReceiveMessage", take))["Messages"]
    assert {message["Body"] for message in first} == set("abc")
    link.next(Fault.DELIVERED_TWICE)
    [again] = (await ask(client, link.url, "AmazonSQS.ReceiveMessage", take))["Messages"]
    assert again in first
    await ask(client, link.url, "AmazonSQS.DeleteQueue", {"QueueUrl": queue})


async def test_a_fault_of_one_link_spares_the_others(table: Table, client: aiohttp.ClientSession) -> None:
    with AwsFaults(ministack_url()) as proxy:
        hit, spared = proxy.link(), proxy.link()
        hit.chances = {Fault.THROTTLED: 1.0}
        scan = {"TableName": table.name}
        await ask(client, hit.url, "DynamoDB_20120810.Scan", scan, status=400)
        await ask(client, spared.url, "DynamoDB_20120810.Scan", scan)
