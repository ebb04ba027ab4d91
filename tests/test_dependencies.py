"""What Horae is built from: declared where it is used, pinned where it is tested, and nothing else."""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from importlib.metadata import distribution, packages_distributions

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.docs.pages import ROOT

PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[A-Za-z0-9.+!]+)$")
SOURCE = ROOT / "src" / "horae"
EXTRAS = frozenset({"all", "postgres", "redis", "aws", "django", "dev"})
BROUGHT = {  # by whoever uses that part of Horae, and only imported there
    "pytest": {"testing/fixtures.py"},
    "sqlalchemy": {"sdk/transactions.py"},
    "django_tasks": {"django/task_api.py"},
    "cronsim": {"proof/checking/history/reference.py"},
}


def _lines() -> list[str]:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    return [line for line in lines if line.strip() and not line.startswith("#")]


def _pins() -> dict[str, str]:
    return {canonicalize_name(found["name"]): found["version"] for line in _lines() if (found := PIN.match(line))}


def _requirements(name: str, extras: frozenset[str]) -> Iterator[Requirement]:
    for text in distribution(name).requires or []:
        requirement = Requirement(text)
        wanted = [{"extra": extra} for extra in (*sorted(extras), "")]
        if requirement.marker is None or any(requirement.marker.evaluate(each) for each in wanted):
            yield requirement


def _closure() -> list[Requirement]:
    """Everything that an installation for tests is asked to have, at any depth."""
    asked: list[Requirement] = []
    open_, seen = [("horae", EXTRAS)], set()
    while open_:
        entry = open_.pop()
        if entry in seen:
            continue
        seen.add(entry)
        for requirement in _requirements(*entry):
            asked.append(requirement)
            open_.append((canonicalize_name(requirement.name), frozenset(requirement.extras)))
    return [requirement for requirement in asked if canonicalize_name(requirement.name) != "horae"]


def test_a_constraint_is_one_exact_version_and_nothing_else() -> None:
    assert [line for line in _lines() if PIN.match(line) is None] == []
    assert len(_pins()) == len(_lines()), "something is pinned twice"


def test_everything_that_is_installed_is_pinned_and_has_the_pinned_version() -> None:
    pins = _pins()
    needed = {canonicalize_name(requirement.name) for requirement in _closure()}
    assert len(needed) > 40
    assert sorted(needed - pins.keys()) == []
    installed = {name: distribution(name).version for name in sorted(needed)}
    assert {name: version for name, version in installed.items() if Version(version) != Version(pins[name])} == {}


def test_the_pinned_versions_fit_together() -> None:
    wrong = [
        f"{requirement}, and {distribution(requirement.name).version} is there"
        for requirement in _closure()
        if not requirement.specifier.contains(distribution(requirement.name).version, prereleases=True)
    ]
    assert wrong == []


def test_nothing_is_imported_that_is_not_declared() -> None:
    declared = {
        canonicalize_name(requirement.name)
        for requirement in _requirements("horae", frozenset({"postgres", "redis", "aws", "django"}))
    }
    homes = packages_distributions()
    imported: defaultdict[str, set[str]] = defaultdict(set)
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            for module in _modules(node):
                imported[module].add(str(path.relative_to(SOURCE)))
    undeclared = {
        module: places
        for module, places in imported.items()
        if module not in sys.stdlib_module_names
        and module != "horae"
        and not declared & {canonicalize_name(name) for name in homes.get(module, [])}
    }
    assert "msgspec" in imported
    assert undeclared == BROUGHT


def _modules(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            yield from (name.name.partition(".")[0] for name in names)
        case ast.ImportFrom(module=str(module), level=0):
            yield module.partition(".")[0]
