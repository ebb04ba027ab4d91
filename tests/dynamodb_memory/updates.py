"""Compiles what is written to an item: update expressions, and the clauses of a PartiQL UPDATE."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from tests.dynamodb_memory.grammar import Operand, Parser, Test, difference, getter, union
from tests.dynamodb_memory.values import Item, Value, number, refused, written

Assignments = Callable[[Item, Any], list[tuple[str, Value | None]]]  # by attribute; None removes it
Path = tuple[str | int, ...]


class Update:
    """The clauses of one update; all read the item as it was."""

    def __init__(self) -> None:
        self.sets: list[tuple[Path, Operand]] = []
        self.removes: list[Path] = []

    def compiled(self) -> Assignments:
        if all(len(path) == 1 for path in [*(path for path, _ in self.sets), *self.removes]):
            return self._plain()
        return self._nested()

    def _plain(self) -> Assignments:
        sets = [(str(path[0]), operand) for path, operand in self.sets]
        removes: list[tuple[str, Value | None]] = [(str(path[0]), None) for path in self.removes]

        def assign(item: Item, values: Any) -> list[tuple[str, Value | None]]:
            return [*((name, operand(item, values)) for name, operand in sets), *removes]

        return assign

    def _nested(self) -> Assignments:
        def assign(item: Item, values: Any) -> list[tuple[str, Value | None]]:
            after = {"M": dict(item.items())}
            touched: dict[str, None] = {}
            for path, operand in self.sets:
                value = operand(item, values)
                after = _with(after, path, value)
                touched[str(path[0])] = None
            for path in self.removes:
                after = _with(after, path, None)
                touched[str(path[0])] = None
            return [(name, after["M"].get(name)) for name in touched]

        return assign


def _with(node: Any, path: Sequence[str | int], value: Value | None) -> Any:
    """A document with something else at a path; nothing in it is changed in place."""
    if not path:
        return value
    part, rest = path[0], path[1:]
    if isinstance(part, str):
        inner = dict(node["M"]) if node is not None and "M" in node else None
        if inner is None:
            raise refused("The document path provided in the update expression is invalid for update")
        below = _with(inner.get(part), rest, value)
        if below is None:
            inner.pop(part, None)
        else:
            inner[part] = below
        return {"M": inner}
    if node is None or "L" not in node:
        raise refused("The document path provided in the update expression is invalid for update")
    items = list(node["L"])
    if part >= len(items):
        if value is not None:
            items.append(_with(None, rest, value))
        return {"L": items}
    below = _with(items[part], rest, value)
    items[part : part + 1] = [] if below is None else [below]
    return {"L": items}


def read_sets(parser: Parser, update: Update) -> None:
    """Read `path = operand, …`."""
    while True:
        path = parser.path()
        parser.expect("=")
        update.sets.append((path, _existing(parser.operand())))
        if not parser.word(","):
            return


def _existing(operand: Operand) -> Operand:
    def read(item: Item, values: Any) -> Value:
        value = operand(item, values)
        if value is None:
            raise refused("The provided expression refers to an attribute that does not exist in the item")
        return value

    return read


@lru_cache(4096)
def compile_update(text: str, names: tuple[tuple[str, str], ...]) -> Assignments:
    """Compile an update expression."""
    parser, update = Parser(text, dict(names)), Update()
    while not parser.over:
        clause = parser.next().upper()
        if clause == "SET":
            read_sets(parser, update)
        elif clause in ("REMOVE", "ADD", "DELETE"):
            _read_others(parser, update, clause)
        else:
            raise refused(f"Invalid UpdateExpression: {clause} in {text!r}")
    return update.compiled()


def _read_others(parser: Parser, update: Update, clause: str) -> None:
    while True:
        path = parser.path()
        if clause == "REMOVE":
            update.removes.append(path)
        else:
            operand, found = parser.operand(), getter(path)
            update.sets.append((path, _added(found, operand) if clause == "ADD" else _taken(found, operand)))
        if not parser.word(","):
            return


def _added(found: Operand, operand: Operand) -> Operand:
    def add(item: Item, values: Any) -> Value:
        before, more = found(item, values), operand(item, values)
        assert more is not None
        if "N" in more:
            if before is not None and "N" not in before:
                raise refused("An operand in the update expression has an incorrect data type")
            start = number(before["N"]) if before else 0
            return {"N": written(start + number(more["N"]))}
        return union(before, more)

    return add


def _taken(found: Operand, operand: Operand) -> Operand:
    return lambda item, values: difference(found(item, values), operand(item, values))


@lru_cache(4096)
def compile_condition(text: str, names: tuple[tuple[str, str], ...]) -> Test:
    """Compile a condition or a filter."""
    parser = Parser(text, dict(names))
    test = parser.condition()
    parser.end()
    return test


@lru_cache(4096)
def compile_projection(text: str, names: tuple[tuple[str, str], ...]) -> Sequence[Path]:
    """Read the paths of a projection."""
    parser = Parser(text, dict(names))
    paths = [parser.path()]
    while parser.word(","):
        paths.append(parser.path())
    parser.end()
    return paths


def projected(item: Item, paths: Sequence[Path]) -> Item:
    """An item with nothing but these paths."""
    if all(len(path) == 1 for path in paths):
        return {name: item[name] for name in (str(path[0]) for path in paths) if name in item}
    chosen: Item = {}
    for path in paths:
        value = getter(path)(item, None)
        if value is not None:
            _put(chosen, path, value)
    return chosen


def _put(node: Item, path: Path, value: Value) -> None:
    name = str(path[0])
    if len(path) == 1:
        node[name] = value
    elif isinstance(path[1], int):
        node.setdefault(name, {"L": []})["L"].append(value)
    else:
        _put(node.setdefault(name, {"M": {}})["M"], path[1:], value)


def names_of(request: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """The names of a request, to look up what was compiled."""
    names = request.get("ExpressionAttributeNames")
    return tuple(names.items()) if names else ()
