"""Attribute values as they travel: their order, equality and size."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

Value = Mapping[str, Any]  # {"S": "text"}, {"N": "1"}, …
Item = dict[str, Any]

SETS = frozenset({"SS", "NS", "BS"})
KINDS = SETS | {"S", "N", "B", "BOOL", "NULL", "L", "M"}


class ServerError(Exception):
    """What the service answers instead of a result."""

    def __init__(self, kind: str, message: str, **fields: Any) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.message = message
        self.fields = fields


def refused(message: str) -> ServerError:
    return ServerError("ValidationException", message)


def number(text: str) -> Decimal | int:
    """The number that a text means; most are whole, and then much cheaper."""
    try:
        return int(text)
    except ValueError:
        return Decimal(text)


def written(value: Decimal | int) -> str:
    """A number as the service writes it."""
    if isinstance(value, int):
        return str(value)
    plain = format(value.normalize(), "f")
    return "0" if plain == "-0" else plain


def key_of(value: Value) -> Any:
    """What a key is ordered by: text, number or bytes."""
    if (text := value.get("S")) is not None:
        return text
    if (text := value.get("N")) is not None:
        return number(text)
    return value["B"]


def equal(left: Value | None, right: Value | None) -> bool:
    """Whether two values are the same; nothing equals what is missing."""
    if left is None or right is None:
        return False
    if left == right:
        return True
    ((kind, mine),) = left.items()
    other = right.get(kind)
    if other is None:
        return False
    if kind == "N":
        return number(mine) == number(other)
    return kind in SETS and set(mine) == set(other)


def compare(left: Value | None, right: Value | None) -> int | None:
    """Below, at or above 0 as left is before, at or after right; None when they have no order."""
    if left is None or right is None:
        return None
    if "S" in left and "S" in right:
        mine, other = left["S"], right["S"]
    elif "N" in left and "N" in right:
        mine, other = number(left["N"]), number(right["N"])
    elif "B" in left and "B" in right:
        mine, other = left["B"], right["B"]
    else:
        return None
    return (mine > other) - (mine < other)


def attribute_size(name: str, value: Value) -> int:
    """How many bytes an attribute counts."""
    return (len(name) if name.isascii() else len(name.encode())) + value_size(value)


def value_size(value: Value) -> int:
    """How many bytes a value counts."""
    text = value.get("S")
    if text is not None:
        return len(text) if text.isascii() else len(text.encode())
    text = value.get("N")
    if text is not None:
        digits = len(text.lstrip("-").replace(".", "").lstrip("0")) or 1
        return 1 + (digits + 1) // 2
    return _rare_size(value)


def _rare_size(value: Value) -> int:
    if len(value) != 1 or (kind := next(iter(value))) not in KINDS:
        raise refused("Supplied AttributeValue has more than one datatypes set, or none that is known")
    inner = value[kind]
    match kind:
        case "BOOL" | "NULL":
            return 1
        case "B":
            return len(inner) * 3 // 4
        case "SS" | "NS" | "BS":
            if not inner:
                raise refused("An attribute value may not contain an empty set")
            return sum(value_size({kind[0]: each}) for each in inner)
        case "L":
            return 3 + sum(1 + value_size(each) for each in inner)
    return 3 + sum(1 + attribute_size(name, each) for name, each in inner.items())


def item_size(item: Mapping[str, Value]) -> int:
    """How many bytes an item counts."""
    size = 0
    for name, value in item.items():
        text = value.get("S")
        if text is not None and text.isascii():
            size += len(name) + len(text)
        else:
            size += attribute_size(name, value)
    return size
