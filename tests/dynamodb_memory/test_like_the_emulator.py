"""The tables in memory answer as the emulator does: the same random requests to both, answer by answer.

Capacity is not compared here, because the emulator counts it by items and not by bytes; `test_capacity.py` does.
"""

import random
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import pytest

from horae.aws_api.client import ServiceClient
from horae.aws_api.errors import ConditionFailed, RequestRefused, TransactionCancelled
from tests.dynamodb_memory.client import MemoryClient
from tests.dynamodb_memory.server import DynamoServer
from tests.ministack_server import ministack_url

REQUESTS = 250  # of each seed
KEYS = tuple(f"k{number}" for number in range(8))
Body = dict[str, Any]


def table_definition(name: str, sort: str | None) -> Body:
    """A table like those of the store: with or without a sort key, with an index of keys and one of everything."""
    types = {"id": "S", "o": "S", "due": "S", **({"at": sort} if sort else {})}
    keys = [{"AttributeName": "id", "KeyType": "HASH"}]
    if sort:
        keys.append({"AttributeName": "at", "KeyType": "RANGE"})
    by_owner = [{"AttributeName": "o", "KeyType": "HASH"}, {"AttributeName": "due", "KeyType": "RANGE"}]
    return {
        "TableName": name,
        "AttributeDefinitions": [{"AttributeName": a, "AttributeType": t} for a, t in types.items()],
        "KeySchema": keys,
        "GlobalSecondaryIndexes": [
            {"IndexName": "by_owner", "KeySchema": by_owner, "Projection": {"ProjectionType": "KEYS_ONLY"}},
            {"IndexName": "whole", "KeySchema": by_owner, "Projection": {"ProjectionType": "ALL"}},
        ],
        "BillingMode": "PAY_PER_REQUEST",
    }


class Requests:
    """Random requests as the adapter makes them."""

    def __init__(self, seed: int, prefix: str) -> None:
        self.rng = random.Random(seed)
        self.plain, self.sorted = f"{prefix}-plain", f"{prefix}-sorted"
        self.made = 0

    def next(self) -> tuple[str, Body]:
        kinds: Sequence[Callable[[], tuple[str, Body]]] = [
            self.put,
            self.put,
            self.update,
            self.update,
            self.delete,
            self.get,
            self.batch_get,
            self.batch_write,
            self.query,
            self.query,
            self.index_query,
            self.transact,
            self.transact_get,
            self.statements,
            self.statements,
            self.statement,
            self.scan,
        ]
        return self.rng.choice(kinds)()

    # --- items and keys

    def table(self) -> str:
        return self.rng.choice((self.plain, self.sorted))

    def key(self, table: str) -> Body:
        key: Body = {"id": {"S": self.rng.choice(KEYS)}}
        if table == self.sorted:
            key["at"] = {"N": str(self.rng.randrange(12))}
        return key

    def item(self, table: str) -> Body:
        self.made += 1
        rng = self.rng
        extra: Body = {
            "s": {"S": rng.choice(("scheduled", "claimed", "ünïcode"))},
            "f": {"N": str(rng.randrange(5))},
            "o": {"S": rng.choice(("ann", "bob"))},
            "due": {"S": f"{self.made:06d}"},
            "pz": {"BOOL": True},
            "tags": {"SS": sorted(rng.sample(("a", "b", "c"), 2))},
            "m": {"M": {"x": {"N": "1"}, "y": {"L": [{"S": "p"}, {"S": "q"}]}}},
        }
        return {**self.key(table), **{name: extra[name] for name in extra if rng.random() < 0.7}}

    def condition(self) -> Body:
        text, names, values = self.rng.choice(CONDITIONS)
        body: Body = {"ConditionExpression": text}
        if names:
            body["ExpressionAttributeNames"] = dict(names)
        if values:
            body["ExpressionAttributeValues"] = dict(values)
        if self.rng.random() < 0.5:
            body["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
        return body if self.rng.random() < 0.7 else {}

    def changes(self) -> Body:
        text, names, values = self.rng.choice(UPDATES)
        return {
            "UpdateExpression": text,
            **({"ExpressionAttributeNames": dict(names)} if names else {}),
            **({"ExpressionAttributeValues": dict(values)} if values else {}),
        }

    # --- actions

    def put(self) -> tuple[str, Body]:
        table = self.table()
        return "PutItem", {"TableName": table, "Item": self.item(table), **self.condition()}

    def update(self) -> tuple[str, Body]:
        table = self.table()
        returned = self.rng.choice(("NONE", "ALL_NEW", "ALL_OLD"))
        body = {"TableName": table, "Key": self.key(table), "ReturnValues": returned}
        return "UpdateItem", {**body, **merged(self.changes(), self.condition())}

    def delete(self) -> tuple[str, Body]:
        table = self.table()
        body = {"TableName": table, "Key": self.key(table), "ReturnValues": "ALL_OLD"}
        return "DeleteItem", {**body, **self.condition()}

    def get(self) -> tuple[str, Body]:
        table = self.table()
        asked = {"ProjectionExpression": "id, #s, m.x", "ExpressionAttributeNames": {"#s": "s"}}
        return "GetItem", {
            "TableName": table,
            "Key": self.key(table),
            "ConsistentRead": True,
            **(asked if self.rng.random() < 0.5 else {}),
        }

    def batch_get(self) -> tuple[str, Body]:
        keys = distinct([self.key(self.sorted) for _ in range(6)])
        return "BatchGetItem", {"RequestItems": {self.sorted: {"Keys": keys, "ConsistentRead": True}}}

    def batch_write(self) -> tuple[str, Body]:
        puts = [{"PutRequest": {"Item": self.item(self.plain)}} for _ in range(3)]
        deletes = [{"DeleteRequest": {"Key": self.key(self.plain)}} for _ in range(2)]
        seen: dict[str, Body] = {}
        for each in [*puts, *deletes]:
            named = each.get("PutRequest", {}).get("Item") or each["DeleteRequest"]["Key"]
            seen[named["id"]["S"]] = each
        return "BatchWriteItem", {"RequestItems": {self.plain: list(seen.values())}}

    def query(self) -> tuple[str, Body]:
        text, values = self.rng.choice(RANGES)
        body: Body = {
            "TableName": self.sorted,
            "KeyConditionExpression": f"id = :id{text}",
            "ExpressionAttributeValues": {":id": {"S": self.rng.choice(KEYS)}, **values},
            "ScanIndexForward": self.rng.random() < 0.5,
        }
        if text:
            body["ExpressionAttributeNames"] = {"#at": "at"}
        if self.rng.random() < 0.3:
            body["Limit"] = self.rng.randrange(1, 4)
        if self.rng.random() < 0.3:
            start = {"id": body["ExpressionAttributeValues"][":id"], "at": {"N": str(self.rng.randrange(3, 8))}}
            if not text:
                body["ExclusiveStartKey"] = start
        if self.rng.random() < 0.3:
            body["FilterExpression"] = "attribute_exists(f) AND f > :two"
            body["ExpressionAttributeValues"][":two"] = {"N": "2"}
        return "Query", body

    def index_query(self) -> tuple[str, Body]:
        return "Query", {
            "TableName": self.table(),
            "IndexName": self.rng.choice(("by_owner", "whole")),
            "KeyConditionExpression": "o = :o AND due > :due",
            "ExpressionAttributeValues": {
                ":o": {"S": self.rng.choice(("ann", "bob"))},
                ":due": {"S": f"{self.rng.randrange(self.made + 1):06d}"},
            },
            "ScanIndexForward": self.rng.random() < 0.5,
            "Limit": 50,
        }

    def transact(self) -> tuple[str, Body]:
        keys = distinct([self.key(self.sorted) for _ in range(4)])
        acts = []
        for key in keys:
            item = {**self.item(self.sorted), **key}
            kind = self.rng.choice(("Put", "Update", "Delete", "ConditionCheck"))
            body: Body = {"TableName": self.sorted}
            match kind:
                case "Put":
                    acts.append({"Put": {**body, "Item": item, **self.condition()}})
                case "Update":
                    acts.append({"Update": {**body, "Key": key, **merged(SIMPLE_UPDATE, self.condition())}})
                case "Delete":
                    acts.append({"Delete": {**body, "Key": key, **self.condition()}})
                case _:
                    exists = "attribute_exists(id)" if self.rng.random() < 0.5 else "attribute_not_exists(id)"
                    acts.append({"ConditionCheck": {**body, "Key": key, "ConditionExpression": exists}})
        return "TransactWriteItems", {"TransactItems": acts}

    def transact_get(self) -> tuple[str, Body]:
        keys = distinct([self.key(self.sorted) for _ in range(3)])
        return "TransactGetItems", {"TransactItems": [{"Get": {"TableName": self.sorted, "Key": key}} for key in keys]}

    def statements(self) -> tuple[str, Body]:
        names = self.rng.sample(KEYS, 4)
        return "BatchExecuteStatement", {"Statements": [self.one_statement({"S": name}) for name in names]}

    def statement(self) -> tuple[str, Body]:
        return "ExecuteStatement", self.one_statement({"S": self.rng.choice(KEYS)})

    def one_statement(self, key: Body) -> Body:
        text, parameters = self.rng.choice(STATEMENTS)
        return {"Statement": text.replace("TABLE", self.plain), "Parameters": parameters(key, self)}

    def scan(self) -> tuple[str, Body]:
        return "Scan", {"TableName": self.table()}


def merged(first: Body, second: Body) -> Body:
    body = {**first, **second}
    for name in ("ExpressionAttributeNames", "ExpressionAttributeValues"):
        if together := {**first.get(name, {}), **second.get(name, {})}:
            body[name] = together
    return body


def distinct(keys: Sequence[Body]) -> list[Body]:
    return list({repr(key): key for key in keys}.values())


CONDITIONS: Sequence[tuple[str, Mapping[str, str], Mapping[str, Body]]] = [
    ("attribute_not_exists(id)", {}, {}),
    ("attribute_exists(id) AND attribute_not_exists(pz)", {}, {}),
    ("#s = :cs AND f < :cf", {"#s": "s"}, {":cs": {"S": "scheduled"}, ":cf": {"N": "3"}}),
    (
        "f BETWEEN :ca AND :cb OR #s IN (:cs, :ct)",
        {"#s": "s"},
        {":ca": {"N": "1"}, ":cb": {"N": "2"}, ":cs": {"S": "claimed"}, ":ct": {"S": "x"}},
    ),
    ("NOT contains(tags, :ca)", {}, {":ca": {"S": "a"}}),
    ("begins_with(due, :cp) OR size(tags) >= :cn", {}, {":cp": {"S": "0000"}, ":cn": {"N": "2"}}),
    (
        "attribute_type(pz, :ct) AND (f = :cf OR f >= :cg)",
        {},
        {":ct": {"S": "BOOL"}, ":cf": {"N": "0"}, ":cg": {"N": "3"}},
    ),
    ("f <> :cf AND attribute_exists(f)", {}, {":cf": {"N": "1"}}),
]
UPDATES: Sequence[tuple[str, Mapping[str, str], Mapping[str, Body]]] = [
    (
        "SET #s = :us, f = if_not_exists(f, :zero) + :one",
        {"#s": "s"},
        {":us": {"S": "claimed"}, ":zero": {"N": "0"}, ":one": {"N": "1"}},
    ),
    ("ADD n :one, tags :more REMOVE pz", {}, {":one": {"N": "1"}, ":more": {"SS": ["a", "d"]}}),
    ("DELETE tags :less SET due = :due", {}, {":less": {"SS": ["a"]}, ":due": {"S": "000500"}}),
    ("REMOVE o, f", {}, {}),
    (
        "SET o = :o, l = list_append(if_not_exists(l, :none), :new)",
        {},
        {":o": {"S": "bob"}, ":none": {"L": []}, ":new": {"L": [{"N": "1"}]}},
    ),
]
SIMPLE_UPDATE: Body = {
    "UpdateExpression": "SET n = if_not_exists(n, :uz) + :uo REMOVE pz",
    "ExpressionAttributeValues": {":uz": {"N": "0"}, ":uo": {"N": "1"}},
}
RANGES: Sequence[tuple[str, Body]] = [
    ("", {}),
    (" AND #at > :low", {":low": {"N": "3"}}),
    (" AND #at <= :high", {":high": {"N": "7"}}),
    (" AND #at BETWEEN :low AND :high", {":low": {"N": "2"}, ":high": {"N": "10"}}),
    (" AND #at = :low", {":low": {"N": "4"}}),
]
Parameters = Callable[[Body, Requests], list[Body]]
STATEMENTS: Sequence[tuple[str, Parameters]] = [
    (
        'UPDATE "TABLE" SET s = ?, f = f + 1 WHERE id = ? AND f < ? AND s IN [?, ?] RETURNING ALL NEW *',
        lambda key, _: [{"S": "claimed"}, key, {"N": "4"}, {"S": "scheduled"}, {"S": "claimed"}],
    ),
    (
        'UPDATE "TABLE" SET nd = ? REMOVE pz WHERE id = ? AND o = ? AND pz IS NOT MISSING RETURNING MODIFIED NEW *',
        lambda key, _: [{"S": "node"}, key, {"S": "ann"}],
    ),
    ('UPDATE "TABLE" SET fi = ? WHERE id = ? AND nd IS MISSING', lambda key, _: [{"N": "7"}, key]),
    ('DELETE FROM "TABLE" WHERE id = ? AND f = ? RETURNING ALL OLD *', lambda key, _: [key, {"N": "2"}]),
    (
        "INSERT INTO \"TABLE\" VALUE {'id': ?, 'f': ?, 's': 'scheduled', 'due': ?}",
        lambda key, made: [key, {"N": "1"}, {"S": f"{made.made:06d}i"}],
    ),
    ('SELECT id, f FROM "TABLE" WHERE id = ?', lambda key, _: [key]),
]


async def answer_of(client: ServiceClient, action: str, body: Body) -> Any:
    """What a service answers, or the kind of its refusal; without what two services may word differently."""
    try:
        answer = await client.call(action, body)
    except TransactionCancelled as exc:
        return "cancelled", [(reason.code, reason.item) for reason in exc.reasons]
    except ConditionFailed as exc:
        return "condition", exc.item
    except RequestRefused as exc:
        return "refused", exc.code
    return plain(action, answer)


def plain(action: str, answer: Body) -> Any:
    kept = {name: value for name, value in answer.items() if name != "ConsumedCapacity" and value not in ({}, [])}
    match action:
        case "BatchGetItem":
            kept["Responses"] = {
                table: sorted(map(repr, map(tidy, items))) for table, items in kept["Responses"].items()
            }
        case "Scan":
            kept["Items"] = sorted(map(repr, map(tidy, kept.get("Items", ()))))
        case "BatchExecuteStatement":
            kept["Responses"] = [
                (each.get("Item") and tidy(each["Item"]), each.get("Error", {}).get("Code"))
                for each in kept["Responses"]
            ]
        case "Query":
            kept["Items"] = [tidy(item) for item in kept.get("Items", ())]
    return kept


def tidy(item: Body) -> Body:
    """An item with its attributes in the order of their names."""
    return {name: item[name] for name in sorted(item)}


@pytest.fixture
async def emulator() -> AsyncIterator[ServiceClient]:
    client = ServiceClient("dynamodb", region="us-east-1", endpoint=ministack_url())
    await client.open()
    yield client
    await client.close()


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
async def test_the_tables_in_memory_answer_as_the_emulator_does(emulator: ServiceClient, seed: int) -> None:
    requests = Requests(seed, f"like{secrets.token_hex(4)}")
    memory = MemoryClient(DynamoServer())
    for table, sort in ((requests.plain, None), (requests.sorted, "N")):
        for client in (emulator, memory):
            await client.call("CreateTable", table_definition(table, sort))
    kinds: set[str] = set()
    for number in range(REQUESTS):
        action, body = requests.next()
        theirs, ours = await answer_of(emulator, action, body), await answer_of(memory, action, body)
        assert ours == theirs, f"request {number}: {action} {body}"
        kinds.add(action)
    for table in (requests.plain, requests.sorted):
        theirs, ours = [await answer_of(each, "Scan", {"TableName": table}) for each in (emulator, memory)]
        assert ours == theirs
        await emulator.call("DeleteTable", {"TableName": table})
    assert len(kinds) > 8, "too few actions were compared"
