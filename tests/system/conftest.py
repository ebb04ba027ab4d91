"""Fixtures of the tests with real processes."""

from tests.system.fixtures import kind, new_cluster, one_node, pytest_runtest_makereport

__all__ = ["kind", "new_cluster", "one_node", "pytest_runtest_makereport"]
