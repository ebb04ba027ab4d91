"""What the source keeps to: its shape, one meaning per class name, and that no value ever becomes code."""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

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


def _dangerous(tree: ast.AST) -> set[str]:
    return set(_found(tree)) & (LOADERS | EVALUATORS | HOOKS | TEMPLATES)


@cache
def _tree(path: Path) -> ast.Module:
    """A module of the source, which takes longer to parse than to look through."""
    return ast.parse(path.read_text("utf-8"))


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
    assert _dangerous(ast.parse(text))


def test_nothing_in_the_source_unpickles_or_evaluates() -> None:
    assert len(MODULES) > 200, "the source is not where it was"
    found = {(str(path.relative_to(SOURCE)), name) for path in MODULES for name in _dangerous(_tree(path))}
    assert found == ALLOWED


# --- shape: a stranger finds a file by its name and reads it in one go. Where the code reads better against a rule, the
# exception is named here with its reason; one that is no longer needed fails, too.

MODULES_IN_A_FOLDER, LINES_IN_A_MODULE, LINES_IN_A_FUNCTION = 16, 400, 50

LARGE_FOLDERS: Mapping[str, str] = {}
LONG_MODULES: Mapping[str, str] = {}
LONG_FUNCTIONS: Mapping[str, str] = {}
MIRRORS = {  # these show the things of the API under the names of the API
    "client/models.py",
    "client/errors.py",
    "testing/views.py",
}
SHARED_NAMES = {
    "Database": "the connections of one SQL store; neither adapter knows the other's",
    "Queue": "settings of a queue are public as `horae.Queue`; the port is what holds tickets",
    "Run": "what handlers get is public as `horae.Run`; the core has the run itself",
}


def _place(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def _folders() -> Mapping[str, int]:
    """The modules in each folder, without its `__init__.py`."""
    counts: defaultdict[str, int] = defaultdict(int)
    for path in MODULES:
        counts[_place(path.parent)] += path.name != "__init__.py"
    return counts


def _modules() -> Mapping[str, int]:
    """The lines of each module."""
    return {_place(path): len(path.read_text("utf-8").splitlines()) for path in MODULES}


def _functions() -> Mapping[str, int]:
    """The lines of the longest function of each name in a module, with its signature and docstring."""
    sizes: defaultdict[str, int] = defaultdict(int)
    for path in MODULES:
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                name = f"{_place(path)}: {node.name}"
                sizes[name] = max(sizes[name], (node.end_lineno or node.lineno) - node.lineno + 1)
    return sizes


def _public_classes() -> Mapping[str, int]:
    """The modules that define a class of each public name."""
    homes: defaultdict[str, set[str]] = defaultdict(set)
    for path in MODULES:
        if _place(path) not in MIRRORS:
            for node in _tree(path).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    homes[node.name].add(_place(path))
    return {name: len(places) for name, places in homes.items()}


def _above(sizes: Mapping[str, int], limit: int) -> set[str]:
    """What is larger than allowed."""
    return {name for name, size in sizes.items() if size > limit}


def test_a_folder_holds_no_more_modules_than_one_sees_at_a_glance() -> None:
    assert _above(_folders(), MODULES_IN_A_FOLDER) == LARGE_FOLDERS.keys()


def test_a_module_is_read_in_one_go() -> None:
    assert _above(_modules(), LINES_IN_A_MODULE) == LONG_MODULES.keys()


def test_a_function_fits_on_a_screen() -> None:
    assert _above(_functions(), LINES_IN_A_FUNCTION) == LONG_FUNCTIONS.keys()


def test_a_public_class_name_has_one_meaning() -> None:
    assert _above(_public_classes(), 1) == SHARED_NAMES.keys()
