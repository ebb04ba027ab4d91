"""Long tests come first: a run then ends with quick ones, which all workers can share."""

import pytest

LONG = (
    "examples/",
    "tests/system/",
    "tests/simulation/",
    "tests/proof/bench/test_bench.py",
    "tests/docs/",
    "tests/test_docs.py",
    "tests/cli/",
    "tests/api/test_schemathesis.py",
    "tests/sdk/",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))
