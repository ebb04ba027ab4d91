"""Line 6: everything down for 5 minutes and for 2 hours, in virtual time.

On PostgreSQL `make acceptance` runs the tests of the engine themselves; here they are once more on SQLite.
"""

import pytest

from tests.engine import conftest
from tests.engine.test_engine import TestDowntime as Downtime

system = conftest.system


@pytest.mark.acceptance
@pytest.mark.parametrize("system", ["sqlite"], indirect=True)
class TestDowntimeOnSqlite(Downtime):
    """The same, as part of the proofs."""


del Downtime  # so that it is not collected here as well
