"""The lower bound of claims: what is new, what was signalled, and now and then everything."""

from datetime import datetime, timedelta

import pytest

from horae.core.decisions.fairness import Lane
from horae.engine.worker.scan_floor import (
    FLOOR_AGE,
    FULL_SCAN,
    LONGEST_SCAN,
    MAX_LANES_LEFT,
    SCAN_SHARE,
    LeftRuns,
    ScanFloor,
)
from horae.ports.store import Claims
from tests.engine.system import START

LEAD = timedelta(seconds=1)
MOMENT = timedelta(milliseconds=50)
NOTHING_LEFT = Claims()


@pytest.fixture
def floor() -> ScanFloor:
    """Return the floor after a first full scan at START."""
    floor = ScanFloor(LEAD)
    assert floor.send(START) is None
    answer(floor, START)
    return floor


def answer(floor: ScanFloor, now: datetime, claims: Claims = NOTHING_LEFT, *, passed_over: bool = False) -> None:
    floor.answered(claims, now=now, until=now + LEAD, passed_over=passed_over)


def test_after_a_claim_that_left_nothing_only_what_is_new_is_looked_at(floor: ScanFloor) -> None:
    assert floor.send(START + MOMENT) == START + LEAD
    answer(floor, START + MOMENT)
    assert floor.send(START + 2 * MOMENT) == START + MOMENT + LEAD


def test_what_was_told_is_looked_at_from_the_earliest_on_and_once(floor: ScanFloor) -> None:
    for earlier in (3, 9, 6):
        floor.signal(START + LEAD - earlier * MOMENT)
    floor.signal(START + 5 * LEAD)
    assert floor.send(START + MOMENT) == START + LEAD - 9 * MOMENT
    answer(floor, START + MOMENT)
    assert floor.send(START + 2 * MOMENT) == START + MOMENT + LEAD


def test_what_was_told_while_a_claim_was_under_way_counts_for_the_next(floor: ScanFloor) -> None:
    floor.send(START + MOMENT)
    floor.signal(START)
    answer(floor, START + MOMENT)
    assert floor.send(START + 2 * MOMENT) == START


def test_without_a_time_all_is_looked_at_that_may_have_been_committed_lately(floor: ScanFloor) -> None:
    floor.send(START + MOMENT)
    floor.signal(None)
    answer(floor, START + MOMENT)
    assert floor.send(START + 2 * MOMENT) == START - FLOOR_AGE


def test_a_sweep_comes_twice_per_lead_and_leaves_no_gap_to_the_one_before(floor: ScanFloor) -> None:
    swept_at = START
    for number in range(1, 100):
        now = START + number * MOMENT
        begins_at = floor.send(now)
        assert begins_at is not None
        if now - swept_at >= LEAD / 2:
            assert begins_at == swept_at - FLOOR_AGE
            swept_at = now
        else:
            assert begins_at == now - MOMENT + LEAD
        answer(floor, now)
    assert swept_at > START + 4 * LEAD


def test_a_worker_that_claims_seldom_sweeps_each_time_and_is_not_called_for_it(floor: ScanFloor) -> None:
    assert floor.sweep_at is None
    assert floor.send(START + LEAD) == START - FLOOR_AGE
    answer(floor, START + LEAD)
    assert floor.sweep_at is None


def test_after_a_look_at_what_is_new_a_sweep_is_called_for(floor: ScanFloor) -> None:
    floor.send(START + MOMENT)
    answer(floor, START + MOMENT)
    assert floor.sweep_at == START + LEAD


def test_everything_is_looked_at_now_and_then(floor: ScanFloor) -> None:
    assert floor.send(START + FULL_SCAN - MOMENT) is not None
    assert floor.send(START + FULL_SCAN) is None
    assert floor.send(START + FULL_SCAN + MOMENT) is not None


def test_looks_at_everything_that_take_long_take_a_small_part_of_the_time(floor: ScanFloor) -> None:
    now = START + FULL_SCAN
    assert floor.send(now) is None
    floor.answered(NOTHING_LEFT, now=now, until=now + LEAD, passed_over=False, took=timedelta(seconds=2))
    assert floor.send(now + SCAN_SHARE * timedelta(seconds=2) - MOMENT) is not None
    assert floor.send(now + SCAN_SHARE * timedelta(seconds=2)) is None


def test_looks_at_everything_that_are_not_answered_come_more_and_more_seldom(floor: ScanFloor) -> None:
    looks = [at for seconds in range(1, 300) if floor.send(at := START + timedelta(seconds=seconds)) is None]
    assert [(at - START).total_seconds() for at in looks] == [10, 30, 70, 130, 190, 250]
    now = looks[-1] + LONGEST_SCAN
    assert floor.send(now) is None
    answer(floor, now)
    assert floor.send(now + FULL_SCAN) is None, "as soon as one is answered they come as usual"


def test_what_was_passed_over_is_looked_at_again(floor: ScanFloor) -> None:
    floor.send(START + MOMENT)
    answer(floor, START + MOMENT, passed_over=True)
    assert floor.send(START + 2 * MOMENT) == START - FLOOR_AGE
    answer(floor, START + 2 * MOMENT)
    assert floor.send(START + 3 * MOMENT) == START + 2 * MOMENT + LEAD


def test_what_comes_next_in_a_gate_is_where_the_next_look_begins(floor: ScanFloor) -> None:
    floor.send(START + MOMENT)
    answer(floor, START + MOMENT, Claims(lined_up_at=START + 3 * MOMENT))
    assert floor.send(START + 2 * MOMENT) == START + 3 * MOMENT
    answer(floor, START + 2 * MOMENT)
    assert floor.send(START + 3 * MOMENT) == START + 2 * MOMENT + LEAD


def test_what_comes_next_in_a_gate_stays_above_the_floor_of_sweeps(floor: ScanFloor) -> None:
    woke_at = START - 60 * LEAD
    assert floor.send(START + FULL_SCAN) is None
    answer(floor, START + FULL_SCAN, Claims(lined_up_at=woke_at))
    floor.signal(None)
    assert floor.send(START + FULL_SCAN + MOMENT) == woke_at - FLOOR_AGE


def test_what_was_passed_over_stays_above_the_floor_however_long_it_has_waited(floor: ScanFloor) -> None:
    first_at = START - 60 * LEAD
    assert floor.send(START + FULL_SCAN) is None
    answer(floor, START + FULL_SCAN, Claims(first_at=first_at), passed_over=True)
    assert floor.send(START + FULL_SCAN + MOMENT) == first_at - FLOOR_AGE


def test_a_claim_without_an_answer_is_as_if_it_had_not_been_sent(floor: ScanFloor) -> None:
    told_at = START - 2 * FLOOR_AGE
    floor.signal(told_at)
    assert floor.send(START + MOMENT) == told_at
    later = START + FULL_SCAN / 2
    assert floor.send(later) == told_at
    answer(floor, later)
    assert floor.send(later + MOMENT) == later + LEAD


def test_what_woke_during_an_outage_is_above_the_floor(floor: ScanFloor) -> None:
    for seconds in range(1, 9):
        assert floor.send(START + timedelta(seconds=seconds)) == START - FLOOR_AGE


class TestBacklog:
    first_at = START - 60 * LEAD

    def test_it_is_gone_on_with_where_it_begins(self, floor: ScanFloor) -> None:
        floor.send(START + MOMENT)
        answer(floor, START + MOMENT, Claims(more=True, first_at=self.first_at))
        assert floor.send(START + 2 * MOMENT) == self.first_at

    def test_a_sweep_looks_a_little_before_it(self, floor: ScanFloor) -> None:
        floor.send(START + LEAD)
        answer(floor, START + LEAD, Claims(more=True, first_at=self.first_at))
        assert floor.send(START + 2 * LEAD) == self.first_at - FLOOR_AGE

    def test_what_was_told_from_before_it_comes_first(self, floor: ScanFloor) -> None:
        floor.send(START + MOMENT)
        answer(floor, START + MOMENT, Claims(more=True, first_at=self.first_at))
        floor.signal(self.first_at - MOMENT)
        assert floor.send(START + 2 * MOMENT) == self.first_at - MOMENT

    def test_a_store_that_does_not_tell_where_it_begins_is_swept(self, floor: ScanFloor) -> None:
        floor.send(START + MOMENT)
        answer(floor, START + MOMENT, Claims(more=True))
        assert floor.send(START + 2 * MOMENT) == START - FLOOR_AGE

    def test_one_that_only_a_look_at_everything_sees_is_gone_on_with_by_such_looks(self, floor: ScanFloor) -> None:
        now = START + FULL_SCAN
        assert floor.send(now) is None
        answer(floor, now, Claims(more=True))
        assert floor.send(now + MOMENT) is None, "the store does not tell where it begins"
        answer(floor, now + MOMENT)
        assert floor.send(now + LEAD) == now + MOMENT - FLOOR_AGE


class TestLeftRuns:
    lane = Lane("narrow", 0, "ada")
    other = Lane("narrow", 0, "bob")
    left_at = START - 60 * LEAD

    @pytest.fixture
    def left(self) -> LeftRuns:
        """Return what is known after a claim that left a run of one lane."""
        left = LeftRuns()
        assert left.begin(None) == {}
        left.answered(Claims(left={self.lane: self.left_at}))
        return left

    def test_a_claim_begins_with_the_first_run_that_was_left(self, left: LeftRuns) -> None:
        assert left.begin(START) == {self.lane: self.left_at}

    def test_what_was_told_from_before_it_comes_first(self, left: LeftRuns) -> None:
        left.begin(self.left_at - MOMENT)
        assert left.begin(START) == {self.lane: self.left_at - MOMENT}, "also when that claim had no room for it"

    def test_each_lane_begins_where_it_was_left_last(self, left: LeftRuns) -> None:
        left.answered(Claims(left={self.other: START}))
        left.answered(Claims(left={self.lane: START - LEAD}))
        assert left.begin(START) == {self.lane: START - LEAD, self.other: START}

    def test_a_look_at_everything_begins_anew(self, left: LeftRuns) -> None:
        assert left.begin(None) == {}
        assert left.begin(START) == {}, "until it is answered"

    def test_more_lanes_than_are_remembered_are_looked_at_from_the_beginning(self, left: LeftRuns) -> None:
        left.answered(Claims(left={Lane(f"queue {number}", 0, "ada"): START for number in range(MAX_LANES_LEFT)}))
        assert left.begin(START) == {}
