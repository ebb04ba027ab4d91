"""How many runs a worker holds: as many as it can start, by the duration of recent attempts."""

from horae.engine.worker.capacity import ASSUMED_SECONDS, MOST_HELD, Capacity


def taught(seconds: float) -> Capacity:
    capacity = Capacity()
    for _ in range(200):
        capacity.learn(seconds)
    return capacity


def test_a_new_worker_assumes_short_attempts() -> None:
    assert Capacity().startable(free=100, young=0, within=1.0) == 100 / ASSUMED_SECONDS


def test_a_free_slot_serves_one_run_however_long_attempts_take() -> None:
    assert taught(60).startable(free=4, young=0, within=1.0) == 4


def test_a_free_slot_serves_many_short_ones() -> None:
    assert 90 <= taught(0.1).startable(free=10, young=0, within=1.0) <= 100


def test_a_slot_that_has_just_been_taken_serves_those_after_its_run() -> None:
    assert 80 <= taught(0.1).startable(free=0, young=10, within=1.0) <= 90


def test_nothing_is_expected_of_slots_that_are_busy_for_long() -> None:
    assert taught(0.001).startable(free=0, young=0, within=1.0) == 0
    assert taught(60).startable(free=0, young=10, within=1.0) == 0


def test_memory_is_bounded() -> None:
    assert taught(0.0).startable(free=1000, young=0, within=1.0) == MOST_HELD
