"""Batches of requests to DynamoDB: cut to what one call may hold, sent side by side, and what is left of them again."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from enum import Enum
from functools import wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

from horae.aws_api.client import ServiceClient
from horae.aws_api.counters import counted_as
from horae.aws_api.errors import RequestRefused, RequestThrottled, is_throttle
from horae.core.values import Value
from horae.stores.dynamodb.items import Item

MOST_KEYS = 100  # of one BatchGetItem
MOST_WRITES = 25  # of one BatchWriteItem or BatchExecuteStatement
AT_ONCE = 16  # requests of one batch that are under way together
LONGEST = 12  # tries of what is left of a batch, about ten seconds with the waits between them

_NAME = re.compile(r"#\w+")

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")


class Names(Value, frozen=True, kw_only=True):
    """The names of the tables."""

    runs: str
    due: str
    jobs: str
    meta: str
    events: str
    blobs: str

    @classmethod
    def of(cls, prefix: str) -> "Names":
        return cls(**{kind: f"{prefix}-{kind}" for kind in cls.__struct_fields__})


class ConditionalStatement(NamedTuple):
    """A PartiQL statement, which is done if its condition holds."""

    text: str
    parameters: Sequence[Item]


class Did(Enum):
    """What came of a conditional statement."""

    DONE = "done"
    NOT = "not"
    DOUBT = "doubt"


class PutItem(NamedTuple):
    """An item to write, whatever was there."""

    table: str
    item: Item


class DeleteItem(NamedTuple):
    """An item to delete, if it is there."""

    table: str
    key: Item


def insert(table: str, item: Item) -> ConditionalStatement:
    """The statement that writes an item unless there is one with its key."""
    places = ", ".join(f"'{name}': ?" for name in item)
    return ConditionalStatement(f'INSERT INTO "{table}" VALUE {{{places}}}', list(item.values()))


def change(table: str, key: Item, values: Item, conditions: Mapping[str, Any]) -> ConditionalStatement:
    """The statement that sets attributes of an item whose attributes have certain values.

    A condition is a value, a list of values, or None where the attribute must be missing.
    """
    sets = ", ".join(f'"{name}"=?' for name in values)
    wheres, parameters = [f'"{name}"=?' for name in key], [*values.values(), *key.values()]
    for name, wanted in conditions.items():
        if wanted is None:
            wheres.append(f'"{name}" IS MISSING')
        elif isinstance(wanted, list):
            wheres.append(f'"{name}" IN [{", ".join("?" * len(wanted))}]')
            parameters += wanted
        else:
            wheres.append(f'"{name}"=?')
            parameters.append(wanted)
    return ConditionalStatement(f'UPDATE "{table}" SET {sets} WHERE {" AND ".join(wheres)}', parameters)


class Range(Value, frozen=True, kw_only=True):
    """What a query reads: items of one partition key, in the order of their sort keys."""

    table: str
    pk: tuple[str, str]  # the attribute and its value
    sk: str | None = None  # the attribute of the sort key; needed with bounds
    low: str | None = None  # included
    high: str | None = None  # included
    prefix: str | None = None
    index: str | None = None
    forward: bool = True
    consistent: bool = True  # never of an index
    attributes: Sequence[str] = ()  # all when empty


class ItemPage(Value, frozen=True):
    """Some items of a range."""

    items: Sequence[Item]
    after: Item | None  # where the next page begins; None at the end


def counted(verb: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Count the requests of a verb of the port under its name."""

    @wraps(verb)
    async def with_counter(*args: P.args, **kwargs: P.kwargs) -> T:
        with counted_as(verb.__name__):
            return await verb(*args, **kwargs)

    return with_counter


class Database:
    """The tables of one store."""

    def __init__(self, client: ServiceClient, names: Names) -> None:
        self.client = client
        self.names = names

    async def get(self, table: str, key: Item, *, consistent: bool = True) -> Item | None:
        """Return an item, or None."""
        body = {"TableName": table, "Key": key, "ConsistentRead": consistent}
        item: Item | None = (await self.client.call("GetItem", body)).get("Item")
        return item

    async def batch_get(
        self, table: str, keys: Sequence[Item], *, consistent: bool = True, attributes: Sequence[str] = ()
    ) -> list[Item]:
        """Return the items that are there, in any order; no key may come twice."""
        wanted: dict[str, Any] = {"ConsistentRead": consistent}
        if attributes:
            wanted |= _projection(attributes)
        parts = await self._each(cut(keys, MOST_KEYS), lambda part: self._get_part(table, part, wanted))
        return [item for part in parts for item in part]

    async def _get_part(self, table: str, keys: Sequence[Item], wanted: Mapping[str, Any]) -> list[Item]:
        found: list[Item] = []
        left = list(keys)
        for attempt in range(1, LONGEST):
            answer = await self.client.call("BatchGetItem", {"RequestItems": {table: {**wanted, "Keys": left}}})
            found += answer.get("Responses", {}).get(table, ())
            left = answer.get("UnprocessedKeys", {}).get(table, {}).get("Keys", [])
            if not left:
                return found
            await asyncio.sleep(self.client.budget.pause(attempt))
        raise RequestThrottled(f"{len(left)} items of {table} could not be read: there is too much at once")

    async def page(self, which: Range, *, limit: int | None = None, after: Item | None = None) -> ItemPage:
        """Return the next items of a range: as many as one answer holds, and `limit` at most."""
        if which.low is not None and which.high is not None and which.low > which.high:
            return ItemPage((), None)  # DynamoDB refuses such a range
        body = _query(which)
        if limit is not None:
            body["Limit"] = limit
        if after is not None:
            body["ExclusiveStartKey"] = after
        answer = await self.client.call("Query", body)
        return ItemPage(answer.get("Items", ()), answer.get("LastEvaluatedKey"))

    async def pages(self, which: Range, *, limit: int | None = None) -> AsyncIterator[ItemPage]:
        """Return all pages of a range; `limit` is how many items each has at most."""
        after: Item | None = None
        while True:
            page = await self.page(which, limit=limit, after=after)
            yield page
            if (after := page.after) is None:
                return

    async def items(self, which: Range, *, limit: int | None = None) -> list[Item]:
        """Return the first `limit` items of a range, or all."""
        found: list[Item] = []
        after: Item | None = None
        while limit is None or len(found) < limit:
            page = await self.page(which, limit=None if limit is None else limit - len(found), after=after)
            found += page.items
            if (after := page.after) is None:
                break
        return found

    async def write(self, requests: Sequence[PutItem | DeleteItem]) -> None:
        """Write and delete items, in any order; no key may come twice."""
        await self._each(cut(requests, MOST_WRITES), self._write_part)

    async def _write_part(self, requests: Sequence[PutItem | DeleteItem]) -> None:
        left: dict[str, list[Any]] = {}
        for each in requests:
            one = (
                {"PutRequest": {"Item": each.item}}
                if isinstance(each, PutItem)
                else {"DeleteRequest": {"Key": each.key}}
            )
            left.setdefault(each.table, []).append(one)
        for attempt in range(1, LONGEST):
            left = (await self.client.call("BatchWriteItem", {"RequestItems": left})).get("UnprocessedItems") or {}
            if not left:
                return
            await asyncio.sleep(self.client.budget.pause(attempt))
        raise RequestThrottled(f"{sum(map(len, left.values()))} items could not be written: there is too much at once")

    async def statements(self, statements: Sequence[ConditionalStatement]) -> list[bool]:
        """Do each statement whose condition holds, and return which these are; see `attempt`."""
        return [did is Did.DONE for did in await self.attempt(statements)]

    async def attempt(self, statements: Sequence[ConditionalStatement]) -> list[Did]:
        """Do each statement whose condition holds; no two may name the same item.

        Where the condition does not hold after an earlier send that may have been done, it is in DOUBT which of both it
        is: whoever asked finds out by reading the item.
        """
        parts = await self._each(cut(statements, MOST_WRITES), self._statements_part)
        return [done for part in parts for done in part]

    async def _statements_part(self, statements: Sequence[ConditionalStatement]) -> list[Did]:
        did = [Did.NOT] * len(statements)
        left = list(enumerate(statements))
        for attempt in range(1, LONGEST):
            body = {"Statements": [{"Statement": each.text, "Parameters": each.parameters} for _, each in left]}
            answer = await self.client.ask("BatchExecuteStatement", body)
            again = []
            for (place, statement), one in zip(left, answer.body["Responses"], strict=True):
                if (error := one.get("Error")) is None:
                    did[place] = Did.DONE
                elif is_throttle(error["Code"]):
                    again.append((place, statement))
                elif error["Code"] in ("ConditionalCheckFailed", "DuplicateItem"):
                    did[place] = Did.DOUBT if answer.doubtful else Did.NOT
                else:
                    raise RequestRefused(f"{statement.text}: {error['Code']} {error.get('Message', '')}")
            if not (left := again):
                return did
            await asyncio.sleep(self.client.budget.pause(attempt))
        raise RequestThrottled(f"{len(left)} items could not be changed: there is too much at once")

    async def update(self, table: str, key: Item, expression: str, values: Mapping[str, Item], **more: Any) -> Item:
        """Change one item by an expression, and return it as it is then; raises ConditionFailed.

        Names of attributes in the expression begin with `#`; `more` are further fields of the request.
        """
        body = {"TableName": table, "Key": key, "UpdateExpression": expression, "ReturnValues": "ALL_NEW", **more}
        text = f"{expression} {more.get('ConditionExpression', '')}"
        body |= _names_in(text)
        if values:
            body["ExpressionAttributeValues"] = values
        item: Item = (await self.client.call("UpdateItem", body)).get("Attributes", {})
        return item

    async def _each(self, parts: Sequence[S], do: Callable[[S], Awaitable[T]]) -> list[T]:
        """Do something for each part, some at once; the first error ends it when all that began have ended."""
        if len(parts) <= 1:
            return [await do(part) for part in parts]
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(part: S) -> T:
            async with gate:
                return await do(part)

        results = await asyncio.gather(*map(one, parts), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return [result for result in results if not isinstance(result, BaseException)]


def cut(things: Sequence[S], size: int) -> list[Sequence[S]]:
    """Cut a sequence into parts of a size; the last may be shorter."""
    return [things[start : start + size] for start in range(0, len(things), size)]


def _query(which: Range) -> dict[str, Any]:
    names, values = {"#pk": which.pk[0]}, {":pk": {"S": which.pk[1]}}
    condition = "#pk = :pk"
    if which.sk is not None:
        bounds = {":low": which.low, ":high": which.high, ":prefix": which.prefix}
        given = {name: {"S": bound} for name, bound in bounds.items() if bound is not None}
        values |= given
        if given:
            names["#sk"] = which.sk
            condition += f" AND {_BOUNDS[frozenset(given)]}"
    body: dict[str, Any] = {
        "TableName": which.table,
        "KeyConditionExpression": condition,
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": values,
        "ScanIndexForward": which.forward,
    }
    if which.index is not None:
        body["IndexName"] = which.index
    elif which.consistent:
        body["ConsistentRead"] = True
    if which.attributes:
        projection = _projection(which.attributes)
        names |= projection["ExpressionAttributeNames"]
        body["ProjectionExpression"] = projection["ProjectionExpression"]
    return body


_BOUNDS = {
    frozenset({":low"}): "#sk >= :low",
    frozenset({":high"}): "#sk <= :high",
    frozenset({":low", ":high"}): "#sk BETWEEN :low AND :high",
    frozenset({":prefix"}): "begins_with(#sk, :prefix)",
}


def _projection(attributes: Sequence[str]) -> dict[str, Any]:
    names = {f"#{name}": name for name in attributes}
    return {"ProjectionExpression": ", ".join(names), "ExpressionAttributeNames": names}


def _names_in(text: str) -> dict[str, Any]:
    """The names of attributes that expressions mention as `#name`."""
    names = {name: name[1:] for name in _NAME.findall(text)}
    return {"ExpressionAttributeNames": names} if names else {}
