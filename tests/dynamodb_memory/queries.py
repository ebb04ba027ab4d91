"""Query and Scan: pages of items in the order of their sort keys."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from tests.dynamodb_memory.capacity import Consumed
from tests.dynamodb_memory.grammar import Operand, Parser, key_operand
from tests.dynamodb_memory.partitions import Partitions
from tests.dynamodb_memory.tables import Collection, Row, Table, sort_bounds
from tests.dynamodb_memory.updates import compile_condition, compile_projection, names_of, projected
from tests.dynamodb_memory.values import Item, ServerError, key_of, refused

Request = Mapping[str, Any]
Answer = dict[str, Any]
Bound = tuple[Any, bool] | None

PAGE = 1024 * 1024  # bytes that a page looks at
_AFTER_ALL = chr(0x10FFFF)


class KeyCondition:
    """A compiled key condition: the partition, and a range of the sort key."""

    def __init__(self, pinned: Mapping[str, Operand], ranges: Iterable[tuple[str, str, Sequence[Operand]]]) -> None:
        self.pinned = dict(pinned)
        self.ranges = list(ranges)

    def partition(self, name: str, values: Any) -> Any:
        if name not in self.pinned:
            raise refused(f"Query condition missed key schema element: {name}")
        return key_operand(self.pinned[name]({}, values))

    def bounds(self, name: str, values: Any) -> tuple[Bound, Bound]:
        """The lowest and the highest sort key, each with whether it is included."""
        low: Bound = None
        high: Bound = None
        for attribute, sign, operands in self.ranges:
            if attribute != name:
                continue
            keys = [key_operand(operand({}, values)) for operand in operands]
            match sign:
                case "=":
                    low = high = (keys[0], True)
                case "between":
                    low, high = (keys[0], True), (keys[1], True)
                case "begins_with":
                    low, high = (keys[0], True), (keys[0] + _AFTER_ALL, True)
                case "<" | "<=":
                    high = (keys[0], sign == "<=")
                case ">" | ">=":
                    low = (keys[0], sign == ">=")
        return low, high


@lru_cache(4096)
def compile_key_condition(text: str, names: tuple[tuple[str, str], ...]) -> KeyCondition:
    """Compile a key condition."""
    parser = Parser(text, dict(names))
    parser.condition()
    parser.end()
    return KeyCondition(parser.pinned, parser.ranges)


class Queries:
    """Pages of one partition, or of a whole table."""

    partitions: Partitions

    def table(self, request: Request) -> Table:
        raise NotImplementedError

    def do_Query(self, request: Request, consumed: Consumed) -> Answer:  # noqa: N802 - the name of the action
        table, name = self.table(request), request.get("IndexName")
        condition = compile_key_condition(request["KeyConditionExpression"], names_of(request))
        return self.page(table, name, condition, request.get("ExpressionAttributeValues"), request, consumed)

    def page(
        self, table: Table, name: str | None, condition: KeyCondition, values: Any, request: Request, consumed: Consumed
    ) -> Answer:
        """Read a page of one partition."""
        keys = table if name is None else table.index(name)
        if name is not None and request.get("ConsistentRead"):
            raise refused("Consistent reads are not supported on global secondary indexes")
        place = table.name if name is None else table.index(name).place
        pk = condition.partition(keys.pk, values)
        if not self.partitions.takes_read(place, pk):
            raise ServerError("ProvisionedThroughputExceededException", f"too many reads of {place}")
        collection = table.collection(name, pk)
        rows: list[tuple[Any, Row]] = []
        if collection is not None:
            low, high = condition.bounds(keys.sk, values) if keys.sk else (None, None)
            rows = _range(table, collection, name, low, high, request)
        limit, looked, size, found = request.get("Limit"), 0, 0, []
        last: Item | None = None
        for at, (_, row) in enumerate(rows):
            looked += 1
            size += row.size
            found.append(row.item)
            if (looked == limit or size > PAGE) and (looked == limit or at + 1 < len(rows)):
                last = row.item
                break
        consumed.read(place, pk, size, consistent=bool(request.get("ConsistentRead")))
        names = {*table.keys, keys.pk, *((keys.sk,) if keys.sk else ())}
        return _answer(found, request, looked, last, names)

    def do_Scan(self, request: Request, consumed: Consumed) -> Answer:  # noqa: N802
        table, name = self.table(request), request.get("IndexName")
        keys = table if name is None else table.index(name)
        rows = list(table.everything(name))
        if (segments := request.get("TotalSegments")) is not None:
            rows = [each for each in rows if hash(each[0][0]) % segments == request["Segment"]]
        start = 0
        if (after := request.get("ExclusiveStartKey")) is not None:
            key = table.key({name: after[name] for name in table.keys})
            start = 1 + next(i for i, (_, row) in enumerate(rows) if table.key(row.item) == key)
        limit, size, found = request.get("Limit"), 0, []
        last: Item | None = None
        for at in range(start, len(rows)):
            row = rows[at][1]
            size += row.size
            found.append(row.item)
            if len(found) == limit or (size > PAGE and at + 1 < len(rows)):
                last = row.item
                break
        consumed.read(table.name, "", size, consistent=bool(request.get("ConsistentRead")))
        names = {*table.keys, keys.pk, *((keys.sk,) if keys.sk else ())}
        return _answer(found, request, len(found), last, names)


def _range(
    table: Table, collection: Collection, index: str | None, low: Bound, high: Bound, request: Request
) -> Sequence[tuple[Any, Row]]:
    """The rows between two sort keys, from where the page before ended."""
    wide = index is not None
    start, end = sort_bounds(collection, low, high, wide=wide)
    forward = request.get("ScanIndexForward", True)
    if (after := request.get("ExclusiveStartKey")) is not None:
        sort = _sort_of(table, index, after)
        at, _ = sort_bounds(collection, (sort, True), None, wide=False)
        there = at < len(collection.order) and collection.order[at] == sort
        if forward:
            start = max(start, at + there)
        else:
            end = min(end, at)
    limit = request.get("Limit")
    order = collection.order
    if forward:
        chosen: Iterable[Any] = order[start : end if limit is None else min(end, start + limit + 1)]
    else:
        chosen = reversed(order[start if limit is None else max(start, end - limit - 1) : end])
    rows = collection.rows
    return [(sort, rows[sort]) for sort in chosen]


def _sort_of(table: Table, index: str | None, item: Item) -> Any:
    """The place of an item in the order of its collection."""
    if index is None:
        return key_of(item[table.sk]) if table.sk else ""
    place = table.index(index).place_of(item)
    assert place is not None
    return place[1], table.key({name: item[name] for name in table.keys})


def _answer(found: list[Item], request: Request, looked: int, last: Item | None, names: set[str]) -> Answer:
    if (text := request.get("FilterExpression")) is not None:
        test, values = compile_condition(text, names_of(request)), request.get("ExpressionAttributeValues")
        found = [item for item in found if test(item, values)]
    answer: Answer = {"Count": len(found), "ScannedCount": looked}
    if request.get("Select") != "COUNT":
        if (text := request.get("ProjectionExpression")) is not None:
            paths = compile_projection(text, names_of(request))
            found = [projected(item, paths) for item in found]
        answer["Items"] = found
    if last is not None:
        answer["LastEvaluatedKey"] = {name: last[name] for name in names if name in last}
    return answer
