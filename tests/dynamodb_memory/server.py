"""The actions of the service, one method each, on tables in memory."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from tests.dynamodb_memory.capacity import Consumed, wants_capacity
from tests.dynamodb_memory.partiql import compile_statement
from tests.dynamodb_memory.partitions import Partitions
from tests.dynamodb_memory.queries import Queries
from tests.dynamodb_memory.schema import Schema
from tests.dynamodb_memory.statements import Statements
from tests.dynamodb_memory.tables import Table
from tests.dynamodb_memory.transactions import Transactions
from tests.dynamodb_memory.updates import compile_condition, compile_projection, compile_update, names_of, projected
from tests.dynamodb_memory.values import Item, ServerError, Value, item_size, refused

Request = Mapping[str, Any]
Answer = dict[str, Any]

MOST_WRITES, MOST_GETS, MOST_STATEMENTS = 25, 100, 25
THROTTLED = "ProvisionedThroughputExceededException"


def too_much() -> ServerError:
    return ServerError(THROTTLED, "The level of configured provisioned throughput for the table was exceeded")


def condition_failed(request: Request, item: Item | None) -> ServerError:
    shown = {"Item": item} if item and request.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD" else {}
    return ServerError("ConditionalCheckFailedException", "The conditional request failed", **shown)


class DynamoServer(Schema, Queries, Statements, Transactions):
    """All tables of one account and region."""

    def __init__(self, *, clock: Callable[[], float] = time.time, partitions: Partitions | None = None) -> None:
        self.tables: dict[str, Table] = {}
        self.clock = clock
        self.partitions = partitions or Partitions(clock, limited=False)
        self.requests: dict[str, int] = {}
        self.tokens: dict[str, tuple[Request, Answer]] = {}

    def call(self, action: str, request: Request) -> Answer:
        """Do what a request asks; raises `ServerError`."""
        self.requests[action] = self.requests.get(action, 0) + 1
        method: Callable[[Request, Consumed], Answer] | None = getattr(self, "do_" + action, None)
        if method is None:
            raise ServerError("UnknownOperationException", action)
        consumed = Consumed(self.partitions)
        answer = method(request, consumed)
        if wants_capacity(request) and (report := consumed.report()):
            single = action in ("PutItem", "GetItem", "UpdateItem", "DeleteItem", "Query", "Scan", "ExecuteStatement")
            answer["ConsumedCapacity"] = report[0] if single else report
        return answer

    def sweep(self) -> int:
        """Delete what is past its time to live, which costs nothing; returns how many items."""
        count = 0
        for table in self.tables.values():
            for key in table.expired(self.clock()):
                table.write(key, table.get(key), None, 0, _free)
                count += 1
        return count

    # --- single items

    def do_PutItem(self, request: Request, consumed: Consumed) -> Answer:  # noqa: N802 - the name of the action
        table, item = self.table(request), request["Item"]
        size = item_size(item)
        key = table.key(item)
        self.writable(table, key, item)
        before = table.get(key)
        self.check(table, key, request, before.item if before else None, consumed)
        table.write(key, before, item, size, consumed.write)
        return {"Attributes": before.item} if before and request.get("ReturnValues") == "ALL_OLD" else {}

    def do_DeleteItem(self, request: Request, consumed: Consumed) -> Answer:  # noqa: N802
        table = self.table(request)
        key = table.key(request["Key"], exactly=True)
        before = table.get(key)
        self.writable(table, key, before.item if before else None)
        self.check(table, key, request, before.item if before else None, consumed)
        table.write(key, before, None, 0, consumed.write)
        return {"Attributes": before.item} if before and request.get("ReturnValues") == "ALL_OLD" else {}

    def do_UpdateItem(self, request: Request, consumed: Consumed) -> Answer:  # noqa: N802
        table, given = self.table(request), request["Key"]
        key = table.key(given, exactly=True)
        before = table.get(key)
        old = before.item if before else None
        self.writable(table, key, old)
        self.check(table, key, request, old, consumed)
        changes: list[tuple[str, Value | None]] = []
        if text := request.get("UpdateExpression"):
            assign = compile_update(text, names_of(request))
            changes = assign(old or dict(given), request.get("ExpressionAttributeValues"))
        item = table.assign(key, before, changes, given, consumed.write)
        match request.get("ReturnValues", "NONE"):
            case "ALL_NEW":
                return {"Attributes": item}
            case "ALL_OLD":
                return {"Attributes": old} if old else {}
            case "UPDATED_NEW":
                return {"Attributes": {name: item[name] for name, _ in changes if name in item}}
            case "UPDATED_OLD":
                return {"Attributes": {name: old[name] for name, _ in changes if old and name in old}}
        return {}

    def do_GetItem(self, request: Request, consumed: Consumed) -> Answer:  # noqa: N802
        item = self.read(self.table(request), request["Key"], request, consumed)
        return {} if item is None else {"Item": item}

    # --- batches

    def do_BatchWriteItem(self, request: Request, consumed: Consumed) -> Answer:  # noqa: N802
        prepared = [
            (table, *self._write_of(table, each), each)
            for name, each_of in request["RequestItems"].items()
            for table in (self.named(name),)
            for each in each_of
        ]
        if not 0 < len(prepared) <= MOST_WRITES:
            raise refused(f"Member must have length less than or equal to {MOST_WRITES}")
        if len({(table.name, key) for table, key, _, _, _ in prepared}) < len(prepared):
            raise refused("Provided list of item keys contains duplicates")
        left: dict[str, list[Any]] = {}
        count = 0
        for table, key, item, size, each in prepared:
            before = table.get(key)
            if not self.has_room(table, key, before.item if before else None, item):
                left.setdefault(table.name, []).append(each)
                count += 1
                continue
            table.write(key, before, item, size, consumed.write)
        if count == len(prepared):
            raise too_much()
        return {"UnprocessedItems": left}

    def _write_of(self, table: Table, each: Request) -> tuple[tuple[Any, Any], Item | None, int]:
        if "PutRequest" in each:
            item = each["PutRequest"]["Item"]
            return table.key(item), item, item_size(item)
        return table.key(each["DeleteRequest"]["Key"], exactly=True), None, 0

    def do_BatchGetItem(self, request: Request, consumed: Consumed) -> Answer:  # noqa: N802
        found: dict[str, list[Item]] = {}
        left: dict[str, Any] = {}
        wanted = {name: (self.named(name), each) for name, each in request["RequestItems"].items()}
        if sum(len(each["Keys"]) for _, each in wanted.values()) > MOST_GETS:
            raise refused(f"Member must have length less than or equal to {MOST_GETS}")
        for name, (table, each) in wanted.items():
            keys = [table.key(key, exactly=True) for key in each["Keys"]]
            if len(set(keys)) < len(keys):
                raise refused("Provided list of item keys contains duplicates")
            items = found.setdefault(name, [])
            late = []
            for given, key in zip(each["Keys"], keys, strict=True):
                if not self.partitions.takes_read(table.name, key[0]):
                    late.append(given)
                elif (item := self.read(table, given, each, consumed)) is not None:
                    items.append(item)
            if late:
                left[name] = {**each, "Keys": late}
        if left and not any(found.values()):
            raise too_much()
        return {"Responses": found, "UnprocessedKeys": left}

    def do_BatchExecuteStatement(self, request: Request, consumed: Consumed) -> Answer:  # noqa: N802
        statements = request["Statements"]
        if not 0 < len(statements) <= MOST_STATEMENTS:
            raise refused(f"Member must have length less than or equal to {MOST_STATEMENTS}")
        self.refuse_doubles(statements)
        return {"Responses": [self.statement_of_batch(each, consumed) for each in statements]}

    def do_ExecuteStatement(self, request: Request, consumed: Consumed) -> Answer:  # noqa: N802
        statement = compile_statement(request["Statement"])
        if statement.verb == "SELECT":
            return self.select(statement, request, consumed)
        item = self.execute(statement, request, consumed)
        return {"Items": [] if item is None else [item]}

    # --- parts of all

    def named(self, name: str) -> Table:
        table = self.tables.get(name)
        if table is None:
            raise ServerError("ResourceNotFoundException", "Requested resource not found")
        return table

    def table(self, request: Request) -> Table:
        return self.named(request["TableName"])

    def read(
        self, table: Table, given: Mapping[str, Value], request: Request, consumed: Consumed, *, factor: int = 1
    ) -> Item | None:
        """Read one item by its key."""
        key = table.key(given, exactly=True)
        row = table.get(key)
        consistent = factor > 1 or bool(request.get("ConsistentRead"))
        consumed.read(table.name, key[0], row.size if row else 0, consistent=consistent, factor=factor)
        if row is None:
            return None
        text = request.get("ProjectionExpression")
        return row.item if text is None else projected(row.item, compile_projection(text, names_of(request)))

    def check(
        self, table: Table, key: tuple[Any, Any], request: Request, item: Item | None, consumed: Consumed
    ) -> None:
        """Raise if the condition of a write does not hold; that costs what the write would, for what is there."""
        if not self.holds(request, item):
            consumed.write(table.name, key[0], self.failed_units(table, key))
            raise condition_failed(request, item)

    def failed_units(self, table: Table, key: tuple[Any, Any]) -> float:
        row = table.get(key)
        return 1.0 if row is None else max(1, -(-row.size // 1024))

    def holds(self, request: Request, item: Item | None) -> bool:
        text = request.get("ConditionExpression")
        if text is None:
            return True
        test = compile_condition(text, names_of(request))
        return test(item or {}, request.get("ExpressionAttributeValues"))

    def has_room(self, table: Table, key: tuple[Any, Any], before: Item | None, after: Item | None) -> bool:
        """Whether every partition takes the write; an index that does not throttles its table."""
        takes = self.partitions.takes_write
        if not takes(table.name, key[0]):
            return False
        return all(
            takes(place, pk)
            for index in table.indexes.values()
            for place, pk in ({*index.partitions(before, after)} if _moves(index, before, after) else ())
        )

    def writable(self, table: Table, key: tuple[Any, Any], item: Item | None) -> None:
        if not self.partitions.takes_write(table.name, key[0]):
            raise too_much()


def _moves(index: Any, before: Item | None, after: Item | None) -> bool:
    """Whether an index has to be written."""
    if before is None or after is None:
        return True
    return bool(index.seen(before) != index.seen(after))


def _free(place: str, key: Any, units: float) -> None:
    """Charge nothing."""
