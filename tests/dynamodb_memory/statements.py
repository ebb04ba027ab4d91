"""PartiQL statements, one by one and in batches."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.dynamodb_memory.capacity import Consumed
from tests.dynamodb_memory.partiql import Statement, compile_statement
from tests.dynamodb_memory.partitions import Partitions
from tests.dynamodb_memory.queries import KeyCondition
from tests.dynamodb_memory.tables import Table
from tests.dynamodb_memory.updates import projected
from tests.dynamodb_memory.values import Item, ServerError, item_size, key_of, refused

Request = Mapping[str, Any]
Answer = dict[str, Any]
_NO_ITEM: Item = {}


class Statements:
    """Executes statements; a condition that fails leaves everything as it was."""

    partitions: Partitions

    def named(self, name: str) -> Table:
        raise NotImplementedError

    def page(
        self, table: Table, name: str | None, condition: KeyCondition, values: Any, request: Request, consumed: Consumed
    ) -> Answer:
        raise NotImplementedError

    def failed_units(self, table: Table, key: tuple[Any, Any]) -> float:
        raise NotImplementedError

    def has_room(self, table: Table, key: tuple[Any, Any], before: Item | None, after: Item | None) -> bool:
        raise NotImplementedError

    def statement_of_batch(self, each: Request, consumed: Consumed) -> Answer:
        """The response to one statement of a batch: an item, nothing, or an error of its own."""
        try:
            statement = compile_statement(each["Statement"])
            item = self.execute(statement, each, consumed)
        except ServerError as exc:
            code = exc.kind.removesuffix("Exception")
            if code == "Validation":
                code = "ValidationError"
            return {"Error": {"Code": code, "Message": exc.message, **exc.fields}}
        return {"TableName": statement.table} if item is None else {"TableName": statement.table, "Item": item}

    def refuse_doubles(self, statements: Sequence[Request]) -> None:
        """Raise if two statements of a batch name the same item."""
        seen = set()
        for each in statements:
            try:
                statement = compile_statement(each["Statement"])
                place = statement.table, self._key(statement, each.get("Parameters", ()))
            except ServerError:
                continue  # it is told of in its own response
            if place in seen and statement.verb != "SELECT":
                raise refused("Provided list of item keys contains duplicates")
            seen.add(place)

    def execute(self, statement: Statement, request: Request, consumed: Consumed) -> Item | None:
        """Do one statement on one item; returns what it asks to see."""
        parameters = request.get("Parameters", ())
        table = self.named(statement.table)
        key = self._key(statement, parameters)
        before = table.get(key)
        if statement.verb == "SELECT":
            return self._select_one(statement, table, key, request, consumed)
        if statement.verb == "INSERT":
            return self._insert(statement, table, key, parameters, consumed)
        if not self.has_room(table, key, None, None):
            raise ServerError("ProvisionedThroughputExceededException", "the partition is too busy")
        assert statement.test is not None
        if before is None:
            consumed.write(table.name, key[0], 1.0)
            if statement.verb == "DELETE":
                return None
            raise ServerError("ConditionalCheckFailedException", "The conditional request failed")
        old = before.item
        if not statement.test(old, parameters):
            consumed.write(table.name, key[0], self.failed_units(table, key))
            shown = {"Item": old} if request.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD" else {}
            raise ServerError("ConditionalCheckFailedException", "The conditional request failed", **shown)
        if statement.verb == "DELETE":
            table.write(key, before, None, 0, consumed.write)
            return old if statement.returning == "ALL OLD *" else None
        assert statement.assignments is not None
        changes = statement.assignments(old, parameters)
        if table.indexes and not self.has_room(table, key, old, _changed(old, changes)):
            raise ServerError("ProvisionedThroughputExceededException", "the partition of an index is too busy")
        item = table.assign(key, before, changes, _NO_ITEM, consumed.write)
        return _returned(statement.returning, old, item, [name for name, _ in changes])

    def _insert(
        self, statement: Statement, table: Table, key: tuple[Any, Any], parameters: Sequence[Any], consumed: Consumed
    ) -> None:
        item = statement.item(parameters)
        if not self.has_room(table, key, None, item):
            raise ServerError("ProvisionedThroughputExceededException", "the partition is too busy")
        if table.get(key) is not None:
            consumed.write(table.name, key[0], self.failed_units(table, key))
            raise ServerError("DuplicateItemException", "Duplicate primary key exists in table")
        table.write(key, None, item, item_size(item), consumed.write)

    def _select_one(
        self, statement: Statement, table: Table, key: tuple[Any, Any], request: Request, consumed: Consumed
    ) -> Item | None:
        if not self.partitions.takes_read(table.name, key[0]):
            raise ServerError("ProvisionedThroughputExceededException", "the partition is too busy")
        row = table.get(key)
        size = row.size if row else 0
        consumed.read(table.name, key[0], size, consistent=bool(request.get("ConsistentRead")))
        assert statement.test is not None
        if row is None or not statement.test(row.item, request.get("Parameters", ())):
            return None
        return row.item if statement.paths is None else projected(row.item, statement.paths)

    def select(self, statement: Statement, request: Request, consumed: Consumed) -> Answer:
        """Read by a statement what has one partition key."""
        table, parameters = self.named(statement.table), request.get("Parameters", ())
        asked = {name: request[name] for name in ("ConsistentRead", "Limit") if name in request}
        condition = KeyCondition(statement.pinned, statement.ranges)
        page = self.page(table, statement.index, condition, parameters, asked, consumed)
        items = page["Items"]
        if statement.test is not None:
            items = [item for item in items if statement.test(item, parameters)]
        if statement.paths is not None:
            items = [projected(item, statement.paths) for item in items]
        more = {"LastEvaluatedKey": page["LastEvaluatedKey"]} if "LastEvaluatedKey" in page else {}
        return {"Items": items, **more}

    def _key(self, statement: Statement, parameters: Sequence[Any]) -> tuple[Any, Any]:
        """The key of the one item that a statement names."""
        table = self.named(statement.table)
        if statement.verb == "INSERT":
            return table.key(statement.item(parameters))
        found = []
        for name in table.keys:
            operand = statement.pinned.get(name)
            value = operand(_NO_ITEM, parameters) if operand is not None else None
            if value is None:
                raise refused("Where clause does not contain a mandatory equality on all key attributes")
            found.append(key_of(value))
        return (found[0], found[1]) if table.sk else (found[0], "")


def _changed(item: Item, changes: Sequence[tuple[str, Any]]) -> Item:
    after = dict(item)
    for name, value in changes:
        if value is None:
            after.pop(name, None)
        else:
            after[name] = value
    return after


def _returned(returning: str, before: Item, after: Item, names: Sequence[str]) -> Item | None:
    match returning:
        case "ALL NEW *":
            return after
        case "ALL OLD *":
            return before
        case "MODIFIED NEW *":
            return {name: after[name] for name in names if name in after}
        case "MODIFIED OLD *":
            return {name: before[name] for name in names if name in before}
    return None
