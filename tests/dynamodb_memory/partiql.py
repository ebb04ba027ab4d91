"""Compiles PartiQL statements: SELECT, INSERT, UPDATE and DELETE, as DynamoDB knows them."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from tests.dynamodb_memory.grammar import Operand, Parser, Test
from tests.dynamodb_memory.updates import Assignments, Path, Update, read_sets
from tests.dynamodb_memory.values import Item, refused


class Statement:
    """A compiled statement."""

    def __init__(self, verb: str, table: str) -> None:
        self.verb = verb
        self.table = table
        self.index: str | None = None
        self.paths: Sequence[Path] | None = None  # of a SELECT; None is everything
        self.entries: list[tuple[str, Operand]] = []  # of an INSERT
        self.whole: Operand | None = None  # the item of an INSERT that is one parameter
        self.assignments: Assignments | None = None
        self.test: Test | None = None
        self.pinned: dict[str, Operand] = {}
        self.ranges: list[tuple[str, str, Sequence[Operand]]] = []
        self.returning = ""

    def item(self, parameters: Sequence[Any]) -> Item:
        """The item that an INSERT writes."""
        nothing: Item = {}
        item = {}
        for name, operand in self.entries:
            if (value := operand(nothing, parameters)) is not None:
                item[name] = value
        return item


@lru_cache(4096)
def compile_statement(text: str) -> Statement:
    """Compile a statement; its parameters are in the order of the question marks."""
    parser = Parser(text)
    verb = parser.next().upper()
    match verb:
        case "SELECT":
            statement = _select(parser)
        case "INSERT":
            statement = _insert(parser)
        case "UPDATE":
            statement = _update(parser)
        case "DELETE":
            parser.expect("FROM")
            statement = Statement(verb, parser.name())
            _where(parser, statement)
        case _:
            raise refused(f"Statement wasn't well formed, can't be processed: {text!r}")
    if parser.word("RETURNING"):
        statement.returning = " ".join(parser.next().upper() for _ in range(3))
    parser.end()
    return statement


def _select(parser: Parser) -> Statement:
    paths: list[Path] | None = None
    if not parser.word("*"):
        paths = [parser.path()]
        while parser.word(","):
            paths.append(parser.path())
    parser.expect("FROM")
    statement = Statement("SELECT", parser.name())
    statement.paths = paths
    if parser.word("."):
        statement.index = parser.name()
    if parser.peek().upper() == "WHERE":
        _where(parser, statement)
    return statement


def _insert(parser: Parser) -> Statement:
    parser.expect("INTO")
    statement = Statement("INSERT", parser.name())
    parser.expect("VALUE")
    parser.expect("{")
    while not parser.word("}"):
        name = parser.next().strip("'\"")
        parser.expect(":")
        statement.entries.append((name, parser.operand()))
        if not parser.word(","):
            parser.expect("}")
            break
    return statement


def _update(parser: Parser) -> Statement:
    statement, update = Statement("UPDATE", parser.name()), Update()
    while True:
        if parser.word("SET"):
            read_sets(parser, update)
        elif parser.word("REMOVE"):
            update.removes.append(parser.path())
            while parser.word(","):
                update.removes.append(parser.path())
        else:
            break
    statement.assignments = update.compiled()
    _where(parser, statement)
    return statement


def _where(parser: Parser, statement: Statement) -> None:
    parser.expect("WHERE")
    statement.test = parser.condition()
    statement.pinned = parser.pinned
    statement.ranges = parser.ranges
