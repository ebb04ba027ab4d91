"""What the tables in memory charge: as Amazon bills it."""

from typing import Any

import pytest

from tests.dynamodb_memory.partitions import Partitions
from tests.dynamodb_memory.server import DynamoServer
from tests.dynamodb_memory.test_like_the_emulator import table_definition
from tests.dynamodb_memory.values import ServerError, item_size

Body = dict[str, Any]
KILOBYTE = {"S": "x" * 1024}


def served(partitions: Partitions | None = None) -> DynamoServer:
    server = DynamoServer(clock=lambda: 1000.0, partitions=partitions)
    definition = table_definition("runs", None)
    server.call("CreateTable", {**definition, "GlobalSecondaryIndexes": definition["GlobalSecondaryIndexes"][:1]})
    return server


def units(server: DynamoServer, action: str, body: Body) -> float:
    answer = server.call(action, {**body, "ReturnConsumedCapacity": "TOTAL"})
    reported = answer["ConsumedCapacity"]
    return sum(each["CapacityUnits"] for each in (reported if isinstance(reported, list) else [reported]))


def put(**attributes: Any) -> Body:
    return {"TableName": "runs", "Item": {"id": {"S": "a"}, **attributes}}


OWNED = {"o": {"S": "ann"}, "due": {"S": "1"}}


@pytest.mark.parametrize(
    ("first", "then", "expected"),
    [
        (None, put(), 1),  # one unit for each KB that is begun
        (None, put(p=KILOBYTE), 2),
        (put(p=KILOBYTE), put(), 2),  # the larger of the item before and after
        (None, put(**OWNED), 2),  # and one for the entry of an index
        (put(**OWNED), put(**OWNED, s={"S": "claimed"}), 1),  # that does not change
        (put(**OWNED), put(o={"S": "bob"}, due={"S": "1"}), 3),  # a changed key is a delete and a put
        (put(**OWNED), put(o={"S": "ann"}), 2),  # and a missing one a delete
    ],
)
def test_a_put_costs_its_kilobytes_and_what_changes_in_the_indexes(
    first: Body | None, then: Body, expected: float
) -> None:
    server = served()
    if first is not None:
        server.call("PutItem", first)
    assert units(server, "PutItem", then) == expected


def test_a_condition_that_fails_is_billed() -> None:
    server = served(partitions := Partitions(lambda: 1000.0))
    server.call("PutItem", put(p=KILOBYTE))
    before = partitions.total["runs"]
    with pytest.raises(ServerError, match="ConditionalCheckFailed"):
        server.call("PutItem", {**put(), "ConditionExpression": "attribute_not_exists(id)"})
    assert partitions.total["runs"] - before == 2


def test_a_statement_costs_as_an_update_does_and_a_transaction_twice() -> None:
    server = served()
    server.call("PutItem", put(**OWNED))
    statement = {"Statement": "UPDATE \"runs\" SET s = 'claimed' WHERE id = ?", "Parameters": [{"S": "a"}]}
    assert units(server, "BatchExecuteStatement", {"Statements": [statement]}) == 1
    assert units(server, "TransactWriteItems", {"TransactItems": [{"Put": put(**OWNED)}]}) == 2
    check = {"TableName": "runs", "Key": {"id": {"S": "b"}}, "ConditionExpression": "attribute_not_exists(id)"}
    assert units(server, "TransactWriteItems", {"TransactItems": [{"ConditionCheck": check}]}) == 2


def test_reads_cost_half_a_unit_for_each_4_kb_and_a_whole_one_when_they_are_consistent() -> None:
    server = served()
    server.call("PutItem", put(**OWNED))
    get = {"TableName": "runs", "Key": {"id": {"S": "a"}}}
    assert units(server, "GetItem", get) == 0.5
    assert units(server, "GetItem", {**get, "ConsistentRead": True}) == 1
    assert units(server, "TransactGetItems", {"TransactItems": [{"Get": get}]}) == 2
    query = {
        "TableName": "runs",
        "IndexName": "by_owner",
        "KeyConditionExpression": "o = :o",
        "ExpressionAttributeValues": {":o": {"S": "ann"}},
    }
    assert units(server, "Query", query) == 0.5


def test_an_item_counts_its_names_and_values_in_bytes() -> None:
    item = {"id": {"S": "ü"}, "n": {"N": "12345"}, "b": {"BOOL": True}, "l": {"L": [{"S": "ab"}]}}
    assert item_size(item) == (2 + 2) + (1 + 1 + 3) + (1 + 1) + (1 + 3 + 1 + 2)


def test_a_partition_takes_no_more_than_a_thousand_units_a_second() -> None:
    now = 0.0
    partitions = Partitions(lambda: now, width=lambda table: 1)
    server = served(partitions)
    for number in range(1000):
        server.call("PutItem", put(n={"N": str(number)}))
    with pytest.raises(ServerError, match="ProvisionedThroughputExceeded"):
        server.call("PutItem", put())
    assert partitions.throttled == {"runs": 1}
    now = 0.5  # it takes what half a second allows
    assert server.call("PutItem", put()) == {}
    assert partitions.hottest(700) == {("runs", 0): [0]}


def test_an_index_that_is_too_busy_throttles_its_table() -> None:
    partitions = Partitions(lambda: 0.0, width=lambda table: 1 if "/" in table else 64)
    server = served(partitions)
    left: list[Any] = []
    for batch in range(60):
        puts = [
            {"PutRequest": {"Item": {"id": {"S": f"{batch}-{number}"}, "o": {"S": "ann"}, "due": {"S": "1"}}}}
            for number in range(25)
        ]
        try:
            left += server.call("BatchWriteItem", {"RequestItems": {"runs": puts}})["UnprocessedItems"].get("runs", [])
        except ServerError:
            left += puts
    assert len(left) == 500, "one unit for each entry of the index"
    assert len(server.tables["runs"]) == 1000, "what was not let through was not written"


def test_what_is_past_its_time_to_live_is_swept_for_nothing() -> None:
    server = served(partitions := Partitions(lambda: 1000.0))
    specification = {"Enabled": True, "AttributeName": "ttl"}
    server.call("UpdateTimeToLive", {"TableName": "runs", "TimeToLiveSpecification": specification})
    server.call("PutItem", put(ttl={"N": "999"}))
    before = partitions.total["runs"]
    assert server.sweep() == 1
    assert not server.tables["runs"].rows
    assert partitions.total["runs"] == before
