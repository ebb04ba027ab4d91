"""Transactions: all or nothing, at twice the price."""

from collections.abc import Mapping
from typing import Any

from tests.dynamodb_memory.capacity import Consumed
from tests.dynamodb_memory.partiql import compile_statement
from tests.dynamodb_memory.tables import Row, Table
from tests.dynamodb_memory.updates import compile_update, names_of
from tests.dynamodb_memory.values import Item, ServerError, Value, item_size, refused

Request = Mapping[str, Any]
Answer = dict[str, Any]
MOST = 100


class Transactions:
    """TransactWriteItems, TransactGetItems and ExecuteTransaction."""

    tokens: dict[str, tuple[Request, Answer]]

    def table(self, request: Request) -> Table:
        raise NotImplementedError

    def named(self, name: str) -> Table:
        raise NotImplementedError

    def holds(self, request: Request, item: Item | None) -> bool:
        raise NotImplementedError

    def has_room(self, table: Table, key: tuple[Any, Any], before: Item | None, after: Item | None) -> bool:
        raise NotImplementedError

    def failed_units(self, table: Table, key: tuple[Any, Any]) -> float:
        raise NotImplementedError

    def read(
        self, table: Table, given: Mapping[str, Value], request: Request, consumed: Consumed, *, factor: int = 1
    ) -> Item | None:
        raise NotImplementedError

    def do_TransactWriteItems(self, request: Request, consumed: Consumed) -> Answer:  # noqa: N802 - the action's name
        token = request.get("ClientRequestToken")
        if token is not None and token in self.tokens:
            earlier, answer = self.tokens[token]
            if earlier["TransactItems"] != request["TransactItems"]:
                raise ServerError("IdempotentParameterMismatchException", "another request has this token")
            return dict(answer)
        acts = [self._prepared(each) for each in request["TransactItems"]]
        if not 0 < len(acts) <= MOST:
            raise refused(f"Member must have length less than or equal to {MOST}")
        if len({(act.table.name, act.key) for act in acts}) < len(acts):
            raise refused("Transaction request cannot include multiple operations on one item")
        reasons = [self._reason(act) for act in acts]
        if any(reason["Code"] != "None" for reason in reasons):
            for act in acts:
                consumed.write(act.table.name, act.key[0], 2 * self.failed_units(act.table, act.key))
            raise _cancelled(reasons)
        changes = [act.changes() for act in acts]  # all of them first: one that is refused leaves all as it was
        for act, change in zip(acts, changes, strict=True):
            act.write(change, consumed)
        if token is not None:
            self.tokens[token] = (request, {})
        return {}

    def _prepared(self, each: Request) -> "_Act":
        ((verb, request),) = each.items()
        table = self.table(request)
        key = table.key(request["Item"]) if verb == "Put" else table.key(request["Key"], exactly=True)
        return _Act(verb, request, table, key, table.get(key))

    def _reason(self, act: "_Act") -> Answer:
        old = act.before.item if act.before else None
        if not self.holds(act.request, old):
            shown = act.request.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD" and old
            code = {"Code": "ConditionalCheckFailed", "Message": "The conditional request failed"}
            return {**code, **({"Item": old} if shown else {})}
        after = act.request["Item"] if act.verb == "Put" else old
        if not self.has_room(act.table, act.key, old, after):
            return {"Code": "ThrottlingError", "Message": "the partition is too busy"}
        return {"Code": "None"}

    def do_TransactGetItems(self, request: Request, consumed: Consumed) -> Answer:  # noqa: N802
        gets = [each["Get"] for each in request["TransactItems"]]
        if not 0 < len(gets) <= MOST:
            raise refused(f"Member must have length less than or equal to {MOST}")
        found = [self.read(self.table(get), get["Key"], get, consumed, factor=2) for get in gets]
        return {"Responses": [{} if item is None else {"Item": item} for item in found]}

    def do_ExecuteTransaction(self, request: Request, consumed: Consumed) -> Answer:  # noqa: N802
        statements = [compile_statement(each["Statement"]) for each in request["TransactStatements"]]
        if any(statement.verb != "SELECT" for statement in statements):
            raise refused("only reads are known here in a transaction of statements")
        responses = []
        for statement, each in zip(statements, request["TransactStatements"], strict=True):
            table, parameters = self.named(statement.table), each.get("Parameters", ())
            key = {name: statement.pinned[name]({}, parameters) for name in table.keys}
            item = self.read(table, key, {}, consumed, factor=2)  # type: ignore[arg-type]
            responses.append({} if item is None else {"Item": item})
        return {"Responses": responses}


class _Act:
    """One write of a transaction."""

    def __init__(self, verb: str, request: Request, table: Table, key: tuple[Any, Any], before: Row | None) -> None:
        self.verb = verb
        self.request = request
        self.table = table
        self.key = key
        self.before = before

    def changes(self) -> list[tuple[str, Value | None]]:
        """What an Update assigns."""
        text = self.request.get("UpdateExpression")
        if self.verb != "Update" or text is None:
            return []
        old = self.before.item if self.before else dict(self.request["Key"])
        return compile_update(text, names_of(self.request))(old, self.request.get("ExpressionAttributeValues"))

    def write(self, changes: list[tuple[str, Value | None]], consumed: Consumed) -> None:
        table, key, before = self.table, self.key, self.before
        match self.verb:
            case "Put":
                item = self.request["Item"]
                table.write(key, before, item, item_size(item), consumed.write, 2)
            case "Delete":
                table.write(key, before, None, 0, consumed.write, 2)
            case "Update":
                table.assign(key, before, changes, self.request["Key"], consumed.write, 2)
            case _:  # a check is charged as a write
                consumed.write(table.name, key[0], 2.0 * max(1, -(-(before.size if before else 0) // 1024)))


def _cancelled(reasons: list[Answer]) -> ServerError:
    codes = ", ".join(reason["Code"] for reason in reasons)
    return ServerError(
        "TransactionCanceledException",
        f"Transaction cancelled, please refer cancellation reasons for specific reasons [{codes}]",
        CancellationReasons=reasons,
    )
