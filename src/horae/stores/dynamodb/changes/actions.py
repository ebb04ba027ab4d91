"""A conditional transaction as it is put together: one action for each item, with the conditions of all who name it."""

from collections.abc import Iterable, Mapping
from typing import Any

from horae.stores.dynamodb.items import Item

MOST_ACTIONS = 100


class ItemAction:
    """What a transaction does with one item: it writes, changes or deletes it, or only checks it."""

    def __init__(self, table: str, key: Item) -> None:
        self.table = table
        self.key = key
        self._item: Item | None = None
        self._sets: Item = {}
        self._removes: list[str] = []
        self._deletes = False
        self._conditions: list[str] = []
        self._names: dict[str, str] = {}
        self._values: dict[str, Item] = {}

    # --- conditions

    def require(self, name: str, value: Item | None) -> None:
        """The attribute has this value; None: it is missing."""
        if value is None:
            self._condition(f"attribute_not_exists({self._name(name)})")
        else:
            self._condition(f"{self._name(name)} = {self._value(value)}")

    def require_as(self, found: Mapping[str, Item] | None, names: Iterable[str]) -> None:
        """The attributes are as they were read."""
        for name in names:
            self.require(name, None if found is None else found.get(name))

    def require_any(self, name: str, values: Iterable[Item]) -> None:
        """The attribute has one of these values."""
        self._condition(f"{self._name(name)} IN ({', '.join(map(self._value, values))})")

    def require_present(self, name: str) -> None:
        """The attribute is there."""
        self._condition(f"attribute_exists({self._name(name)})")

    # --- what to do

    def put(self, item: Item) -> None:
        """Write the whole item."""
        self._item, self._deletes = item, False

    def set(self, name: str, value: Item) -> None:
        """Set an attribute, of the whole item if that is written."""
        if self._item is not None:
            self._item[name] = value
        else:
            self._sets[name] = value

    def remove(self, name: str) -> None:
        """Remove an attribute."""
        self._removes.append(name)

    def delete(self) -> None:
        """Delete the item."""
        self._deletes = True

    # --- requests

    def in_transaction(self) -> dict[str, Any]:
        """The action as a part of TransactWriteItems."""
        kind, body = self._request()
        return {kind: body}

    def alone(self) -> tuple[str, dict[str, Any]] | None:
        """The action as a request of its own; None if it only checks."""
        kind, body = self._request()
        return None if kind == "ConditionCheck" else (f"{kind}Item", body)

    def _request(self) -> tuple[str, dict[str, Any]]:
        body: dict[str, Any] = {"TableName": self.table}
        if self._item is not None:
            kind = "Put"
            body["Item"] = self._item
        else:
            body["Key"] = self.key
            kind = "Delete" if self._deletes else "Update" if self._sets or self._removes else "ConditionCheck"
        if kind == "Update":
            body["UpdateExpression"] = self._expression()
        if self._conditions:
            body["ConditionExpression"] = " AND ".join(self._conditions)
        if self._names:
            body["ExpressionAttributeNames"] = self._names
        if self._values:
            body["ExpressionAttributeValues"] = self._values
        return kind, body

    def _expression(self) -> str:
        parts = []
        if self._sets:
            parts.append(
                "SET " + ", ".join(f"{self._name(name)} = {self._value(value)}" for name, value in self._sets.items())
            )
        if self._removes:
            parts.append("REMOVE " + ", ".join(map(self._name, self._removes)))
        return " ".join(parts)

    def _condition(self, text: str) -> None:
        if text not in self._conditions:
            self._conditions.append(text)

    def _name(self, name: str) -> str:
        self._names[f"#{name}"] = name
        return f"#{name}"

    def _value(self, value: Item) -> str:
        place = next((place for place, known in self._values.items() if known == value), f":v{len(self._values)}")
        self._values[place] = value
        return place


class Actions:
    """The actions of one transaction, each item once."""

    def __init__(self) -> None:
        self._actions: dict[tuple[str, ...], ItemAction] = {}

    def __len__(self) -> int:
        return len(self._actions)

    def at(self, table: str, key: Item) -> ItemAction:
        """The action of an item."""
        place = (table, *(value["S"] for value in key.values()))
        return self._actions.setdefault(place, ItemAction(table, key))

    def all(self) -> list[ItemAction]:
        """Every action, in the order in which they were first named."""
        return list(self._actions.values())
