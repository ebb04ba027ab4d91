"""Takes a safety condition or assignment out of a named SQL statement, whatever its layout.

A condition is one conjunct of a WHERE, ON or HAVING clause, recognised by the tokens that it contains. An edit never
removes text: the condition stays in the statement but no longer decides, so that every parameter keeps its use.
"""

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from horae.stores.common.statements import load

SqlEdit = Callable[[str], str]

# Appended to the loader in a copy of the product, so that nothing depends on how statements are kept in files.
_OVERRIDE = """

_unreverted = load


@cache
def load(dialect: str) -> dict[str, str]:
    return {{**_unreverted(dialect), **({{{name!r}: {text!r}}} if dialect == {dialect!r} else {{}})}}
"""

_TOKEN = re.compile(
    r"""
      (?P<skipped> \s+ | --[^\n]* )
    | '(?:[^']|'')*'            # a string
    | "[^"]*"                   # a quoted name
    | [:$@]?\w+                 # a word, a number, a parameter
    | ::|<>|!=|<=|>=|->>|->|\|\|
    | .
    """,
    re.VERBOSE | re.DOTALL,
)
_BEGIN_CONDITIONS = frozenset({"where", "on", "having"})
_END_CONDITIONS = frozenset(
    {"group", "order", "limit", "offset", "union", "except", "intersect", "window", "returning", "for", "set", "do"}
    | {"join", "left", "right", "full", "inner", "cross", "natural"}
    | _BEGIN_CONDITIONS
)
_END_ASSIGNMENTS = frozenset({"from", "where", "returning"})


class AnchorError(AssertionError):
    """What a revert looks for is not there, or is there more than once."""


@dataclass(frozen=True, slots=True)
class _Token:
    """A token that is not white space, with its place in the statement and the number of open parentheses."""

    text: str
    start: int
    end: int
    depth: int


@dataclass(frozen=True, slots=True)
class _Part:
    """A piece of a statement: a condition or an assignment."""

    tokens: tuple[_Token, ...]
    target: str = ""  # of an assignment: the table that is updated

    @property
    def start(self) -> int:
        return self.tokens[0].start

    @property
    def end(self) -> int:
        return self.tokens[-1].end

    @property
    def words(self) -> frozenset[str]:
        return frozenset(token.text for token in self.tokens)

    def contains(self, other: "_Part") -> bool:
        return self != other and self.start <= other.start and other.end <= self.end


@dataclass(frozen=True, slots=True)
class Statement:
    """A named statement of one dialect, and how it is changed."""

    dialect: str
    name: str
    edit: SqlEdit

    @property
    def place(self) -> str:
        return f"{self.dialect} statement {self.name}"

    def text(self) -> str:
        """The statement as the product loads it."""
        statements = load(self.dialect)
        if self.name not in statements:
            raise AnchorError(f"{self.dialect} has no statement {self.name!r}")
        return statements[self.name]

    def edited(self) -> str:
        return self.edit(self.text())

    def apply(self, source: Path) -> None:
        """Change the statement in a copy of the product's source."""
        with (source / "horae/stores/common/statements.py").open("a", encoding="utf-8") as loader:
            loader.write(_OVERRIDE.format(dialect=self.dialect, name=self.name, text=self.edited()))


# --- edits


def always(*mentions: str) -> SqlEdit:
    """Let the one condition that contains these tokens always hold."""
    return lambda sql: _wrap(sql, _only(_conditions(sql), mentions, sql), "({} OR true)")


def never(*mentions: str) -> SqlEdit:
    """Let the one condition that contains these tokens never hold."""
    return lambda sql: _wrap(sql, _only(_conditions(sql), mentions, sql), "({} AND false)")


def keep(column: str) -> SqlEdit:
    """Leave a column as it is where an UPDATE assigns to it."""

    def edit(sql: str) -> str:
        found = [part for part in _assignments(sql) if part.tokens[0].text == column]
        part = _single(found, f"assignment to {column}", sql)
        value = sql[part.tokens[2].start : part.end]
        kept = f"{column} = CASE WHEN true THEN {part.target}.{column} ELSE {value} END"
        return sql[: part.start] + kept + sql[part.end :]

    return edit


def clear(column: str, table: str = "runs") -> SqlEdit:
    """Set a column to NULL in the statement's UPDATE of a table, which does not assign to it."""

    def edit(sql: str) -> str:
        assigned = [part for part in _assignments(sql) if part.target == table]
        if not assigned:
            raise AnchorError(f"an UPDATE of {table} was expected:\n{sql}")
        if any(part.tokens[0].text == column for part in assigned):
            raise AnchorError(f"{column} is assigned already:\n{sql}")
        last = assigned[-1]
        return f"{sql[: last.end]}, {column} = NULL{sql[last.end :]}"

    return edit


# --- finding


def _only(parts: Iterator[_Part], mentions: Collection[str], sql: str) -> _Part:
    """The innermost part that contains all these tokens."""
    matching = [part for part in parts if part.words.issuperset(mentions)]
    innermost = [part for part in matching if not any(part.contains(other) for other in matching)]
    return _single(innermost, f"condition with {' '.join(mentions)}", sql)


def _single(found: list[_Part], what: str, sql: str) -> _Part:
    if len(found) != 1:
        raise AnchorError(f"one {what} was expected, and there are {len(found)}:\n{sql}")
    return found[0]


def _wrap(sql: str, part: _Part, template: str) -> str:
    return sql[: part.start] + template.format(sql[part.start : part.end]) + sql[part.end :]


def _conditions(sql: str) -> Iterator[_Part]:
    """Every conjunct of every clause, those of subqueries among them."""
    tokens = _tokens(sql)
    for place, token in enumerate(tokens):
        if token.text in _BEGIN_CONDITIONS:
            clause = _until(tokens[place + 1 :], token.depth, _END_CONDITIONS)
            yield from _conjuncts(clause, token.depth)


def _conjuncts(clause: list[_Token], depth: int) -> Iterator[_Part]:
    """Split a clause at its ANDs; one that belongs to BETWEEN, or stands inside CASE, joins nothing."""
    part: list[_Token] = []
    between, cases = False, 0
    for token in clause:
        if token.depth == depth:
            cases += (token.text == "case") - (token.text == "end")
            if token.text == "between":
                between = True
            elif token.text == "and" and not cases:
                if not between:
                    yield _Part(tuple(part))
                    part = []
                    continue
                between = False
        part.append(token)
    if part:
        yield _Part(tuple(part))


def _assignments(sql: str) -> Iterator[_Part]:
    tokens = _tokens(sql)
    target = ""
    for place, token in enumerate(tokens):
        if token.text == "update" and place + 1 < len(tokens):
            target = tokens[place + 1].text
        if token.text != "set":
            continue
        if tokens[place - 2].text == "as":
            target = tokens[place - 1].text
        part: list[_Token] = []
        for each in _until(tokens[place + 1 :], token.depth, _END_ASSIGNMENTS):
            if each.text == "," and each.depth == token.depth:
                yield _Part(tuple(part), target)
                part = []
            else:
                part.append(each)
        yield _Part(tuple(part), target)


def _until(tokens: list[_Token], depth: int, ends: Collection[str]) -> list[_Token]:
    """What comes before the next of some words at this depth, or before the parenthesis closes."""
    taken: list[_Token] = []
    for token in tokens:
        if token.depth < depth or (token.depth == depth and token.text in ends):
            break
        taken.append(token)
    return taken


def _tokens(sql: str) -> list[_Token]:
    tokens: list[_Token] = []
    depth = 0
    for match in _TOKEN.finditer(sql):
        if match["skipped"]:
            continue
        text = match[0].lower()
        depth -= text == ")"
        tokens.append(_Token(text, match.start(), match.end(), depth))
        depth += text == "("
    return tokens
