"""The tests that a file has, by their names: for pages and lists that name them."""

import ast
from functools import cache
from pathlib import Path


@cache
def names_of_tests(path: Path) -> frozenset[str]:
    """The names of the tests in a file, those of its classes among them; none when there is no such file."""
    if not path.exists():
        return frozenset()
    tree = ast.parse(path.read_text("utf-8"))
    bodies = [tree.body, *(node.body for node in tree.body if isinstance(node, ast.ClassDef))]
    functions = [node for body in bodies for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return frozenset(function.name for function in functions if function.name.startswith("test_"))
