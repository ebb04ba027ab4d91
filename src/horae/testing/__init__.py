"""Virtual time for tests: runs an application on the real engine, where an hour passes at once.

from horae.testing import system        # in conftest.py, or beside the tests

def test_a_reminder_is_sent_a_day_later(system):
    system.use(app)
    remind.using(delay=86400).submit_sync(to="a@example.com")
    system.advance(hours=25)
    assert [run.status for run in system.runs()] == ["succeeded"]
"""

from horae.testing.fixtures import system
from horae.testing.views import AttemptView, JobView, RunView
from horae.testing.virtual_system import START, System
from horae.testing.virtual_time import StandStill

__all__ = ["START", "AttemptView", "JobView", "RunView", "StandStill", "System", "system"]
