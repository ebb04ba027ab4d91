"""The gates of one node: which run is ahead of which, and when a gate is freed."""

from datetime import timedelta

from horae.core.decisions.results import give_back, start, succeed
from horae.core.model import JobId, NodeId, Run, RunId, Spec, State
from horae.core.values import replace
from horae.engine.worker.gates import FULL, Gates
from tests.engine.system import START


def held(number: int, gate: str | None = "g", due: float = 0.0) -> Run:
    due_at = START + timedelta(seconds=due)
    return Run(
        id=RunId(f"{number:032x}"),
        job_id=JobId(f"{number:032x}"),
        owner="local",
        created_by="local",
        spec=Spec(task="echo"),
        due_at=due_at,
        wake_at=due_at,
        gate=gate,
        created_at=START,
        state=State.CLAIMED,
        node=NodeId("a" * 32),
        fence=1,
    )


def entered(*runs: Run) -> Gates:
    gates = Gates()
    for run in runs:
        gates.enter(run)
    return gates


def test_a_run_without_a_gate_has_no_rivals() -> None:
    assert list(entered(held(1, gate=None), held(2, gate=None)).rivals(held(3, gate=None))) == []


def test_those_ahead_are_rivals_and_those_behind_are_not() -> None:
    first, second, other = held(1), held(2), held(3, gate="h")
    gates = entered(second, first, other)
    assert [rival.job_id for rival in gates.rivals(second)] == [first.job_id]
    assert list(gates.rivals(first)) == []


def test_one_that_runs_is_a_rival_wherever_it_stands() -> None:
    early, late = held(1), held(2, due=5)
    gates = entered(early, start(late, START))
    assert [rival.started_at for rival in gates.rivals(early)] == [START]


def test_a_retry_that_waits_here_is_going_since_its_first_start() -> None:
    retry = replace(held(1), attempt=1, first_started_at=START - timedelta(minutes=1))
    assert [rival.started_at for rival in entered(retry, held(2)).rivals(held(2))] == [retry.first_started_at]


def test_a_gate_is_free_once_the_store_has_the_result_of_its_last_run() -> None:
    run = start(held(1), START)
    gates = entered(run)
    done = succeed(run, None, START).run
    gates.leave(done)
    assert gates.take_free() == []
    gates.settled(done)
    assert gates.take_free() == ["g"]
    assert gates.take_free() == []


def test_a_gate_that_is_entered_again_is_not_let_go() -> None:
    run = start(held(1), START)
    gates = entered(run)
    done = succeed(run, None, START).run
    gates.leave(done)
    gates.enter(held(2))
    gates.settled(done)
    assert gates.take_free() == []


def test_a_claim_from_before_the_store_knew_of_a_return_is_not_trusted() -> None:
    run = start(held(1), START)
    gates = entered(run)
    sent_before = gates.begin_claim()
    back = give_back(run, START).run
    gates.leave(back)
    assert not gates.trusts(held(2), sent_before)
    gates.settled(back)
    assert not gates.trusts(held(2), sent_before), "it was sent before the store had the return"
    gates.end_claim(sent_before)
    sent_after = gates.begin_claim()
    assert gates.trusts(held(2), sent_after)
    gates.end_claim(sent_after)
    assert gates.trusts(held(2), sent_after)


def test_enough_is_held_of_a_long_line() -> None:
    gates = entered(*(held(number) for number in range(FULL)))
    assert gates.full() == ["g"]
    gates.leave(give_back(held(0), START).run)
    assert gates.full() == []


def test_a_run_that_is_another_nodes_now_holds_nobody_up() -> None:
    gates = entered(held(1), held(2, due=1))
    gates.forget(held(1))
    assert list(gates.rivals(held(2, due=1))) == []
    assert gates.take_free() == []
    gates.forget(held(2, due=1))
    assert gates.take_free() == ["g"]


def test_a_result_on_its_way_counts_although_all_runs_were_forgotten() -> None:
    run = start(held(1), START)
    gates = entered(run, held(2, due=1))
    back = give_back(run, START).run
    gates.leave(back)
    gates.forget(held(2, due=1))
    assert gates.take_free() == []
    assert not gates.trusts(held(2, due=1), gates.begin_claim())
    gates.settled(back)
    assert gates.take_free() == ["g"]


def test_gates_that_may_still_be_ours_are_freed_unless_they_are_needed() -> None:
    gates = entered(held(1, gate="held"), held(2, gate="unsettled"))
    gates.leave(succeed(start(held(2, gate="unsettled"), START), None, START).run)
    gates.free(["held", "unsettled", "idle"])
    assert gates.take_free() == ["idle"]
