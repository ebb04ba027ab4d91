"""Line 6: all nodes down for 5 minutes and for 2 hours, in virtual time.

On PostgreSQL `make acceptance` runs the engine tests themselves; here they run once more on SQLite.
"""

import pytest

from tests.engine import conftest
from tests.engine.test_engine import TestDowntime as Downtime

system = conftest.system


@pytest.mark.acceptance
@pytest.mark.parametrize("system", ["sqlite"], indirect=True)
class TestDowntimeOnSqlite(Downtime):
    """The tests of downtime on SQLite."""


del Downtime  # so that it is not collected here as well
