"""What the source keeps away from: nothing that was sent, stored or returned becomes code when it is read."""

import ast
from collections.abc import Iterator

import pytest

from tests.docs.pages import ROOT

SOURCE = ROOT / "src" / "horae"
MODULES = sorted(SOURCE.rglob("*.py"))
LOADERS = frozenset({"pickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "jsonpickle", "yaml"})
EVALUATORS = frozenset({"eval", "exec", "compile", "__import__"})
HOOKS = frozenset({"__reduce__", "__reduce_ex__", "__setstate__", "__getstate__"})
TEMPLATES = frozenset({"format", "format_map", "jinja2", "mako"})  # which let a text read attributes

ALLOWED = {("tasks/binding.py", "eval")}  # of annotations in the user's own source, as typing.get_type_hints does


def _found(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (name.name.partition(".")[0] for name in names)
            case ast.ImportFrom(module=str(module), level=0):
                yield module.partition(".")[0]
            case ast.Name(id=name) | ast.FunctionDef(name=name):
                yield name
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner == "builtins" or name in TEMPLATES:
                yield name


def _dangerous(text: str) -> set[str]:
    return set(_found(ast.parse(text))) & (LOADERS | EVALUATORS | HOOKS | TEMPLATES)


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from pickle import loads as parse",
        "import os, marshal",
        "from yaml import load",
        "import yaml.constructor",
        "def f(text): return eval(text)",
        "run = exec",
        "import builtins; builtins.eval('1')",
        "class A:\n    def __reduce__(self): ...",
        "f = __import__('pickle')",
        "text.format(run)",
    ],
)
def test_what_would_make_code_of_values_is_recognized(text: str) -> None:
    assert _dangerous(text)


def test_nothing_in_the_source_unpickles_or_evaluates() -> None:
    assert len(MODULES) > 200, "the source is not where it was"
    found = {(str(path.relative_to(SOURCE)), name) for path in MODULES for name in _dangerous(path.read_text("utf-8"))}
    assert found == ALLOWED
