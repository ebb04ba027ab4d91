"""Held runs: each is due at its instant, and overdue ones get slots by priority and in turns."""

from datetime import datetime, timedelta

import pytest

from horae.core.model import JobId, Run, RunId, Spec, State
from horae.engine.worker.held_runs import HeldRuns
from tests.engine.system import START

SECOND = timedelta(seconds=1)
MANY = 1000


@pytest.fixture
def held() -> HeldRuns:
    return HeldRuns()


def claimed(
    number: int, *, at: datetime = START, queue: str = "default", priority: int = 0, owner: str = "local"
) -> Run:
    return Run(
        id=RunId(f"{number:032x}"),
        job_id=JobId(f"{number:032x}"),
        owner=owner,
        created_by=owner,
        spec=Spec(task="echo", queue=queue, priority=priority),
        due_at=at,
        wake_at=at,
        created_at=START,
        state=State.CLAIMED,
        fence=1,
    )


def overdue(held: HeldRuns, *runs: Run) -> None:
    for run in runs:
        held.keep(run)
        held.keep_overdue(run, START)


def in_turn(held: HeldRuns) -> list[Run]:
    runs = []
    while found := held.take_overdue(4):
        for run in found:
            held.drop(run)
        runs += found
    return runs


def test_runs_come_at_their_instants_and_the_more_urgent_of_one_instant_first(held: HeldRuns) -> None:
    later, plain, urgent = claimed(1, at=START + SECOND), claimed(2), claimed(3, priority=5)
    for run in (later, plain, urgent):
        held.keep(run)
    assert held.next_at() == START
    assert held.due(START, MANY) == [urgent, plain]
    assert held.next_at() == START + SECOND
    assert held.due(START + SECOND, MANY) == [later]
    assert held.next_at() is None
    assert list(held) == [later, plain, urgent], "they are held until they are taken out"


def test_runs_that_arrive_in_any_order_come_in_that_of_their_instants(held: HeldRuns) -> None:
    runs = [claimed(number, at=START + seconds * SECOND) for number, seconds in enumerate((3, 1, 4, 1, 5, 9, 2, 6))]
    for run in runs:
        held.keep(run)
    assert held.due(START + 2 * SECOND, MANY) == [runs[1], runs[3], runs[6]]
    assert held.due(START + 10 * SECOND, MANY) == [runs[0], runs[2], runs[4], runs[7], runs[5]]


def test_no_more_come_at_once_than_asked_for(held: HeldRuns) -> None:
    runs = [claimed(number) for number in range(5)]
    for run in runs:
        held.keep(run)
    assert [held.due(START, 2), held.due(START, 2), held.due(START, 2)] == [runs[:2], runs[2:4], runs[4:]]


def test_a_run_that_was_taken_out_does_not_come(held: HeldRuns) -> None:
    gone, kept = claimed(1), claimed(2)
    for run in (gone, kept):
        held.keep(run)
    held.drop(gone)
    assert gone not in held
    assert held.due(START, MANY) == [kept]


def test_a_later_claim_of_the_same_run_does_not_come_at_the_instant_of_the_earlier(held: HeldRuns) -> None:
    earlier, later = claimed(1), claimed(1, at=START + SECOND)
    held.keep(earlier)
    held.drop(earlier)
    held.keep(later)
    assert held.due(START, MANY) == []
    assert held.due(START + SECOND, MANY) == [later]


def test_a_free_slot_goes_to_the_most_urgent(held: HeldRuns) -> None:
    low, high, plain = claimed(1, priority=-1), claimed(2, priority=9), claimed(3)
    overdue(held, low, high, plain)
    assert in_turn(held) == [high, plain, low]


def test_queues_take_turns_so_that_a_flood_in_one_holds_up_no_other(held: HeldRuns) -> None:
    flood = [claimed(number, queue="flood") for number in range(50)]
    overdue(held, *flood)
    [first] = held.take_overdue(1)
    held.drop(first)
    mail = [claimed(100 + number, queue="mail") for number in range(3)]
    overdue(held, *mail)
    order = in_turn(held)
    assert [run for run in order if run.spec.queue == "mail"] == mail
    assert order.index(mail[-1]) <= 6, "one of each in turn"
    assert [first, *(run for run in order if run.spec.queue == "flood")] == flood


def test_owners_take_turns_and_many_queues_give_nobody_more_of_them(held: HeldRuns) -> None:
    flood = [claimed(number, owner="flood", queue=f"queue {number % 5}") for number in range(50)]
    quiet = [claimed(100 + number, owner="quiet") for number in range(3)]
    mail = [claimed(200 + number, owner="shop", queue="mail") for number in range(20)]
    overdue(held, *flood, *quiet, *mail)
    order = in_turn(held)
    assert len(order) == 73
    assert [run for run in order if run.owner == "quiet"] == quiet
    assert order.index(quiet[-1]) < 9, "one of each in turn"
    assert [run.owner for run in order[:9]].count("shop") == 3
    assert [run.spec.queue for run in order if run.owner == "flood"][:5] == [f"queue {number}" for number in range(5)]


def test_what_has_waited_too_long_is_told_whoever_owns_it(held: HeldRuns) -> None:
    old = [claimed(1, owner="ann"), claimed(2, owner="bob"), claimed(3, owner="bob", queue="mail")]
    overdue(held, *old)
    assert held.take_overdue_since(START) == old
    assert (held.overdue, in_turn(held)) == (0, [])


def test_what_has_waited_for_a_slot_too_long_is_told_once(held: HeldRuns) -> None:
    old, young = claimed(1), claimed(2)
    held.keep(old)
    held.keep_overdue(old, START)
    held.keep(young)
    held.keep_overdue(young, START + SECOND)
    assert held.take_overdue_since(START - SECOND) == []
    assert held.take_overdue_since(START) == [old]
    assert held.take_overdue_since(START) == []
    assert in_turn(held) == [young]


def test_what_is_due_later_is_counted_apart(held: HeldRuns) -> None:
    soon, later = [claimed(n, at=START + n * SECOND) for n in range(3)], claimed(9, at=START + timedelta(hours=1))
    for run in (*soon, later):
        held.keep(run)
    overdue(held, claimed(5))
    assert held.count_until(START + 2 * SECOND) == 4
    assert held.count_until(START + timedelta(hours=1)) == len(held) == 5
    held.drop(later)
    held.drop(soon[0])
    assert held.count_until(START + timedelta(hours=1)) == len(held) == 3
