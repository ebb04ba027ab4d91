"""The decisions of the engine, as tables and properties of pure functions."""

from datetime import UTC, datetime, timedelta
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horae.core.errors import IllegalMove
from horae.core.firing import MAX_UNSTARTED, ZONES_LOOK, Due, Firing, fill, fire
from horae.core.lifecycle import Move, advance
from horae.core.model import (
    Job,
    JobError,
    JobId,
    JobStatus,
    Misfire,
    NodeId,
    Outcome,
    Overlap,
    Policy,
    Reason,
    Run,
    RunId,
    Spec,
    State,
    Trigger,
)
from horae.core.new_runs import manual_run, requeued
from horae.core.release import Rival, Verdict, gate_of, overlap_is_open, release
from horae.core.results import APART, MAX_CRASHES, Failure, cancel, fail, give_back, lost, skip, start, succeed
from horae.core.retry import RetryPolicy
from horae.core.schedule.evaluate import count_between, next_after
from horae.core.schedule.parse import parse_schedule
from horae.core.values import replace

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
HORIZON = timedelta(seconds=30)
JOB = JobId("a" * 32)
_numbers = count(1)


def new_id() -> str:
    return f"{next(_numbers):032x}"


def a_job(schedule: object = "* * * * * *", *, next_fire_at: datetime | None = NOON, **policy: object) -> Job:
    return Job(
        id=JOB,
        owner="local",
        created_by="local",
        spec=Spec(task="demo.echo", policy=Policy(**policy)),  # type: ignore[arg-type]
        schedule=parse_schedule(schedule, now=NOON),  # type: ignore[arg-type]
        next_fire_at=next_fire_at,
        plan_at=NOON,
        created_at=NOON - timedelta(days=1),
        updated_at=NOON - timedelta(days=1),
    )


def a_run(state: State = State.SCHEDULED, **changes: object) -> Run:
    run = Run(
        id=RunId(new_id()),
        job_id=JOB,
        owner="local",
        created_by="local",
        spec=Spec(task="demo.echo"),
        slot=NOON,
        due_at=NOON,
        wake_at=NOON,
        created_at=NOON - timedelta(minutes=1),
    )
    if state is State.CLAIMED:
        run = replace(run, state=state, node=NodeId("n" * 32), fence=1)
    if state is State.RUNNING:
        run = start(replace(run, state=State.CLAIMED, node=NodeId("n" * 32), fence=1), NOON)
    return replace(run, **changes)  # type: ignore[arg-type]


def fired(job: Job, now: datetime = NOON, unstarted: int = 0, live: int = 0) -> Firing:
    return fire(Due(job=job, unstarted=unstarted, live=live), now=now, horizon=HORIZON, new_id=new_id)


class TestFiring:
    def test_every_slot_of_the_horizon_becomes_a_run(self) -> None:
        firing = fired(a_job())
        assert [run.slot for run in firing.runs] == [NOON + timedelta(seconds=n) for n in range(31)]
        assert firing.next_fire_at == NOON + timedelta(seconds=31)
        assert not firing.skips

    def test_a_planner_looks_again_before_the_horizon_runs_dry(self) -> None:
        firing = fired(a_job())
        assert firing.plan_at is not None
        assert NOON < firing.plan_at <= NOON + HORIZON / 2 - timedelta(seconds=3)  # or a lost planner costs lateness

    def test_a_rare_job_is_planned_shortly_before_its_time(self) -> None:
        firing = fired(a_job("0 9 * * *", next_fire_at=NOON + timedelta(hours=21)))
        assert not firing.runs
        assert firing.plan_at == NOON + timedelta(hours=21) - HORIZON * 2 / 3

    def test_a_rare_job_of_a_zone_is_looked_at_hours_before_its_time_as_well(self) -> None:
        nine = NOON + timedelta(hours=20)
        job = a_job({"type": "cron", "expression": "0 9 * * *", "timezone": "Europe/Berlin"}, next_fire_at=nine)
        first = fired(job)
        assert (first.runs, first.next_fire_at, first.plan_at) == ((), nine, nine - ZONES_LOOK)
        second = fired(replace(job, plan_at=first.plan_at), now=nine - ZONES_LOOK)
        assert (second.runs, second.next_fire_at, second.plan_at) == ((), nine, nine - HORIZON * 2 / 3)

    @pytest.mark.parametrize(
        ("now", "was", "slot", "case"),
        [
            (4, 8, 7, "an hour earlier than it was by the old database"),
            (4, 7, 7, "where it was"),
            (4, 7.5, 7, "half an hour earlier"),
            (4, 6, 7, "an hour later"),
            (6.5, 8, 31, "so soon that it may have been fired already"),
            (6.5, 31.5, 31, "a day later, while today's was run by the old database and comes again"),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_a_slot_that_a_new_time_zone_database_moves(self, now: float, was: float, slot: float, case: str) -> None:
        """In hours of the day on which it is nine in Helsinki at seven."""
        midnight = NOON + timedelta(hours=12)
        job = a_job(
            {"type": "cron", "expression": "0 9 * * *", "timezone": "Europe/Helsinki"},
            next_fire_at=midnight + timedelta(hours=was),
        )
        firing = fired(job, now=midnight + timedelta(hours=now))
        assert (firing.runs, firing.skips) == ((), ())
        assert firing.next_fire_at == midnight + timedelta(hours=slot)

    def test_a_fast_job_has_at_most_fifty_runs_waiting(self) -> None:
        firing = fired(a_job({"type": "every", "seconds": 0.1, "anchor": "2026-11-15T12:00:00Z"}))
        assert len(firing.runs) == MAX_UNSTARTED
        assert firing.next_fire_at == NOON + timedelta(seconds=5)
        assert firing.plan_at == NOON + timedelta(seconds=5) / 3

    def test_a_job_whose_runs_nobody_starts_is_looked_at_later_and_loses_no_slot(self) -> None:
        firing = fired(a_job(), unstarted=MAX_UNSTARTED)
        assert (firing.runs, firing.skips, firing.next_fire_at) == ((), (), NOON)
        assert firing.plan_at == NOON + timedelta(seconds=1)

    def test_the_last_slot_ends_the_schedule_and_the_last_run_finishes_the_job(self) -> None:
        schedule = {"type": "cron", "expression": "* * * * * *", "ends_at": "2026-11-15T12:00:03Z"}
        firing = fired(a_job(schedule))
        assert len(firing.runs) == 3
        assert (firing.next_fire_at, firing.status) == (None, JobStatus.SCHEDULED)
        over = a_job(schedule, next_fire_at=None)
        assert fired(over, live=1).status is JobStatus.SCHEDULED
        assert fired(over, live=0).status is JobStatus.FINISHED

    def test_jitter_moves_the_due_time_and_not_the_slot(self) -> None:
        job = a_job({"type": "cron", "expression": "* * * * *", "jitter_seconds": 20})
        [run] = fired(job).runs[:1]
        assert run.slot == NOON
        assert NOON <= run.due_at <= NOON + timedelta(seconds=20)
        assert fired(job).runs[0].due_at == run.due_at


SPANS = ({"seconds": 3}, {"minutes": 5}, {"hours": 2}, {"days": 400})


class TestMisfire:
    DOWN = timedelta(minutes=5)

    def back(self, misfire: Misfire, **policy: object) -> Firing:
        """Everything was down for five minutes; nothing after 12:00:00 had been fired."""
        return fired(a_job(misfire=misfire, **policy), now=NOON + self.DOWN)

    def test_skip_leaves_a_range_with_its_reason(self) -> None:
        firing = self.back(Misfire.SKIP)
        [missed] = firing.skips
        assert (missed.start, missed.count, missed.reason) == (NOON, 295, Reason.MISFIRE)
        assert firing.runs[0].slot == NOON + self.DOWN - timedelta(seconds=5)

    def test_once_runs_the_newest_missed_slot_only(self) -> None:
        firing = self.back(Misfire.ONCE)
        assert firing.runs[0].slot == NOON + self.DOWN - timedelta(seconds=6)
        assert [(s.count, s.reason) for s in firing.skips] == [(294, Reason.MISFIRE)]

    def test_what_a_user_backfills_is_due_when_it_is_asked_for(self) -> None:
        backfill = self.back(Misfire.ALL).backfill
        assert backfill is not None
        now = NOON + self.DOWN
        page = fill(replace(backfill, trigger=Trigger.BACKFILL), Due(job=a_job()), now=now, new_id=new_id)
        assert page.runs[0].slot == backfill.start
        assert {run.due_at for run in page.runs} == {now}

    def test_all_becomes_a_backfill_that_is_filled_page_by_page(self) -> None:
        firing = self.back(Misfire.ALL)
        backfill = firing.backfill
        assert backfill is not None
        assert (backfill.start, backfill.end) == (NOON, NOON + timedelta(seconds=294))
        job = firing.job
        page = fill(backfill, Due(job=job, unstarted=20), now=NOON + self.DOWN, new_id=new_id)
        assert [run.slot for run in page.runs] == [NOON + timedelta(seconds=n) for n in range(30)]
        assert page.start == NOON + timedelta(seconds=30)
        last = fill(replace(backfill, start=backfill.end), Due(job=job), now=NOON + self.DOWN, new_id=new_id)
        assert (len(last.runs), last.start) == (1, None)

    def test_a_full_job_gets_no_page(self) -> None:
        backfill = self.back(Misfire.ALL).backfill
        assert backfill is not None
        page = fill(backfill, Due(job=a_job(), unstarted=MAX_UNSTARTED), now=NOON, new_id=new_id)
        assert (page.runs, page.start) == ((), backfill.start)

    def test_slots_older_than_the_catch_up_window_are_too_late(self) -> None:
        firing = self.back(Misfire.ONCE, catchup=timedelta(minutes=1))
        assert [(s.count, s.reason) for s in firing.skips] == [(240, Reason.TOO_LATE), (54, Reason.MISFIRE)]
        assert firing.skips[0].start == NOON
        assert firing.skips[1].start == NOON + timedelta(minutes=4)

    @pytest.mark.parametrize("misfire", Misfire)
    @pytest.mark.parametrize("down", [timedelta(**span) for span in SPANS], ids=str)
    @pytest.mark.parametrize("expression", ["* * * * * *", "* * * * *", "*/7 */3 * * *", "0 9 1 * *"])
    def test_every_slot_is_accounted_for_exactly_once(self, misfire: Misfire, down: timedelta, expression: str) -> None:
        first = next_after(parse_schedule(expression, now=NOON), NOON - timedelta(microseconds=1))
        job = a_job(expression, next_fire_at=first, misfire=misfire)
        firing = fired(job, now=NOON + down)
        until = firing.next_fire_at
        assert first is not None
        assert until is not None
        accounted = len(firing.runs) + sum(skip.count for skip in firing.skips)
        if firing.backfill:
            accounted += count_between(
                job.schedule, firing.backfill.start, firing.backfill.end + timedelta(microseconds=1)
            )
        assert accounted == count_between(job.schedule, first, until)

    def test_gap_slots_of_the_skip_policy_are_in_the_ledger(self) -> None:
        schedule = {
            "type": "cron",
            "expression": "30 2 * * *",
            "timezone": "Europe/Berlin",
            "dst": {"gap": "skip"},
        }
        first = datetime(2026, 3, 28, 1, 30, tzinfo=UTC)
        firing = fired(a_job(schedule, next_fire_at=first), now=first)
        assert [(s.start, s.count, s.reason) for s in firing.skips] == [
            (datetime(2026, 3, 29, 1, 0, tzinfo=UTC), 1, Reason.DST_GAP)
        ]

    def test_a_gap_after_the_writing_of_a_job_is_told_once_however_often_it_is_planned(self) -> None:
        schedule = {"type": "cron", "expression": "30 2 * * *", "timezone": "Europe/Berlin", "dst": {"gap": "skip"}}
        written, gap = datetime(2026, 3, 28, 12, tzinfo=UTC), datetime(2026, 3, 29, 1, 0, tzinfo=UTC)
        first = datetime(2026, 3, 30, 0, 30, tzinfo=UTC)
        times = {"created_at": written, "updated_at": written, "plan_at": written}
        job = replace(a_job(schedule, next_fire_at=first), **times)
        firing = fired(job, now=written)
        assert [skipped.start for skipped in firing.skips] == [gap]
        again = replace(job, next_fire_at=firing.next_fire_at, plan_at=firing.plan_at)
        assert fired(again, now=first - timedelta(seconds=20)).skips == ()

    def test_a_slot_that_was_taken_back_to_a_gap_does_not_run_in_it(self) -> None:
        schedule = {"type": "cron", "expression": "30 2 * * *", "timezone": "Europe/Berlin", "dst": {"gap": "skip"}}
        changed, gap = datetime(2026, 3, 28, 12, tzinfo=UTC), datetime(2026, 3, 29, 1, 0, tzinfo=UTC)
        job = replace(a_job(schedule, next_fire_at=gap), updated_at=changed, plan_at=changed)
        firing = fired(job, now=gap - timedelta(seconds=10))
        assert (firing.runs, [skipped.start for skipped in firing.skips]) == ((), [gap])
        assert firing.next_fire_at == datetime(2026, 3, 30, 0, 30, tzinfo=UTC)


def rival(started_at: datetime | None, job_id: JobId = JOB) -> Rival:
    return Rival(job_id=job_id, started_at=started_at)


class TestRelease:
    EARLIER = NOON - timedelta(seconds=1)
    OTHER = JobId("b" * 32)

    def verdict(self, overlap: Overlap, *rivals: Rival, **changes: object) -> Verdict:
        run = a_run(State.CLAIMED, spec=Spec(task="demo.echo", policy=Policy(overlap=overlap)), **changes)
        return release(run, rivals, NOON)

    def test_nobody_ahead_means_go(self) -> None:
        assert self.verdict(Overlap.SKIP) is Verdict.START

    def test_a_slot_that_comes_due_while_its_job_is_going_is_skipped(self) -> None:
        assert self.verdict(Overlap.SKIP, rival(self.EARLIER)) is Verdict.OVERLAP

    def test_buffer_one_keeps_the_first_and_skips_the_next(self) -> None:
        assert self.verdict(Overlap.BUFFER_ONE, rival(self.EARLIER)) is Verdict.WAIT
        assert self.verdict(Overlap.BUFFER_ONE, rival(self.EARLIER), rival(None)) is Verdict.OVERLAP

    def test_late_runs_do_not_overlap_one_another_they_follow(self) -> None:
        later = NOON + timedelta(minutes=5)
        assert self.verdict(Overlap.SKIP, rival(later), rival(None)) is Verdict.WAIT
        assert self.verdict(Overlap.BUFFER_ONE, rival(later), rival(None)) is Verdict.WAIT

    @pytest.mark.parametrize("trigger", [Trigger.MANUAL, Trigger.BACKFILL, Trigger.REQUEUE])
    def test_only_slots_of_the_schedule_are_skipped_for_overlap(self, trigger: Trigger) -> None:
        assert self.verdict(Overlap.SKIP, rival(self.EARLIER), trigger=trigger) is Verdict.WAIT

    def test_a_retry_is_never_skipped(self) -> None:
        assert self.verdict(Overlap.SKIP, rival(self.EARLIER), attempt=1) is Verdict.WAIT

    def test_overlap_is_open_while_the_start_of_a_rival_is_not_known(self) -> None:
        run = a_run()
        assert overlap_is_open(run, [rival(None)])
        assert not overlap_is_open(run, [rival(NOON)])
        assert not overlap_is_open(run, [rival(None, self.OTHER)])
        assert not overlap_is_open(replace(run, trigger=Trigger.MANUAL), [rival(None)])

    def test_another_job_of_the_same_ordering_key_is_waited_for(self) -> None:
        assert self.verdict(Overlap.SKIP, rival(self.EARLIER, self.OTHER)) is Verdict.WAIT
        assert self.verdict(Overlap.ALLOW, rival(self.EARLIER)) is Verdict.WAIT

    def test_a_first_start_after_its_window_is_too_late(self) -> None:
        policy = Policy(start_within=timedelta(seconds=10))
        run = a_run(State.CLAIMED, spec=Spec(task="demo.echo", policy=policy))
        assert release(run, (), NOON + timedelta(seconds=10)) is Verdict.START
        assert release(run, (), NOON + timedelta(seconds=11)) is Verdict.TOO_LATE
        assert release(replace(run, attempt=1), (), NOON + timedelta(hours=1)) is Verdict.START


class TestGates:
    def test_an_ordering_key_is_the_gate_of_its_owner(self) -> None:
        spec = Spec(task="t", ordering_key="user-42")
        assert gate_of(spec, JOB, "ann", recurring=False) != gate_of(spec, JOB, "bob", recurring=False)
        assert gate_of(spec, JOB, "ann", recurring=True) == gate_of(spec, JobId("c" * 32), "ann", recurring=False)

    def test_a_recurring_job_is_its_own_gate_unless_overlap_is_allowed(self) -> None:
        assert gate_of(Spec(task="t"), JOB, "ann", recurring=True) == f"job:{JOB}"
        allowing = Spec(task="t", policy=Policy(overlap=Overlap.ALLOW))
        assert gate_of(allowing, JOB, "ann", recurring=True) is None
        assert gate_of(Spec(task="t"), JOB, "ann", recurring=False) is None

    def test_a_manual_run_passes_the_gate_of_its_job(self) -> None:
        run = manual_run(a_job(), '{"a": 1}', now=NOON, new_id=new_id)
        assert (run.gate, run.trigger, run.due_at) == (f"job:{JOB}", Trigger.MANUAL, NOON)
        assert run.spec.params == '{"a": 1}'


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
