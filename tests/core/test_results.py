"""What the end of an attempt means for its run."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horae.core.decisions.results import (
    APART,
    MAX_CRASHES,
    Failure,
    cancel,
    fail,
    give_back,
    lost,
    skip,
    start,
    succeed,
)
from horae.core.decisions.retry import RetryPolicy
from horae.core.errors import IllegalMove
from horae.core.lifecycle import Move, advance
from horae.core.model import JobError, Outcome, Policy, Reason, RunId, Spec, State
from horae.core.values import replace
from tests.core.builders import NOON, a_run

ERROR = JobError(type="ValueError", message="no")


class TestResults:
    def test_success_ends_the_run(self) -> None:
        done = succeed(a_run(State.RUNNING), '"ok"', NOON).run
        assert (done.state, done.result, done.attempt, done.finished_at) == (State.SUCCEEDED, '"ok"', 1, NOON)

    def test_a_failure_is_tried_again_after_its_delay(self) -> None:
        settled = fail(a_run(State.RUNNING), Failure(error=ERROR), NOON, random_factor=0.0)
        assert (settled.run.state, settled.run.wake_at) == (State.RETRYING, NOON + timedelta(seconds=5))
        assert settled.run.due_at == NOON
        assert settled.attempt is not None
        assert (settled.attempt.number, settled.attempt.outcome, settled.attempt.error) == (1, Outcome.FAILED, ERROR)

    def test_the_last_retry_is_the_last(self) -> None:
        run = a_run(State.RUNNING, attempt=3)
        assert fail(run, Failure(error=ERROR), NOON, 0).run.state is State.RETRYING
        assert fail(replace(run, attempt=4), Failure(error=ERROR), NOON, 0).run.state is State.FAILED

    def test_a_fatal_error_is_not_tried_again(self) -> None:
        assert fail(a_run(State.RUNNING), Failure(error=ERROR, fatal=True), NOON, 0).run.state is State.FAILED

    def test_a_task_may_choose_its_delay(self) -> None:
        failure = Failure(error=ERROR, retry_after=timedelta(minutes=7))
        assert fail(a_run(State.RUNNING), failure, NOON, 0.9).run.wake_at == NOON + timedelta(minutes=7)

    def test_giving_back_costs_no_attempt_and_no_crash(self) -> None:
        back = give_back(a_run(State.RUNNING), NOON + timedelta(seconds=9)).run
        assert (back.state, back.attempt, back.crashes, back.node) == (State.SCHEDULED, 0, 0, None)
        assert back.wake_at == NOON + timedelta(seconds=9)
        assert back.fence == 1

    def test_a_run_given_back_before_its_time_keeps_its_time(self) -> None:
        back = give_back(a_run(State.CLAIMED), NOON - timedelta(seconds=1))
        assert (back.run.wake_at, back.attempt) == (NOON, None)

    def test_a_dead_worker_costs_a_crash_and_no_retry(self) -> None:
        settled = lost(a_run(State.RUNNING), NOON + timedelta(seconds=20))
        assert (settled.run.state, settled.run.attempt, settled.run.crashes) == (State.SCHEDULED, 0, 1)
        assert settled.attempt is not None
        assert settled.attempt.outcome is Outcome.LOST

    def test_a_dead_worker_costs_nothing_for_what_was_not_yet_due(self) -> None:
        assert lost(a_run(State.CLAIMED), NOON - timedelta(milliseconds=1)).run.crashes == 0

    def test_a_dead_worker_costs_nothing_for_a_retry_that_it_had_not_started(self) -> None:
        waiting = a_run(State.CLAIMED, attempt=1, wake_at=NOON + timedelta(seconds=9))
        settled = lost(waiting, NOON + timedelta(seconds=8))
        assert (settled.run.crashes, settled.run.wake_at) == (0, waiting.wake_at)

    def test_runs_that_die_together_come_back_together_once_and_then_apart(self) -> None:
        together = [a_run(State.CLAIMED, id=RunId(f"{number:032x}")) for number in range(100)]
        assert {lost(run, NOON).run.wake_at for run in together} == {NOON}
        for crashes in range(1, MAX_CRASHES - 1):
            waits = sorted(lost(replace(run, crashes=crashes), NOON).run.wake_at - NOON for run in together)
            assert timedelta() <= waits[0] < waits[50] < waits[-1] < crashes * APART
            assert waits[-1] - waits[0] > crashes * APART * 0.9
            assert len(set(waits)) == 100

    def test_a_run_that_keeps_killing_its_workers_is_failed(self) -> None:
        settled = lost(a_run(State.CLAIMED, crashes=MAX_CRASHES - 1), NOON)
        assert settled.run.state is State.FAILED
        assert settled.run.error is not None
        assert settled.run.error.type == "crash"

    def test_a_cancel_outlives_the_worker_that_should_have_confirmed_it(self) -> None:
        for state in (State.CLAIMED, State.RUNNING):  # it may have been going: slots may have been skipped beside it
            ended = lost(a_run(state, stop=Reason.CANCELLED), NOON).run
            assert (ended.state, ended.crashes) == (State.CANCELLED, 1)
        assert lost(a_run(State.CLAIMED, stop=Reason.CANCELLED), NOON - timedelta(milliseconds=1)).run.crashes == 0

    def test_cancel_and_skip_end_what_has_not_ended(self) -> None:
        assert cancel(a_run(), NOON).run.state is State.CANCELLED
        assert skip(a_run(State.CLAIMED), Reason.OVERLAP, NOON).run.reason is Reason.OVERLAP
        with pytest.raises(IllegalMove):
            cancel(succeed(a_run(State.RUNNING), None, NOON).run, NOON)


@given(outcomes=st.lists(st.sampled_from(["fail", "give_back", "lost"]), max_size=40), max_retries=st.integers(0, 8))
def test_a_run_ends_after_exactly_its_retries_whatever_else_happens(outcomes: list[str], max_retries: int) -> None:
    run = a_run(spec=Spec(task="t", policy=Policy(retry=RetryPolicy(max_retries=max_retries))))
    failures = crashes = 0
    for outcome in outcomes:
        run = start(advance(run, Move.CLAIM, fence=run.fence + 1), NOON)
        assert run.attempt == failures + 1
        if outcome == "fail":
            failures += 1
            run = fail(run, Failure(error=ERROR), NOON, 0.5).run
        elif outcome == "lost":
            crashes += 1
            run = lost(run, NOON).run
        else:
            run = give_back(run, NOON).run
        expected_end = failures > max_retries or crashes >= MAX_CRASHES
        assert (run.state is State.FAILED) == expected_end
        if expected_end:
            return
