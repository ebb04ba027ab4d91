"""The fixture in a project of its own."""

import pytest

pytest_plugins = ["pytester"]

TASKS = """
from horae import Horae

app = Horae()
sent = []

@app.task
async def remind(to: str) -> None:
    sent.append(to)
"""

TESTS = """
import pytest
from horae.testing import system
from tasks import app, remind, sent

def test_a_reminder_comes_a_day_later(system):
    system.use(app)
    remind.using(delay=86400).submit_sync(to="a@example.com")
    system.advance(hours=25)
    assert sent == ["a@example.com"]
    assert [run.status for run in system.runs()] == ["succeeded"]

class TestWithAnApplicationOfTheProject:
    @pytest.fixture
    def horae_app(self):
        return app

    def test_it_is_used(self, system):
        remind.submit_sync(to="b@example.com")
        system.settle()
        assert sent[-1] == "b@example.com"

def test_without_an_application_it_says_what_to_do(system):
    with pytest.raises(RuntimeError, match="horae_app"):
        system.settle()
"""


def test_the_fixture_is_there_where_it_is_imported(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(tasks=TASKS)
    pytester.makepyfile(test_reminders=TESTS)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-p", "no:schemathesis")
    result.assert_outcomes(passed=3)
