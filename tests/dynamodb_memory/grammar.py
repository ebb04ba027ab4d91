"""Compiles conditions, operands and paths, of expressions and of PartiQL, to functions of an item and parameters.

An expression is compiled once and evaluated a million times, so everything that does not depend on the item is decided
beforehand.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ministack.services._dynamodb_keywords import AWS_KEYWORDS

from tests.dynamodb_memory.values import Item, Value, compare, equal, key_of, number, refused, written

Operand = Callable[[Item, Any], Value | None]
Test = Callable[[Item, Any], bool]

_TOKEN = re.compile(
    r"""\s*(?:(?P<name>"[^"]+"|\#[A-Za-z0-9_]+|[A-Za-z_][A-Za-z0-9_]*)|(?P<value>:[A-Za-z0-9_]+)|(?P<text>'(?:[^']|'')*')
    |(?P<number>-?\d+(?:\.\d+)?)|(?P<sign><>|!=|<=|>=|[=<>(),.\[\]{}:?*+-]))""",
    re.VERBOSE,
)
_ORDERS: Mapping[str, Callable[[int], bool]] = {
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
}
_COMPARISONS = {"=", "<>", "!=", *_ORDERS}
_FUNCTIONS = {"attribute_exists", "attribute_not_exists", "attribute_type", "begins_with", "contains"}


class Parser:
    """Reads one text; `names` stand for #names, and question marks are parameters in their order."""

    def __init__(self, text: str, names: Mapping[str, str] | None = None) -> None:
        self.text = text
        self._names = names or {}
        self._tokens = list(_tokens(text))
        self._at = 0
        self._parameters = 0
        self.pinned: dict[str, Operand] = {}  # attributes that a conjunction holds equal to an operand
        self.ranges: list[tuple[str, str, Sequence[Operand]]] = []  # attribute, comparison, operands of the same

    # --- tokens

    @property
    def over(self) -> bool:
        return self._at >= len(self._tokens)

    def peek(self, ahead: int = 0) -> str:
        at = self._at + ahead
        return self._tokens[at][1] if at < len(self._tokens) else ""

    def next(self) -> str:
        token = self.peek()
        self._at += 1
        return token

    def word(self, *words: str) -> bool:
        """Take these words if they come next."""
        if all(self.peek(place).upper() == word for place, word in enumerate(words)):
            self._at += len(words)
            return True
        return False

    def expect(self, *words: str) -> None:
        if not self.word(*words):
            raise refused(f"expected {' '.join(words)} before {self.peek()!r} in {self.text!r}")

    def end(self) -> None:
        if not self.over:
            raise refused(f"unexpected {self.peek()!r} in {self.text!r}")

    def _is(self, kind: str) -> bool:
        return not self.over and self._tokens[self._at][0] == kind

    # --- names and paths

    def name(self) -> str:
        if not self._is("name"):
            raise refused(f"expected a name before {self.peek()!r} in {self.text!r}")
        token = self.next()
        if token.startswith("#"):
            if token not in self._names:
                raise refused(f"An expression attribute name used in the document path is not defined: {token}")
            return self._names[token]
        if token.upper() in AWS_KEYWORDS:
            raise refused(f"Attribute name is a reserved keyword; reserved keyword: {token}")
        return token.strip('"')

    def path(self) -> tuple[str | int, ...]:
        parts: list[str | int] = [self.name()]
        while self.peek() in (".", "["):
            if self.next() == ".":
                parts.append(self.name())
            else:
                parts.append(int(self.next()))
                self.expect("]")
        return tuple(parts)

    # --- operands

    def operand(self) -> Operand:
        """An operand of a comparison: a value, a path, a size, or a sum of these."""
        left = self._term()
        while self.peek() in ("+", "-"):
            left = _sum(left, self._term_after_sign(), self._sign)
        return left

    def _term_after_sign(self) -> Operand:
        self._sign = 1 if self.next() == "+" else -1
        return self._term()

    def _term(self) -> Operand:
        if self._is("value"):
            name = self.next()
            return lambda item, values: values[name]
        if self.word("?"):
            place = self._parameters
            self._parameters += 1
            return lambda item, values: values[place]
        if self._is("text"):
            text = {"S": self.next()[1:-1].replace("''", "'")}
            return lambda item, values: text
        if self._is("number"):
            fixed = {"N": self.next()}
            return lambda item, values: fixed
        if self.word("("):
            inner = self.operand()
            self.expect(")")
            return inner
        return self._named_term()

    def _named_term(self) -> Operand:
        word = self.peek().lower()
        if word in ("true", "false", "null") and self.peek(1) != ".":
            self.next()
            fixed: Value = {"NULL": True} if word == "null" else {"BOOL": word == "true"}
            return lambda item, values: fixed
        if self.peek(1) == "(" and word in ("size", "if_not_exists", "list_append", "set_add", "set_delete"):
            self.next()
            self.next()
            return self._call(word)
        return getter(self.path())

    def _call(self, word: str) -> Operand:
        first = self.operand()
        if word == "size":
            self.expect(")")
            return lambda item, values: _size(first(item, values))
        self.expect(",")
        second = self.operand()
        self.expect(")")
        match word:
            case "if_not_exists":
                return lambda item, values: present if (present := first(item, values)) else second(item, values)
            case "list_append":
                return lambda item, values: _appended(first(item, values), second(item, values))
            case "set_add":
                return lambda item, values: union(first(item, values), second(item, values))
        return lambda item, values: difference(first(item, values), second(item, values))

    # --- conditions

    def condition(self) -> Test:
        """A condition; what it pins by equality is noted if it is a conjunction."""
        return self._any(top=True)

    def _any(self, *, top: bool = False) -> Test:
        tests = [self._all(top=top)]
        while self.word("OR"):
            if top:
                self.pinned.clear()
                self.ranges.clear()
            tests.append(self._all())
        if len(tests) == 1:
            return tests[0]
        return lambda item, values: any(test(item, values) for test in tests)

    def _all(self, *, top: bool = False) -> Test:
        tests = [self._one(top=top)]
        while self.word("AND"):
            tests.append(self._one(top=top))
        if len(tests) == 1:
            return tests[0]
        if len(tests) == 2:
            first, second = tests
            return lambda item, values: first(item, values) and second(item, values)

        def every(item: Item, values: Any) -> bool:
            return all(test(item, values) for test in tests)

        return every

    def _one(self, *, top: bool = False) -> Test:
        if self.word("NOT"):
            inner = self._one()
            return lambda item, values: not inner(item, values)
        if self.peek() == "(":
            self.next()
            grouped = self._any(top=top)
            self.expect(")")
            return grouped
        if self.peek().lower() in _FUNCTIONS and self.peek(1) == "(":
            return self._function(top)
        return self._comparison(top)

    def _function(self, top: bool) -> Test:
        word = self.next().lower()
        self.next()
        path = self.path()
        found = getter(path)
        if word in ("attribute_exists", "attribute_not_exists"):
            self.expect(")")
            wanted = word == "attribute_exists"
            return lambda item, values: (found(item, values) is not None) is wanted
        self.expect(",")
        operand = self.operand()
        self.expect(")")
        if word == "begins_with":
            if top and len(path) == 1:
                self.ranges.append((str(path[0]), word, [operand]))
            return lambda item, values: _begins(found(item, values), operand(item, values))
        if word == "attribute_type":
            return lambda item, values: _is_of(found(item, values), operand(item, values))
        return lambda item, values: _contains(found(item, values), operand(item, values))

    def _comparison(self, top: bool) -> Test:
        simple = self._tokens[self._at][0] == "name" and self.peek(1) not in (".", "[", "(", "+", "-")
        attribute = self._names.get(self.peek(), self.peek().strip('"')) if simple else None
        left = self.operand()
        if self.word("IS"):
            missing = not self.word("NOT")
            self.expect("MISSING")
            return lambda item, values: (left(item, values) is None) is missing
        if self.word("BETWEEN"):
            low = self.operand()
            self.expect("AND")
            high = self.operand()
            if top and attribute is not None:
                self.ranges.append((attribute, "between", [low, high]))
            return _both(_ordered(left, ">=", low), _ordered(left, "<=", high))
        if self.word("IN"):
            return self._among(left)
        sign = self.next()
        if sign not in _COMPARISONS:
            raise refused(f"expected a comparison before {sign!r} in {self.text!r}")
        right = self.operand()
        if top and attribute is not None:
            if sign == "=":
                self.pinned[attribute] = right
            self.ranges.append((attribute, sign, [right]))
        return _ordered(left, sign, right)

    def _among(self, left: Operand) -> Test:
        closing = {"(": ")", "[": "]"}[self.next()]
        choices = [self.operand()]
        while self.word(","):
            choices.append(self.operand())
        self.expect(closing)

        def among(item: Item, values: Any) -> bool:
            found = left(item, values)
            return any(equal(found, choice(item, values)) for choice in choices)

        return among


def _tokens(text: str) -> Sequence[tuple[str, str]]:
    found, at = [], 0
    text = text.rstrip().rstrip(";")
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise refused(f"Syntax error at {text[at : at + 10]!r} in {text!r}")
        found.append((str(match.lastgroup), str(match.group(str(match.lastgroup)))))
        at = match.end()
    return found


def getter(path: Sequence[str | int]) -> Operand:
    """Read what is at a path."""
    if len(path) == 1:
        name = path[0]
        return lambda item, values: item.get(name)  # type: ignore[call-overload, no-any-return]

    def walk(item: Item, values: Any) -> Value | None:
        here: Any = {"M": item}
        for part in path:
            if here is None:
                return None
            if isinstance(part, str):
                here = here.get("M", {}).get(part)
            else:
                inner = here.get("L", ())
                here = inner[part] if part < len(inner) else None
        return here  # type: ignore[no-any-return]

    return walk


def _both(first: Test, second: Test) -> Test:
    return lambda item, values: first(item, values) and second(item, values)


def _ordered(left: Operand, sign: str, right: Operand) -> Test:
    if sign == "=":
        return lambda item, values: equal(left(item, values), right(item, values))
    if sign in ("<>", "!="):
        return lambda item, values: not equal(left(item, values), right(item, values))
    holds = _ORDERS[sign]

    def test(item: Item, values: Any) -> bool:
        order = compare(left(item, values), right(item, values))
        return order is not None and holds(order)

    return test


def _sum(left: Operand, right: Operand, sign: int) -> Operand:
    def add(item: Item, values: Any) -> Value:
        mine, other = left(item, values), right(item, values)
        if mine is None or other is None:
            raise refused("The provided expression refers to an attribute that does not exist in the item")
        if "N" not in mine or "N" not in other:
            raise refused("An operand in the update expression has an incorrect data type")
        return {"N": written(number(mine["N"]) + sign * number(other["N"]))}

    return add


def _size(value: Value | None) -> Value | None:
    if value is None:
        return None
    ((kind, inner),) = value.items()
    return None if kind in ("N", "BOOL", "NULL") else {"N": str(len(inner))}


def _begins(value: Value | None, prefix: Value | None) -> bool:
    return value is not None and prefix is not None and str(value.get("S", "")).startswith(str(prefix["S"]))


def _is_of(value: Value | None, kind: Value | None) -> bool:
    return value is not None and kind is not None and kind["S"] in value


def _contains(value: Value | None, part: Value | None) -> bool:
    if value is None or part is None:
        return False
    ((kind, inner),) = value.items()
    if kind == "S":
        return "S" in part and part["S"] in inner
    if kind == "L":
        return any(equal(each, part) for each in inner)
    return kind[0] in part and part[kind[0]] in inner if kind in ("SS", "NS", "BS") else False


def _appended(first: Value | None, second: Value | None) -> Value:
    if first is None or second is None:
        raise refused("The provided expression refers to an attribute that does not exist in the item")
    return {"L": [*first["L"], *second["L"]]}


def union(value: Value | None, more: Value | None) -> Value:
    """A set with more members."""
    assert more is not None
    ((kind, members),) = more.items()
    return {kind: sorted({*(value or {}).get(kind, ()), *members})}


def difference(value: Value | None, less: Value | None) -> Value | None:
    """A set without some members; None when none is left."""
    if value is None or less is None:
        return None
    ((kind, members),) = less.items()
    left = sorted(set(value[kind]) - set(members))
    return {kind: left} if left else None


def key_operand(value: Value | None) -> Any:
    """A key in the order of its kind."""
    if value is None:
        raise refused("The provided key element does not match the schema")
    return key_of(value)
