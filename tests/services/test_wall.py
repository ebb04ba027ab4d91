"""A wall clock that is wrong changes nothing, and is reported."""

from datetime import timedelta

from structlog.testing import capture_logs

from horae.clock import ManualClock
from horae.services.wall import WallWatch
from tests.services.system import START


def test_a_wrong_wall_clock_is_told_once_and_again_when_it_changes() -> None:
    clock, error = ManualClock(START), 0.0
    watch = WallWatch(clock, wall=lambda: clock.now().timestamp() + error)
    with capture_logs() as lines:
        for error in (0.0, 0.5, 3600.0, 3600.2, 3599.5, -3600.0, -3600.1, 0.2, 0.0):
            assert abs(watch.look() - timedelta(seconds=error)) < timedelta(milliseconds=1)
            clock.advance(seconds=3)
    assert [(line["event"], line.get("ahead_seconds")) for line in lines] == [
        ("wall_clock_wrong", 3600.0),
        ("wall_clock_wrong", -3600.0),
        ("wall_clock_right_again", None),
    ]
