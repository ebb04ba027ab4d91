"""Judges of recorded histories: leases, gates and limits seen between workers and store, and calls that overlap."""

from typing import Any

import msgspec

from horae.proof.checking import Code, Recording
from horae.proof.checking.history.recording import FOREVER
from horae.proof.checking.history.records import (
    Action,
    Closed,
    Definition,
    Effect,
    FinalAttempt,
    FinalRun,
    HandlerEvent,
    HeartbeatTaken,
    Info,
    Invoke,
    LeaseGranted,
    Limit,
    Line,
    NodeGone,
    Ok,
    ProcessDied,
    ResultReport,
    Setup,
)
from horae.proof.checking.history.versions import paused_since, versions
from horae.proof.checking.judges.cancels import judge_cancels
from horae.proof.checking.judges.exclusive import judge_exclusive
from horae.proof.checking.judges.leases import judge_leases
from horae.proof.checking.judges.limits import judge_limits
from horae.proof.checking.judges.order import judge_order
from horae.proof.checking.judges.start_windows import judge_start_windows

SETUP = Setup(at=0.0, lease=9.0, recovery=0.0)
ONE, OTHER = {"node": "one", "pid": 1}, {"node": "other", "pid": 2}


def start(at: float, fence: int, *, run: str = "run_1", **where: Any) -> Effect:
    return Effect(
        at=at, event=HandlerEvent.START, run=run, job="job_1", attempt=1, fence=fence, due=1.0, label="a", **where
    )


def final(run: str, **told: Any) -> FinalRun:
    given = {"owner": "local", "status": "running", "trigger": "schedule", "due_at": 1.0, "created_at": 1.0}
    return FinalRun(at=100.0, run=run, job="job_1", **{**given, "fence": 2, "attempt": 1, **told})


def codes(judge: Any, *lines: Line) -> list[Code]:
    return [violation.code for violation in judge(Recording([SETUP, *lines]))]


def called(call: str, action: Action, began: float, done: float | None, **asked: Any) -> list[Line]:
    """A call about the job; `done` None: nobody knows."""
    end = Info(at=began + 5, call=call) if done is None else Ok(at=done, call=call, job="job_1")
    return [Invoke(at=began, call=call, action=action, **asked), end]


CREATED = called("0", Action.CREATE, 0.5, 0.6, definition=Definition(label="a"))


# --- leases


def test_handlers_beside_one_another_are_excused_by_nothing_but_a_lease_that_ran_out() -> None:
    beat, first = HeartbeatTaken(at=5.1, node="one", sent_at=5.0), start(10.0, 1, **ONE)
    assert codes(judge_leases, beat, first, start(12.0, 2, **OTHER)) == [Code.ATTEMPTS_OVERLAP]
    assert codes(judge_leases, beat, first, start(14.1, 2, **OTHER)) == []
    assert codes(judge_leases, beat, first, NodeGone(at=11.0, node="one"), start(12.0, 2, **OTHER)) == []
    assert codes(judge_leases, beat, first, ProcessDied(at=11.0, pid=1), start(12.0, 2, **OTHER)) == []
    assert codes(judge_leases, beat, first, ProcessDied(at=11.0, pid=2), start(12.0, 2, **OTHER)) == [
        Code.ATTEMPTS_OVERLAP
    ]


def test_runs_of_one_gate_take_turns() -> None:
    gate = {"gate": "key:local:a"}
    lines = [
        HeartbeatTaken(at=5.1, node="one", sent_at=5.0),
        start(10.0, 1, **ONE),
        start(12.0, 1, run="run_2", **OTHER),
    ]
    assert codes(judge_leases, *lines, final("run_1"), final("run_2")) == []
    assert codes(judge_leases, *lines, final("run_1", **gate), final("run_2", **gate)) == [Code.OVERLAPPED]


def test_fences_that_are_given_out_grow() -> None:
    assert (
        codes(judge_leases, LeaseGranted(at=1.0, run="run_1", fence=1), LeaseGranted(at=2.0, run="run_1", fence=2))
        == []
    )
    given = LeaseGranted(at=1.0, run="run_1", fence=2), LeaseGranted(at=2.0, run="run_1", fence=2)
    assert codes(judge_leases, *given) == [Code.FENCE_REUSED]


# --- results


def report(at: float, fence: int, status: str) -> ResultReport:
    return ResultReport(at=at, run="run_1", fence=fence, accepted=True, status=status)


def test_a_result_that_is_sent_again_is_the_same() -> None:
    first, lease = report(2.0, 1, "retrying"), LeaseGranted(at=3.0, run="run_1", fence=2)
    assert codes(judge_exclusive, first, lease, report(4.0, 1, "retrying")) == []
    assert codes(judge_exclusive, first, lease, report(4.0, 1, "succeeded")) == [Code.STALE_RESULT_TAKEN]


def test_a_run_ends_once() -> None:
    assert codes(judge_exclusive, report(2.0, 1, "retrying"), report(3.0, 1, "cancelled")) == []
    assert codes(judge_exclusive, report(2.0, 1, "succeeded"), report(3.0, 1, "succeeded")) == []
    assert codes(judge_exclusive, report(2.0, 1, "succeeded"), report(3.0, 1, "failed")) == [Code.COMMITTED_TWICE]


# --- cancels


def test_what_is_being_cancelled_is_given_to_nobody_else() -> None:
    cancel = called("1", Action.CANCEL, 5.0, 6.0, run="run_1")
    before, after = LeaseGranted(at=5.5, run="run_1", fence=2), LeaseGranted(at=7.0, run="run_1", fence=2)
    assert codes(judge_cancels, *cancel, before, start(5.6, 2)) == []
    assert codes(judge_cancels, *cancel, after) == []
    assert codes(judge_cancels, *cancel, after, start(7.1, 2)) == [Code.CANCEL_IGNORED]


# --- one after another


def test_what_its_process_saw_end_is_over_even_if_that_is_done_again() -> None:
    def told(behind: dict[str, Any], *, good: bool = True, **first: Any) -> list[Code]:
        lines: list[Line] = []
        for number, label in enumerate(("a", "b")):
            run, job, asked = f"run_{label}", f"job_{label}", Definition(label=label, ordering_key="k", **first)
            lines += [Invoke(at=1.0 + number, call=label, action=Action.CREATE, definition=asked)]
            lines += [Ok(at=1.1 + number, call=label, job=job, run=run)]
            again = FinalAttempt(number=1, fence=2, outcome="succeeded", node="other")
            ended = {"status": "succeeded", "gate": "key:local:k", "attempts": [again], "label": label}
            lines += [_as(final(run, **ended), job=job)]
            lines += [_as(effect, job=job, label=label) for effect in handled(20.0 + number, 2, run, OTHER)]
        lines += [_as(effect, job="job_a", label="a", good=good) for effect in handled(5.0, 1, "run_a", ONE)]
        lines += [_as(start(6.0, 1, run="run_b", **behind), job="job_b", label="b")]
        return codes(judge_order, *lines)

    assert told(ONE) == []
    assert told(OTHER) == [Code.OUT_OF_ORDER]
    assert told(ONE, good=False, max_retries=0) == []
    assert told(ONE, good=False, max_retries=1) == [Code.OUT_OF_ORDER]
    assert told(ONE, good=False, max_retries=0, on_failure="block") == [Code.OUT_OF_ORDER]
    assert told(OTHER, good=False, max_retries=0) == [Code.OUT_OF_ORDER]


def test_what_was_cancelled_in_a_worker_that_slept_makes_way_before_its_handler_stops() -> None:
    def told(outcome: str, over: float) -> list[Code]:
        lines: list[Line] = []
        for number, label in enumerate(("a", "b")):
            run, job, asked = f"run_{label}", f"job_{label}", Definition(label=label, ordering_key="k")
            lines += [Invoke(at=1.0 + number, call=label, action=Action.CREATE, definition=asked)]
            lines += [Ok(at=1.1 + number, call=label, job=job, run=run)]
        ended = FinalAttempt(number=1, fence=1, outcome=outcome, ended_at=over, node="one")
        lines += [_as(final("run_a", status=outcome, gate="key:local:k", attempts=[ended], label="a"), job="job_a")]
        lines += [_as(final("run_b", status="succeeded", gate="key:local:k", label="b"), job="job_b")]
        begun = _as(start(5.0, 1, run="run_a", **ONE), job="job_a", label="a")
        lines += [begun, _as(begun, at=20.0, event=HandlerEvent.STOPPED)]
        lines += [_as(start(12.0, 1, run="run_b", **OTHER), job="job_b", label="b")]
        return codes(judge_order, *lines)

    assert told("cancelled", 11.0) == []
    assert told("cancelled", 13.0) == [Code.OUT_OF_ORDER]
    assert told("failed", 11.0) == [Code.OUT_OF_ORDER]


def handled(at: float, fence: int, run: str, where: dict[str, Any]) -> list[Effect]:
    """A handler from its start to its good end."""
    begun = start(at, fence, run=run, **where)
    return [begun, _as(begun, at=at + 0.5, event=HandlerEvent.END)]


def _as(line: Any, **changes: Any) -> Any:
    return msgspec.structs.replace(line, **changes)


# --- what comes due while another of its runs is going


def test_a_job_for_once_may_be_skipped_beside_a_run_that_was_asked_for_by_itself() -> None:
    def told(ended: float, **defined: Any) -> list[Code]:
        asked = Definition(label="a", schedule="1970-01-01T00:00:10Z", **defined)
        created = called("0", Action.CREATE, 0.5, 0.6, definition=asked)
        triggered = called("1", Action.TRIGGER, 5.0, 5.1, job="job_1")
        going = start(6.0, 1, run="run_2", **ONE)
        end = Effect(**{**_fields(going), "at": ended, "event": HandlerEvent.END})
        return codes(judge_start_windows, *created, *triggered, going, end, Closed(at=100.0))

    assert told(12.0, overlap="skip") == []
    assert told(8.0, overlap="skip") == [Code.LOST]
    assert told(12.0, overlap="allow") == [Code.LOST]


# --- limits


def test_a_limit_counts_from_when_it_holds() -> None:
    def at_once(since: float) -> list[Code]:
        limit = Limit(scope="node", name="one", most=1, since=since)
        ends = [
            Effect(**{**_fields(start(t, 1, run=r, **ONE)), "at": 20.0, "event": HandlerEvent.END}) for t, r in pair
        ]
        lines = [start(t, 1, run=r, **ONE) for t, r in pair] + ends
        return [violation.code for violation in judge_limits(Recording([_with(limit), *lines]))]

    pair = [(10.0, "run_1"), (11.0, "run_2")]
    assert at_once(0.0) == [Code.LIMIT_EXCEEDED]
    assert at_once(12.0) == []


def test_a_limit_does_not_count_what_a_worker_without_its_lease_still_does() -> None:
    def at_once(second: float) -> list[Code]:
        limit = Limit(scope="queue", name="narrow", most=1)
        asked = called("0", Action.CREATE, 0.5, 0.6, definition=Definition(label="a", queue="narrow"))
        starts = [start(6.0, 1, **ONE), start(second, 1, run="run_2", **OTHER)]
        ends = [Effect(**{**_fields(each), "at": 20.0, "event": HandlerEvent.END}) for each in starts]
        beats = [HeartbeatTaken(at=5.1, node="one", sent_at=5.0), HeartbeatTaken(at=12.1, node="other", sent_at=12.0)]
        lines = [Setup(at=0.0, lease=9.0, limits=[limit]), *asked, *starts, *ends, *beats]
        return [violation.code for violation in judge_limits(Recording(lines))]

    assert at_once(13.0) == [Code.LIMIT_EXCEEDED]
    assert at_once(15.0) == []


def _with(limit: Limit) -> Setup:
    return Setup(at=0.0, limits=[limit])


def _fields(effect: Effect) -> dict[str, Any]:
    return {name: getattr(effect, name) for name in effect.__struct_fields__}


# --- calls that overlap, or have no answer


def changed(call: str, began: float, done: float | None, queue: str) -> list[Line]:
    return called(call, Action.UPDATE, began, done, job="job_1", definition=Definition(label="a", queue=queue))


def certain(*lines: Line) -> list[float]:
    """From when on each version certainly holds."""
    return [version.certain_from for version in versions(Recording([*CREATED, *lines]).requested["a"])]


def test_of_changes_at_the_same_time_none_is_known_to_hold() -> None:
    assert certain(*changed("1", 2.0, 3.0, "b"), *changed("2", 4.0, 5.0, "c")) == [0.6, 3.0, 5.0]
    assert certain(*changed("1", 2.0, 6.0, "b"), *changed("2", 4.0, 5.0, "c")) == [0.6, 6.0, FOREVER]
    assert certain(*changed("1", 2.0, None, "b"), *changed("2", 8.0, 9.0, "c")) == [0.6, FOREVER, FOREVER]
    overlapping = versions(
        Recording([*CREATED, *changed("1", 2.0, 6.0, "b"), *changed("2", 4.0, 5.0, "c")]).requested["a"]
    )
    assert [version.possible_to for version in overlapping] == [5.0, FOREVER, FOREVER]


def test_a_pause_is_over_only_when_it_was_resumed_after_it() -> None:
    def since(*lines: Line) -> float | None:
        return paused_since(Recording([*CREATED, *lines]).requested["a"])

    resumed = called("2", Action.RESUME, 5.0, 6.0, job="job_1")
    assert since() is None
    assert since(*called("1", Action.PAUSE, 2.0, 3.0, job="job_1")) == 2.0
    assert since(*called("1", Action.PAUSE, 2.0, 3.0, job="job_1"), *resumed) is None
    assert since(*called("1", Action.PAUSE, 4.0, 5.5, job="job_1"), *resumed) == 4.0
    assert since(*called("1", Action.PAUSE, 2.0, None, job="job_1"), *resumed) == 2.0
