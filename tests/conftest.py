"""Long tests come first, in every worker: a run then ends with quick ones, which all workers can share."""

import os

import pytest

LONG = (  # of one worker each, where there are so many: those of a line run one after another
    ("tests/system/",),
    ("examples/", "tests/docs/", "tests/test_docs.py", "tests/simulation/"),
    ("tests/cli/", "tests/proof/bench/test_bench.py", "tests/api/test_schemathesis.py", "tests/sdk/"),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    long: list[list[pytest.Item]] = [[] for _ in range(workers)]
    quick: list[pytest.Item] = []
    for item in items:
        line = next((place for place, begins in enumerate(LONG) if item.nodeid.startswith(begins)), None)
        (quick if line is None else long[line % workers]).append(item)
    items[:] = _dealt(long, quick)


def _dealt(long: list[list[pytest.Item]], quick: list[pytest.Item]) -> list[pytest.Item]:
    """Return all tests so that each worker begins with its long ones: the scheduler gives it an equal part of the list.

    Whoever is done first takes over the end of another's part.
    """
    dealt: list[pytest.Item] = []
    left = len(quick) + sum(map(len, long))
    for place, first in enumerate(long):
        size = left // (len(long) - place)
        room = max(size - len(first), 0)
        dealt += [*first, *quick[:room]]
        del quick[:room]
        left -= size
    return [*dealt, *quick]
