"""Tables and their indexes: items by key, in order, with what each write costs."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tests.dynamodb_memory.values import Item, ServerError, Value, attribute_size, item_size, key_of, refused

Spend = Callable[[str, Any, float], None]  # a table or an index, the key of a partition, write units
LARGEST = 400 * 1024
KILOBYTE = 1024
_NO_SORT = ""


class Row:
    """An item with its size."""

    __slots__ = ("item", "size")

    def __init__(self, item: Item, size: int) -> None:
        self.item = item
        self.size = size


class Collection:
    """What has one partition key, in the order of its sort key."""

    __slots__ = ("order", "rows")

    def __init__(self) -> None:
        self.rows: dict[Any, Row] = {}
        self.order: list[Any] = []

    def put(self, sort: Any, row: Row) -> None:
        if sort not in self.rows:
            order = self.order
            if order and order[-1] > sort:
                insort(order, sort)
            else:
                order.append(sort)
        self.rows[sort] = row

    def drop(self, sort: Any) -> None:
        if self.rows.pop(sort, None) is not None:
            del self.order[bisect_left(self.order, sort)]

    def drop_first(self, is_over: Callable[[Any, Row], bool]) -> None:
        """Drop from the beginning as long as what is there is over."""
        order, rows, count = self.order, self.rows, 0
        while count < len(order) and is_over(order[count], rows[order[count]]):
            del rows[order[count]]
            count += 1
        del order[:count]


def units_of(size: int) -> int:
    """The write units of so many bytes."""
    return 1 if size <= KILOBYTE else -(-size // KILOBYTE)


class Index:
    """A global secondary index; only items that have its whole key are in it."""

    def __init__(self, table: str, definition: Mapping[str, Any], keys: Sequence[str]) -> None:
        self.name = definition["IndexName"]
        self.place = f"{table}/{self.name}"
        self.pk, self.sk = key_names(definition["KeySchema"])
        projection = definition.get("Projection", {})
        self.keys = {*keys, self.pk, *((self.sk,) if self.sk else ())}
        kind = projection.get("ProjectionType", "ALL")
        self.projects: set[str] | None = None  # None: everything
        if kind != "ALL":
            self.projects = self.keys | set(projection.get("NonKeyAttributes", ()))
        self.collections: dict[Any, Collection] = {}

    def place_of(self, item: Item) -> tuple[Any, Any] | None:
        """The partition and sort key of an item in this index."""
        pk = item.get(self.pk)
        if pk is None:
            return None
        if not self.sk:
            return key_of(pk), _NO_SORT
        sk = item.get(self.sk)
        return None if sk is None else (key_of(pk), key_of(sk))

    def seen(self, item: Item) -> Item:
        """What the index has of an item."""
        if self.projects is None:
            return item
        return {name: item[name] for name in self.projects if name in item}

    def change(self, key: Any, before: Item | None, after: Item | None, spend: Spend) -> None:
        """Follow a write to the table: a changed key is a delete and a put."""
        old = None if before is None else self.place_of(before)
        new = None if after is None else self.place_of(after)
        if old is None and new is None:
            return
        if old is not None and old == new:
            assert before is not None
            assert after is not None
            mine, other = self.seen(before), self.seen(after)
            if mine == other:
                return
            size = item_size(other)
            self.collections[old[0]].rows[(old[1], key)] = Row(other, size)
            spend(self.place, old[0], units_of(max(size, item_size(mine))))
            return
        if old is not None:
            collection = self.collections[old[0]]
            spend(self.place, old[0], units_of(collection.rows[(old[1], key)].size))
            collection.drop((old[1], key))
            if not collection.order:
                del self.collections[old[0]]
        if new is not None:
            assert after is not None
            seen = self.seen(after)
            size = item_size(seen)
            collection = self.collections.get(new[0]) or self.collections.setdefault(new[0], Collection())
            collection.put((new[1], key), Row(seen, size))
            spend(self.place, new[0], units_of(size))

    def partitions(self, before: Item | None, after: Item | None) -> Iterator[tuple[str, Any]]:
        """The partitions that a write would touch, if it touched any."""
        for item in (before, after):
            if item is not None and (place := self.place_of(item)) is not None:
                yield self.place, place[0]


def key_names(schema: Sequence[Mapping[str, str]]) -> tuple[str, str]:
    """The names of the partition and sort key; the latter may be empty."""
    by_type = {each["KeyType"]: each["AttributeName"] for each in schema}
    return by_type["HASH"], by_type.get("RANGE", "")


class Table:
    """A table: items by their key, and what indexes have of them."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        self.name: str = request["TableName"]
        self.pk, self.sk = key_names(request["KeySchema"])
        self.request = dict(request)
        self.types = {each["AttributeName"]: each["AttributeType"] for each in request["AttributeDefinitions"]}
        self.keys = (self.pk, self.sk) if self.sk else (self.pk,)
        self.indexes: dict[str, Index] = {}
        for definition in request.get("GlobalSecondaryIndexes", ()):
            self.indexes[definition["IndexName"]] = Index(self.name, definition, self.keys)
        self._indexes = list(self.indexes.values())
        self.rows: dict[Any, Row] = {}  # of a table without a sort key
        self.collections: dict[Any, Collection] = {}  # of one with
        self.ttl: str | None = None
        self.backups = False

    def add(self, index: Index, definition: Mapping[str, Any]) -> None:
        """Keep one more index from now on."""
        self.indexes[index.name] = index
        self._indexes.append(index)
        self.request["GlobalSecondaryIndexes"] = [*self.request.get("GlobalSecondaryIndexes", ()), definition]

    def __len__(self) -> int:
        return len(self.rows) if not self.sk else sum(len(each.rows) for each in self.collections.values())

    # --- keys

    def key(self, item: Mapping[str, Value], *, exactly: bool = False) -> tuple[Any, Any]:
        """The key of an item, checked."""
        if exactly and len(item) != len(self.keys):
            raise refused("The provided key element does not match the schema")
        found = []
        for name in self.keys:
            value = item.get(name)
            if value is None:
                raise refused(f"One or more parameter values were invalid: Missing the key {name} in the item")
            if self.types[name] not in value:
                raise refused(f"One or more parameter values were invalid: Type mismatch for key {name}")
            key = key_of(value)
            if key == "":
                raise refused(f"One or more parameter values are not valid. The key {name} is an empty string")
            found.append(key)
        return (found[0], found[1]) if self.sk else (found[0], _NO_SORT)

    def get(self, key: tuple[Any, Any]) -> Row | None:
        if not self.sk:
            return self.rows.get(key[0])
        collection = self.collections.get(key[0])
        return None if collection is None else collection.rows.get(key[1])

    # --- writes

    def write(
        self, key: tuple[Any, Any], before: Row | None, after: Item | None, size: int, spend: Spend, factor: int = 1
    ) -> None:
        """Put an item, or with None delete it; every partition that is touched is charged."""
        if after is not None and size > LARGEST:
            raise refused("Item size has exceeded the maximum allowed size")
        row = None if after is None else Row(after, size)
        if not self.sk:
            if row is None:
                self.rows.pop(key[0], None)
            else:
                self.rows[key[0]] = row
        else:
            collection = self.collections.get(key[0])
            if row is not None:
                (collection or self.collections.setdefault(key[0], Collection())).put(key[1], row)
            elif collection is not None:
                collection.drop(key[1])
                if not collection.order:
                    del self.collections[key[0]]
        spend(self.name, key[0], factor * units_of(max(size, before.size if before else 0)))
        if self._indexes:
            self._check_index_keys(after)
            for index in self._indexes:
                index.change(key, before.item if before else None, after, spend)

    def _check_index_keys(self, item: Item | None) -> None:
        if item is None:
            return
        for index in self._indexes:
            for name in (index.pk, index.sk):
                if name and (value := item.get(name)) is not None and self.types[name] not in value:
                    raise refused(f"One or more parameter values were invalid: Type mismatch for Index Key {name}")

    def assign(
        self,
        key: tuple[Any, Any],
        before: Row | None,
        changes: Sequence[tuple[str, Value | None]],
        given: Mapping[str, Value],
        spend: Spend,
        factor: int = 1,
    ) -> Item:
        """Write attributes of an item, which is created from its key if it is not there; return the new item."""
        if before is None:
            item, size = dict(given), item_size(given)
        else:
            item, size = dict(before.item), before.size
        for name, value in changes:
            if name in self.keys:
                raise refused(f"Cannot update attribute {name}. This attribute is part of the key")
            old = item.get(name)
            if old is not None:
                size -= attribute_size(name, old)
            if value is None:
                item.pop(name, None)
            else:
                item[name] = value
                size += attribute_size(name, value)
        self.write(key, before, item, size, spend, factor)
        return item

    # --- reads

    def collection(self, index: str | None, pk: Any) -> Collection | None:
        if index is not None:
            return self.index(index).collections.get(pk)
        if self.sk:
            return self.collections.get(pk)
        row = self.rows.get(pk)
        if row is None:
            return None
        single = Collection()
        single.put(_NO_SORT, row)
        return single

    def index(self, name: str) -> Index:
        if name not in self.indexes:
            raise refused(f"The table does not have the specified index: {name}")
        return self.indexes[name]

    def everything(self, index: str | None = None) -> Iterator[tuple[Any, Row]]:
        """All rows with their keys, in an order that does not change while nothing is written."""
        if index is None and not self.sk:
            yield from (((pk, _NO_SORT), row) for pk, row in self.rows.items())
            return
        collections = self.collections if index is None else self.index(index).collections
        for pk, collection in collections.items():
            for sort in collection.order:
                yield (pk, sort), collection.rows[sort]

    def expired(self, now: float) -> list[tuple[Any, Any]]:
        """The keys of items whose time to live is over."""
        if self.ttl is None:
            return []
        rows = self.everything()
        return [key for key, row in rows if "N" in (value := row.item.get(self.ttl, {})) and float(value["N"]) <= now]


def sort_bounds(
    collection: Collection, low: tuple[Any, bool] | None, high: tuple[Any, bool] | None, *, wide: bool
) -> tuple[int, int]:
    """The range of positions between two sort keys, each with whether it is included.

    The sort keys of an index (`wide`) are followed by the key of the table, which breaks ties.
    """
    order = collection.order
    if not wide:
        start = 0 if low is None else (bisect_left if low[1] else bisect_right)(order, low[0])
        end = len(order) if high is None else (bisect_right if high[1] else bisect_left)(order, high[0])
        return start, end

    def first(pair: tuple[Any, Any]) -> Any:
        return pair[0]

    start = 0 if low is None else (bisect_left if low[1] else bisect_right)(order, low[0], key=first)
    end = len(order) if high is None else (bisect_right if high[1] else bisect_left)(order, high[0], key=first)
    return start, end


def absent(name: str) -> ServerError:
    return ServerError("ResourceNotFoundException", f"Requested resource not found: Table: {name} not found")
