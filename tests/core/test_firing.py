"""When slots become runs, and what happens to missed slots."""

from datetime import UTC, datetime, timedelta

import pytest

from horae.core.decisions.firing import MAX_UNSTARTED, ZONES_LOOK, Due, Firing, fill, fire
from horae.core.model import Job, JobStatus, Misfire, Reason, Trigger
from horae.core.schedule.evaluate import count_between, next_after
from horae.core.schedule.parse import parse_schedule
from horae.core.values import replace
from tests.core.builders import HORIZON, NOON, a_job, new_id


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

    def test_a_planner_that_is_alone_looks_again_when_little_is_left(self) -> None:
        fast = fire(Due(job=a_job()), now=NOON, horizon=HORIZON, new_id=new_id, refill=0.1)
        assert fast.plan_at == NOON + timedelta(seconds=31) - HORIZON / 10
        rare = a_job("0 9 * * *", next_fire_at=NOON + timedelta(hours=21))
        at = fire(Due(job=rare), now=NOON, horizon=HORIZON, new_id=new_id, refill=0.1).plan_at
        assert at == NOON + timedelta(hours=21) - HORIZON / 10

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
