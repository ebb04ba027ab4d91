"""The arithmetic of a benchmark: percentiles, and what counts as lost, duplicated and early."""

import random
from dataclasses import dataclass

import pytest

from horae.proof.bench.figures import LatenessHistogram, bystander_figures, minute_figures, tally

DUE_US = 1_700_000_000_000_000
SECOND_US = 1_000_000


@dataclass
class Promised:
    """Jobs due one every `apart_us`; numbers from a million on are not measured."""

    submitted: int
    apart_us: int = SECOND_US

    def place(self, number: int) -> int | None:
        return None if number >= 1_000_000 else number

    def due_us(self, place: int) -> int:
        return DUE_US + place * self.apart_us


def starts(*late_us: int, apart_us: int = SECOND_US) -> list[tuple[int, int]]:
    """The records of jobs that started so late, in the order of their numbers."""
    return [(number, (DUE_US + number * apart_us + late) * 1000) for number, late in enumerate(late_us)]


def test_percentiles_are_the_smallest_value_that_so_many_do_not_exceed() -> None:
    lateness = LatenessHistogram()
    for late_us in random.sample(range(1, 101), 100):
        lateness.add(late_us)
    assert lateness.figures() == {"p50": 0.05, "p95": 0.095, "p99": 0.099, "max": 0.1}


def test_one_start_is_every_percentile() -> None:
    lateness = LatenessHistogram()
    lateness.add(1_234_567)
    assert lateness.figures() == {"p50": 1240.0, "p95": 1240.0, "p99": 1240.0, "max": 1234.567}


def test_nothing_has_no_figures() -> None:
    assert LatenessHistogram().figures() == {"p50": None, "p95": None, "p99": None, "max": None}


def test_a_million_starts_take_a_few_thousand_counters_and_three_digits() -> None:
    lateness, chance = LatenessHistogram(), random.Random(4)
    exact = sorted(int(chance.lognormvariate(8, 2)) for _ in range(200_000))
    for late_us in exact:
        lateness.add(late_us)
    assert len(lateness._counts) < 10_000
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        assert lateness.figures()[name] == pytest.approx(exact[int(share * len(exact)) - 1] / 1000, rel=0.01)


def test_rounding_never_flatters() -> None:
    lateness = LatenessHistogram()
    lateness.add(123_401)
    assert lateness.figures()["p50"] == 124.0


def test_starts_on_time_are_complete_and_nothing_else() -> None:
    told = tally(starts(100, 200, 300), Promised(3))
    assert (told.completed, told.duplicated, told.early) == (3, 0, 0)
    assert told.lateness.figures()["max"] == 0.3


def test_a_job_without_a_record_is_missing() -> None:
    told = tally(starts(100, 200), Promised(3))
    assert told.completed == 2
    assert list(told.started) == [1, 1, 0]


def test_a_second_start_is_a_duplicate_and_does_not_hide_a_loss() -> None:
    twice = [*starts(100, 200), *starts(5_000)]
    told = tally(twice, Promised(3))
    assert (told.completed, told.duplicated) == (2, 1)
    assert told.lateness.figures()["max"] == 0.2  # of first starts


def test_early_is_more_than_a_millisecond_before_its_time() -> None:
    assert tally(starts(-1_000, -1_001, 0), Promised(3)).early == 1


def test_the_clock_of_a_store_elsewhere_decides() -> None:
    told = tally(starts(2_000), Promised(1), ahead_us=-5_000)
    assert (told.early, told.lateness.figures()["max"]) == (1, -3.0)


def test_a_start_of_the_backlog_is_early() -> None:
    assert tally([*starts(0), (7, DUE_US * 1000)], Promised(1)).early == 1


def test_what_lies_outside_of_the_time_is_not_measured() -> None:
    told = tally([*starts(0), (1_000_000, 0)], Promised(1))
    assert (told.completed, told.early, told.duplicated) == (1, 0, 0)


def test_every_minute_has_the_figures_of_what_started_in_it() -> None:
    late_us = [1_000] * 59 + [2 * SECOND_US] + [1_000] * 59 + [70 * SECOND_US]
    told = tally(starts(*late_us), Promised(120), minutes=2)
    assert minute_figures(told.minutes) == [
        {"minute": 1, "completed": 59, "p50": 1.0, "p99": 1.0, "max": 1.0},
        {"minute": 2, "completed": 60, "p50": 1.0, "p99": 2000.0, "max": 2000.0},
    ]
    assert told.completed == 120


def test_bystanders_are_told_apart_while_the_herd_runs() -> None:
    """Two jobs of a herd, the last of which starts after 2.5 s; then bystanders due every second."""
    late_us = [0, 1_500_000, 10_000, 20_000, 30_000]
    told = tally(starts(*late_us), Promised(5), bystanders_from=2)
    assert told.lateness.figures()["max"] == 1500.0
    assert len(told.bystanders) == 3
    assert bystander_figures(told)["max"] == 10.0  # the one due at 2 s; those at 3 and 4 s came after the herd
