"""The documentation matches the code: generated parts, tests and modules that pages name, metrics in alert rules."""

import importlib.util
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from prometheus_client.core import Metric

from horae.metrics import Metrics
from tests.docs.pages import PAGES, ROOT, blocks_of, name_of
from tests.named import names_of_tests

NAMED_TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(test_\w+))?`")
FAULT = re.compile(r"^\| (\d+) \| [^|]+ \| ([^|]+) \|$", re.MULTILINE)
SHOWN_BY = re.compile(r"^\| (\d+) \| (`tests/[^|]+`) \|$", re.MULTILINE)
LOG_EVENT = re.compile(r'(?<!run\.)\blog\.(?:info|warning|error|critical|exception)\(\s*"(\w+)"')
NAMED_MODULE = re.compile(r"`((?:\w+/)+[\w*]+\.(?:py|sql))`")
PROMISE = re.compile(r"^### (\d+)\. ", re.MULTILINE)
FAULTS = 78
NOT_OURS = {"up", "le", "job", "queue", "verb", "status", "instance", "by", "sum", "max", "rate", "abs"} | {
    "histogram_quantile",
    "key",
    "role",
    "time",
}
SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_count", "_sum")}


def _reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_reference", ROOT / "docs/make_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


REFERENCE = _reference()


@pytest.mark.parametrize("page", REFERENCE.pages(), ids=name_of)
def test_the_reference_is_what_the_code_says(page: Path) -> None:
    text = page.read_text("utf-8")
    assert text == REFERENCE.filled(text), "run `python docs/make_reference.py`"


def test_rest_the_command_line_and_sizing_are_generated() -> None:
    assert {page.name for page in REFERENCE.pages()} == {"rest.md", "cli.md", "sizing.md"}


@pytest.mark.parametrize(
    "page",
    [
        "docs/internals/guarantees.md",
        "docs/internals/acceptance.md",
        "docs/internals/faults.md",
        "docs/internals/checking.md",
    ],
)
def test_every_test_that_is_named_exists(page: str) -> None:
    named = NAMED_TEST.findall((ROOT / page).read_text("utf-8"))
    assert named
    missing = [(path, test) for path, test in named if not _exists(path, test)]
    assert missing == []


def test_every_fault_has_its_tests_or_says_why_not() -> None:
    page = (ROOT / "docs/internals/faults.md").read_text("utf-8")
    faults = FAULT.findall(page)
    assert [int(number) for number, _ in faults] == list(range(1, FAULTS + 1))
    shown = {number for number, _ in SHOWN_BY.findall(page)}
    bare = [number for number, what in faults if number not in shown and not _is_explained(what)]
    assert bare == []


def _is_explained(what: str) -> bool:
    return what.startswith("not applicable") or "*missing*" in what


def _exists(path: str, test: str) -> bool:
    return (ROOT / path).exists() and (not test or test in names_of_tests(ROOT / path))


@pytest.mark.parametrize("page", [page for page in PAGES if NAMED_MODULE.search(page.read_text("utf-8"))], ids=name_of)
def test_every_module_that_is_named_exists(page: Path) -> None:
    named = NAMED_MODULE.findall(page.read_text("utf-8"))
    assert [path for path in named if not any([*ROOT.glob(path), *ROOT.glob(f"src/horae/{path}")])] == []


def test_the_drawing_of_the_layers_is_the_import_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    [layers] = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    [drawn] = [block.text for block in blocks_of(ROOT / "docs/internals/architecture.md") if not block.language]
    assert drawn.splitlines() == layers


def test_every_package_is_in_the_table_of_rooms() -> None:
    rooms = (ROOT / "docs/internals/architecture.md").read_text("utf-8").partition("## What may import what")[0]
    places = [place for place in (ROOT / "src/horae").iterdir() if not place.name.startswith("__")]
    names = [place.stem for place in places if place.suffix == ".py"]
    names += [f"{place.name}/" for place in places if place.is_dir()]
    assert [name for name in sorted(names) if f"`{name}`" not in rooms] == []


def _metrics() -> list[Metric]:
    metrics = Metrics()
    assert metrics.tickets, "those of a queue are there once they are used"
    return list(metrics.registry.collect())


def test_every_metric_is_documented() -> None:
    page = (ROOT / "docs/reference/metrics.md").read_text("utf-8")
    names = [f"{family.name}{SUFFIXES[family.type][0].removesuffix('_bucket')}" for family in _metrics()]
    assert [name for name in names if f"`{name}" not in page] == []


def test_every_log_event_is_documented() -> None:
    """And no other; the log of a run (`run.log`) is the user's."""
    sources = (path.read_text("utf-8") for path in (ROOT / "src/horae").rglob("*.py"))
    logged = {event for source in sources for event in LOG_EVENT.findall(source)}
    rows = re.findall(r"^\| (`[^|]+) \|", (ROOT / "docs/reference/logs.md").read_text("utf-8"), re.MULTILINE)
    assert sorted(event for row in rows for event in re.findall(r"`(\w+)`", row)) == sorted(logged)


def test_every_promise_names_a_test() -> None:
    page = (ROOT / "docs/internals/guarantees.md").read_text("utf-8")
    promises = PROMISE.findall(page)
    assert promises
    assert list(dict.fromkeys(number for number, _ in SHOWN_BY.findall(page))) == promises


def test_alert_rules_speak_of_metrics_that_there_are() -> None:
    [rules] = [group["rules"] for group in yaml.safe_load(_block("alerts.yml"))["groups"]]
    known = {f"{family.name}{suffix}" for family in _metrics() for suffix in SUFFIXES[family.type]}
    for rule in rules:
        assert rule.keys() == {"alert", "expr", "for", "labels", "annotations"}, rule["alert"]
        assert rule["annotations"].keys() == {"summary", "action"}
        assert _balanced(rule["expr"]), rule["expr"]
        words = set(re.findall(r"[a-zA-Z_]\w*", re.sub(r'"[^"]*"|\[\w+\]', "", rule["expr"])))
        assert words - NOT_OURS <= known, (rule["alert"], words - NOT_OURS - known)


def test_every_figure_that_matters_has_an_alert() -> None:
    rules = _block("alerts.yml")
    watched = ("lateness_seconds", "planner_lag_seconds", "dead_letters", "runs_total", "clock_offset_seconds")
    assert [name for name in watched if f"horae_{name}" not in rules] == []


def _block(name: str) -> str:
    [text] = [block.text for block in blocks_of(ROOT / "docs/operations/monitoring.md") if block.note == name]
    return text


def _balanced(expression: str) -> bool:
    depth = 0
    for character in re.sub(r'"[^"]*"', "", expression):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth < 0:
            return False
    return depth == 0
