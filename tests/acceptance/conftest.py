"""Fixtures of the acceptance tests, which print their figures at the end."""

from collections.abc import Callable

import pytest

from tests.system.fixtures import kind, new_cluster, one_node, pytest_runtest_makereport

__all__ = ["kind", "new_cluster", "one_node", "pytest_runtest_makereport"]

_MEASURED = pytest.StashKey[list[str]]()

ReportFigure = Callable[[object], None]


@pytest.fixture
def report_figure(request: pytest.FixtureRequest) -> ReportFigure:
    """A function that adds a figure to the summary."""
    measured = request.config.stash.setdefault(_MEASURED, [])
    return lambda figure: measured.append(f"{request.node.name}: {figure}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the figures."""
    measured = terminalreporter.config.stash.get(_MEASURED, [])
    if measured:
        terminalreporter.section("measured")
        for line in measured:
            terminalreporter.write_line(line)
