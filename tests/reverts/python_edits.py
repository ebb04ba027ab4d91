"""Takes a safety line out of a named Python function, whatever its layout.

The line is recognised by what it is (the test of an `if`, a call, a keyword argument) and by the names in it.
"""

import ast
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tests.reverts.sql_edits import AnchorError

Finder = Callable[[ast.AST], Iterator[ast.expr]]


@dataclass(frozen=True, slots=True)
class PythonEdit:
    """Replaces the one expression in a function that a finder finds."""

    find: Finder
    instead: str  # Python; `{}` stands for the expression as it is
    what: str  # for messages

    def __call__(self, source: str, function: str) -> str:
        node = self.place(source, function)
        lines = source.splitlines(keepends=True)
        before = "".join(lines[: node.lineno - 1]) + _cut(lines[node.lineno - 1], node.col_offset)[0]
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        after = _cut(lines[node.end_lineno - 1], node.end_col_offset)[1] + "".join(lines[node.end_lineno :])
        return before + self.instead.format(ast.get_source_segment(source, node)) + after

    def place(self, source: str, function: str) -> ast.expr:
        """The expression that is replaced."""
        found = list(self.find(_function(source, function)))
        if len(found) != 1:
            raise AnchorError(f"{function}: one {self.what} was expected, and there are {len(found)}")
        return found[0]


@dataclass(frozen=True, slots=True)
class Function:
    """A function by its module and its name there, and how it is changed."""

    module: str
    name: str
    edit: PythonEdit

    @property
    def place(self) -> str:
        return f"{self.module}.{self.name}, line {self.edit.place(self.text(), self.name).lineno}"

    def text(self) -> str:
        """The source of the whole module."""
        return _path_of(self.module).read_text("utf-8")

    def edited(self) -> str:
        return self.edit(self.text(), self.name)

    def apply(self, source: Path) -> None:
        """Change the function in a copy of the product's source."""
        file = source / _path_of(self.module).relative_to(_path_of("horae").parents[1])
        file.write_text(self.edited(), "utf-8")


# --- edits


def ignore_if(*mentions: str) -> PythonEdit:
    """Never enter the one `if` whose condition contains these names."""

    def find(function: ast.AST) -> Iterator[ast.expr]:
        tests = [node.test for node in ast.walk(function) if isinstance(node, ast.If)]
        return (test for test in tests if _names(test).issuperset(mentions))

    return PythonEdit(find, "({}) and False", f"`if` with {' '.join(mentions)}")


def replace_call(called: str, *mentions: str, by: str) -> PythonEdit:
    """Replace the one call of a function that contains these names, with its `await` if it has one."""

    def find(function: ast.AST) -> Iterator[ast.expr]:
        awaited = {node.value: node for node in ast.walk(function) if isinstance(node, ast.Await)}
        for node in _calls(function, called):
            if _names(node).issuperset(mentions):
                yield awaited.get(node, node)

    return PythonEdit(find, by, f"call of {called} with {' '.join(mentions)}")


def replace_argument(called: str, keyword: str, *, beside: Collection[str], by: str) -> PythonEdit:
    """Replace a keyword argument of the one call of a function that has certain others as well."""

    def find(function: ast.AST) -> Iterator[ast.expr]:
        for node in _calls(function, called):
            given = {each.arg: each.value for each in node.keywords}
            if keyword in given and given.keys() >= set(beside):
                yield given[keyword]

    return PythonEdit(find, by, f"call of {called} with {keyword}=")


# --- finding


def _path_of(module: str) -> Path:
    """The source file of a module of the product."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise AnchorError(f"there is no module {module}")
    return Path(spec.origin)


def _function(source: str, name: str) -> ast.AST:
    """The one function whose qualified name is this, or ends in it: then its class may be renamed."""
    found = [node for qualified, node in _functions(ast.parse(source)) if f".{qualified}".endswith(f".{name}")]
    if len(found) != 1:
        raise AnchorError(f"one function {name} was expected, and there are {len(found)}")
    return found[0]


def _functions(scope: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.AST]]:
    for node in ast.iter_child_nodes(scope):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if not isinstance(node, ast.ClassDef):
                yield prefix + node.name, node
            yield from _functions(node, f"{prefix}{node.name}.")


def _calls(function: ast.AST, called: str) -> Iterator[ast.Call]:
    for node in ast.walk(function):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)
            if name == called:
                yield node


def _names(node: ast.AST) -> set[str]:
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return names | {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}


def _cut(line: str, offset: int) -> tuple[str, str]:
    """A line before and after an offset in bytes of UTF-8, in which `ast` counts."""
    encoded = line.encode()
    return encoded[:offset].decode(), encoded[offset:].decode()
