"""Runs that do not come from a schedule: requeued dead letters."""

from datetime import timedelta

from horae.core.decisions.new_runs import requeued
from horae.core.model import Spec, State, Trigger
from horae.core.values import replace
from tests.core.builders import JOB, NOON, a_run, new_id


class TestRequeue:
    def test_a_dead_letter_runs_once_more_as_a_run_that_points_at_it(self) -> None:
        letter = a_run(State.FAILED, spec=Spec(task="demo.echo", key="k", params='{"a": 1}'), gate="job:j")
        now = NOON + timedelta(hours=1)
        run = requeued(letter, now=now, new_id=new_id)
        assert (run.requeue_of, run.trigger, run.job_id, run.gate) == (letter.id, Trigger.REQUEUE, JOB, "job:j")
        assert (run.due_at, run.wake_at, run.state) == (now, now, State.SCHEDULED)
        assert run.spec == replace(letter.spec, key=None)

    def test_in_an_order_it_keeps_its_place_before_what_was_due_at_the_same_time(self) -> None:
        spec = Spec(task="demo.echo", ordering_key="k")
        letter, twin = a_run(State.FAILED, spec=spec), a_run(spec=spec)
        run = requeued(letter, now=NOON + timedelta(hours=1), new_id=new_id)
        before = a_run(spec=spec, due_at=NOON - timedelta(seconds=1))
        assert (before.due_at, before.id) < (run.due_at, run.id) < (twin.due_at, twin.id)
        assert run.wake_at == NOON + timedelta(hours=1)
