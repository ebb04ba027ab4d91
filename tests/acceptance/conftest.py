"""What the full-size proofs share; their figures are told at the end of the run."""

from collections.abc import Callable

import pytest

from tests.system.fixtures import kind, new_cluster, one_node, pytest_runtest_makereport

__all__ = ["kind", "new_cluster", "one_node", "pytest_runtest_makereport"]

_MEASURED = pytest.StashKey[list[str]]()

Tell = Callable[[object], None]


@pytest.fixture
def tell(request: pytest.FixtureRequest) -> Tell:
    """How to add a figure to the summary."""
    measured = request.config.stash.setdefault(_MEASURED, [])
    return lambda figure: measured.append(f"{request.node.name}: {figure}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what was measured."""
    measured = terminalreporter.config.stash.get(_MEASURED, [])
    if measured:
        terminalreporter.section("measured")
        for line in measured:
            terminalreporter.write_line(line)
