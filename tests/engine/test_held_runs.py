"""What a worker holds: each run comes at its instant, and then by priority and in turns."""

from datetime import datetime, timedelta

import pytest

from horae.core.model import JobId, Run, RunId, Spec, State
from horae.engine.worker.held_runs import HeldRuns
from tests.engine.system import START

SECOND = timedelta(seconds=1)
MANY = 1000


@pytest.fixture
def holding() -> HeldRuns:
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


def overdue(holding: HeldRuns, *runs: Run) -> None:
    for run in runs:
        holding.keep(run)
        holding.keep_overdue(run, START)


def in_turn(holding: HeldRuns) -> list[Run]:
    runs = []
    while found := holding.take_overdue(4):
        for run in found:
            holding.drop(run)
        runs += found
    return runs


def test_runs_come_at_their_instants_and_the_more_urgent_of_one_instant_first(holding: HeldRuns) -> None:
    later, plain, urgent = claimed(1, at=START + SECOND), claimed(2), claimed(3, priority=5)
    for run in (later, plain, urgent):
        holding.keep(run)
    assert holding.next_at() == START
    assert holding.due(START, MANY) == [urgent, plain]
    assert holding.next_at() == START + SECOND
    assert holding.due(START + SECOND, MANY) == [later]
    assert holding.next_at() is None
    assert list(holding) == [later, plain, urgent], "they are held until they are taken out"


def test_runs_that_arrive_in_any_order_come_in_that_of_their_instants(holding: HeldRuns) -> None:
    runs = [claimed(number, at=START + seconds * SECOND) for number, seconds in enumerate((3, 1, 4, 1, 5, 9, 2, 6))]
    for run in runs:
        holding.keep(run)
    assert holding.due(START + 2 * SECOND, MANY) == [runs[1], runs[3], runs[6]]
    assert holding.due(START + 10 * SECOND, MANY) == [runs[0], runs[2], runs[4], runs[7], runs[5]]


def test_no_more_come_at_once_than_asked_for(holding: HeldRuns) -> None:
    runs = [claimed(number) for number in range(5)]
    for run in runs:
        holding.keep(run)
    assert [holding.due(START, 2), holding.due(START, 2), holding.due(START, 2)] == [runs[:2], runs[2:4], runs[4:]]


def test_a_run_that_was_taken_out_does_not_come(holding: HeldRuns) -> None:
    gone, kept = claimed(1), claimed(2)
    for run in (gone, kept):
        holding.keep(run)
    holding.drop(gone)
    assert gone not in holding
    assert holding.due(START, MANY) == [kept]


def test_a_later_claim_of_the_same_run_does_not_come_at_the_instant_of_the_earlier(holding: HeldRuns) -> None:
    earlier, later = claimed(1), claimed(1, at=START + SECOND)
    holding.keep(earlier)
    holding.drop(earlier)
    holding.keep(later)
    assert holding.due(START, MANY) == []
    assert holding.due(START + SECOND, MANY) == [later]


def test_a_free_slot_goes_to_the_most_urgent(holding: HeldRuns) -> None:
    low, high, plain = claimed(1, priority=-1), claimed(2, priority=9), claimed(3)
    overdue(holding, low, high, plain)
    assert in_turn(holding) == [high, plain, low]


def test_queues_take_turns_so_that_a_flood_in_one_holds_up_no_other(holding: HeldRuns) -> None:
    flood = [claimed(number, queue="flood") for number in range(50)]
    overdue(holding, *flood)
    [first] = holding.take_overdue(1)
    holding.drop(first)
    mail = [claimed(100 + number, queue="mail") for number in range(3)]
    overdue(holding, *mail)
    order = in_turn(holding)
    assert [run for run in order if run.spec.queue == "mail"] == mail
    assert order.index(mail[-1]) <= 6, "one of each in turn"
    assert [first, *(run for run in order if run.spec.queue == "flood")] == flood


def test_owners_take_turns_within_a_queue_and_its_turns_are_no_more_for_that(holding: HeldRuns) -> None:
    flood = [claimed(number, owner="flood") for number in range(50)]
    quiet = [claimed(100 + number, owner="quiet") for number in range(3)]
    mail = [claimed(200 + number, queue="mail") for number in range(20)]
    overdue(holding, *flood, *quiet, *mail)
    order = in_turn(holding)
    assert len(order) == 73
    assert [run for run in order if run.owner == "quiet"] == quiet
    assert [run for run in order if run.owner == "flood"] == flood
    assert order.index(quiet[-1]) < 12, "one of each in turn"
    assert [run.spec.queue for run in order[:12]].count("mail") == 6, "the other queue has every second turn"


def test_what_has_waited_too_long_is_told_whoever_owns_it(holding: HeldRuns) -> None:
    old = [claimed(1, owner="ann"), claimed(2, owner="bob"), claimed(3, owner="bob", queue="mail")]
    overdue(holding, *old)
    assert holding.overdue_since(START) == old
    assert (holding.overdue, in_turn(holding)) == (0, [])


def test_what_has_waited_for_a_slot_too_long_is_told_once(holding: HeldRuns) -> None:
    old, young = claimed(1), claimed(2)
    holding.keep(old)
    holding.keep_overdue(old, START)
    holding.keep(young)
    holding.keep_overdue(young, START + SECOND)
    assert holding.overdue_since(START - SECOND) == []
    assert holding.overdue_since(START) == [old]
    assert holding.overdue_since(START) == []
    assert in_turn(holding) == [young]
