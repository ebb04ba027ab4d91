"""Judges of store rows: unusual histories that are correct, and wrong ones that no engine would write."""

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from horae.core.decisions.retry import RetryPolicy
from horae.core.events import EventKind
from horae.core.model import (
    Attempt,
    Backfill,
    Job,
    JobError,
    JobId,
    JobStatus,
    NodeId,
    OnFailure,
    Outcome,
    Policy,
    Reason,
    Run,
    RunId,
    Skip,
    Spec,
    State,
    Trigger,
)
from horae.core.records import PastSchedule, ScheduleTrail
from horae.core.schedule.parse import parse_schedule
from horae.core.values import replace
from horae.proof.checking import Code, History, violations
from horae.proof.checking.findings import EndEvent

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
EVERY_MINUTE = parse_schedule("* * * * *", now=START)
JOB, ONE, OTHER = JobId("a" * 32), NodeId("1" * 32), NodeId("2" * 32)


def at(minute: float) -> datetime:
    return START + minute * MINUTE


def a_run(number: int = 1, **changes: Any) -> Run:
    """A run of the job, due at that minute, that succeeded at once."""
    due = at(number)
    run = Run(
        id=RunId(f"{number:032x}"),
        job_id=JOB,
        owner="local",
        created_by="local",
        spec=Spec(task="echo", policy=Policy(retry=RetryPolicy(max_retries=2, initial=MINUTE, jitter=False))),
        slot=due,
        due_at=due,
        wake_at=due,
        gate=f"job:{JOB}",
        state=State.SUCCEEDED,
        node=ONE,
        fence=1,
        attempt=1,
        created_at=START,
        first_started_at=due,
        started_at=due,
        finished_at=due,
    )
    return replace(run, **changes)


def a_job(**changes: Any) -> Job:
    job = Job(
        id=JOB,
        owner="local",
        created_by="local",
        spec=Spec(task="echo"),
        schedule=EVERY_MINUTE,
        next_fire_at=at(6),
        plan_at=at(6),
        created_at=START,
        updated_at=START,
    )
    return replace(job, **changes)


def an_attempt(number: int, fence: int, start: float, end: float, **changes: Any) -> Attempt:
    attempt = Attempt(
        run_id=a_run().id,
        number=number,
        fence=fence,
        node=ONE,
        started_at=at(start),
        ended_at=at(end),
        outcome=Outcome.FAILED,
        error=JobError(type="ValueError", message="boom"),
    )
    return replace(attempt, **changes)


def codes(*runs: Run, attempts: tuple[Attempt, ...] = (), **more: Any) -> list[Code]:
    letters = frozenset(run.id for run in runs if run.state is State.FAILED and run.resolution is None)
    by_run = {runs[0].id: attempts} if attempts else {}
    history = History(now=at(5.5), runs=runs, attempts=by_run, dead_letters=letters, **more)
    return [violation.code for violation in violations(history)]


# --- lives


def test_an_attempt_may_overlap_one_whose_lease_was_lost() -> None:
    lost = an_attempt(1, 1, 1, 3, outcome=Outcome.LOST, error=None)
    run = a_run(fence=2, crashes=1, node=OTHER, started_at=at(2), finished_at=at(4))
    assert codes(run, attempts=(lost,)) == []
    released = replace(lost, outcome=Outcome.RELEASED)
    assert codes(run, attempts=(released,)) == [Code.ATTEMPTS_OVERLAP]


def test_an_error_may_choose_its_own_delay_but_an_ordinary_one_cannot() -> None:
    run = a_run(fence=2, attempt=2, started_at=at(1.1), finished_at=at(1.1), wake_at=at(1.1))
    asked = an_attempt(1, 1, 1, 1, error=JobError(type="Throttled", message="in 6 s"))
    assert codes(run, attempts=(asked,)) == []
    assert codes(run, attempts=(an_attempt(1, 1, 1, 1),)) == [Code.RETRIED_EARLY]
    assert codes(run, attempts=(replace(asked, outcome=Outcome.TIMEOUT),)) == [Code.RETRIED_EARLY]


def test_no_attempt_begins_before_the_run_may_wake() -> None:
    run = a_run(fence=2, attempt=2, started_at=at(3), finished_at=at(3), wake_at=at(4))
    assert codes(run, attempts=(an_attempt(1, 1, 1, 1),)) == [Code.RETRIED_EARLY]


def test_an_error_may_forbid_another_try_but_an_ordinary_one_cannot() -> None:
    run = a_run(state=State.FAILED)
    assert codes(run, attempts=(an_attempt(1, 1, 1, 1, error=JobError(type="Rejected", message="no")),)) == []
    assert codes(run, attempts=(an_attempt(1, 1, 1, 1),)) == [Code.GAVE_UP_EARLY]


def test_a_run_that_its_workers_die_of_is_failed() -> None:
    lost = tuple(an_attempt(1, fence, fence, fence + 0.1, outcome=Outcome.LOST) for fence in range(1, 6))
    run = a_run(fence=5, crashes=5, state=State.FAILED, started_at=at(5), finished_at=at(5.1))
    assert codes(run, attempts=lost) == []
    alive = replace(run, state=State.SCHEDULED, attempt=0, finished_at=None)
    assert codes(alive, attempts=lost) == [Code.NOT_A_DEAD_LETTER]


def test_a_one_shot_that_was_given_another_time_after_a_lost_attempt_did_not_start_early() -> None:
    once = parse_schedule("now", now=START)
    lost = an_attempt(1, 1, 1, 2, outcome=Outcome.LOST, error=None)
    moved = a_run(3, id=a_run().id, slot=None, gate=None, schedule=once, revision=2, fence=2, first_started_at=at(1))
    assert codes(moved, attempts=(lost,)) == []
    assert codes(replace(moved, revision=1), attempts=(lost,)) == [Code.EARLY_START]


def test_attempts_of_runs_from_before_the_kept_history_are_not_judged() -> None:
    run = a_run(attempt=3, fence=3)
    assert codes(run) == [Code.ATTEMPT_HOLE]
    assert codes(run, since=at(0.5)) == []


def test_what_is_over_stays_so() -> None:
    assert codes(a_run(finished_at=None)) == [Code.MOVED_AFTER_END]
    assert codes(a_run(state=State.RUNNING)) == [Code.MOVED_AFTER_END]
    cancelled = an_attempt(1, 1, 1, 1, outcome=Outcome.CANCELLED, error=None)
    back = a_run(state=State.SCHEDULED, attempt=0, finished_at=None)
    assert codes(back, attempts=(cancelled,)) == [Code.MOVED_AFTER_END]


def test_a_run_is_there_once() -> None:
    assert Code.COMMITTED_TWICE in codes(a_run(), replace(a_run(), state=State.RUNNING, finished_at=None))


# --- dead letters


def test_the_list_of_dead_letters_is_what_failed_and_is_not_resolved() -> None:
    failed = a_run(state=State.FAILED, attempt=3, fence=3, started_at=at(5), finished_at=at(5))
    attempts = (an_attempt(1, 1, 1, 1), an_attempt(2, 2, 2, 2), an_attempt(3, 3, 5, 5))
    history = History(now=at(5.5), runs=[failed], attempts={failed.id: attempts})
    assert [found.code for found in violations(history)] == [Code.NOT_A_DEAD_LETTER]
    listed = dataclasses.replace(history, dead_letters=frozenset({failed.id}))
    assert violations(listed) == []
    resolved = dataclasses.replace(listed, runs=[replace(failed, resolution="discarded")])
    assert [found.code for found in violations(resolved)] == [Code.BAD_RESOLUTION]


# --- gates


def keyed(number: int, **changes: Any) -> Run:
    spec = Spec(task="echo", ordering_key="k", policy=Policy(on_failure=changes.pop("on_failure", OnFailure.CONTINUE)))
    return a_run(number, **{"spec": spec, "gate": "key:local:k", "slot": None, "trigger": Trigger.MANUAL, **changes})


def test_a_run_that_came_too_late_for_its_place_was_not_overtaken() -> None:
    second = keyed(2)
    first = keyed(1, first_started_at=at(3), started_at=at(3), finished_at=at(3))
    assert codes(first, second) == [Code.OUT_OF_ORDER]
    assert codes(replace(first, created_at=at(2)), second) == []


def test_a_requeued_run_that_takes_its_old_place_may_find_others_held_already() -> None:
    waiting = keyed(2, first_started_at=at(4), started_at=at(4), finished_at=at(4))
    again = keyed(1, created_at=at(3), wake_at=at(3), first_started_at=at(5), started_at=at(5), finished_at=at(5))
    assert codes(again, waiting) == []
    late = keyed(4, first_started_at=at(4.5), started_at=at(4.5), finished_at=at(4.5))
    assert codes(again, late) == [Code.OUT_OF_ORDER]


def test_a_run_that_was_being_written_when_the_next_could_be_claimed_was_not_overtaken() -> None:
    """A worker may then hold the next for minutes, behind others of its gate."""
    second = keyed(2, first_started_at=at(4), started_at=at(4), finished_at=at(4))
    due, later = at(2) - timedelta(seconds=1), {"first_started_at": at(5), "started_at": at(5), "finished_at": at(5)}
    first = keyed(1, due_at=due, wake_at=due, created_at=at(2) - timedelta(seconds=5), **later)
    assert codes(first, second) == []
    assert codes(replace(first, created_at=at(2) - timedelta(seconds=11)), second) == [Code.OUT_OF_ORDER]


def test_clocks_of_two_nodes_may_differ_a_little() -> None:
    moment = at(1) + timedelta(milliseconds=100)
    first = keyed(1, finished_at=moment, node=OTHER)
    second = keyed(2, due_at=at(1), wake_at=at(1), first_started_at=at(1), started_at=at(1), finished_at=at(1))
    assert codes(first, second) == []
    assert codes(replace(first, node=ONE), second) == [Code.OUT_OF_ORDER]


def test_a_failure_that_blocks_holds_what_comes_after_it_until_it_is_resolved() -> None:
    fatal = an_attempt(1, 1, 1, 1, error=JobError(type="Fatal", message="no"))
    failed = keyed(1, state=State.FAILED, on_failure=OnFailure.BLOCK)
    assert codes(failed, keyed(2), attempts=(fatal,)) == [Code.BLOCK_IGNORED]
    assert codes(replace(failed, resolution="discarded"), keyed(2), attempts=(fatal,)) == []


# --- slots


def slots(*runs: Run, job: Job | None = None, **more: Any) -> list[Code]:
    return codes(*runs, jobs=[job or a_job()], **more)


def a_skip(first: int, last: int, **changes: Any) -> Skip:
    skip = Skip(job_id=JOB, revision=1, start=at(first), end=at(last), count=last - first + 1, reason=Reason.MISFIRE)
    return replace(skip, **changes)


def test_runs_skips_and_what_is_caught_up_with_tell_every_slot_together() -> None:
    catching_up = Backfill(
        id="b" * 32, job_id=JOB, trigger=Trigger.SCHEDULE, start=at(4), end=at(5), plan_at=at(5), created_at=at(5)
    )
    assert slots(a_run(1), skips=[a_skip(2, 3)], backfills=[catching_up]) == []
    by_a_user = replace(catching_up, trigger=Trigger.BACKFILL)
    assert slots(a_run(1), skips=[a_skip(2, 3)], backfills=[by_a_user]) == [Code.SLOT_MISSING]
    assert slots(a_run(1), skips=[a_skip(1, 3)], backfills=[catching_up]) == [Code.SLOT_TWICE]


@pytest.mark.parametrize("status", [JobStatus.SCHEDULED, JobStatus.PAUSED])
def test_slots_that_nobody_has_decided_on_are_not_missing(status: JobStatus) -> None:
    assert slots(a_run(1), job=a_job(status=status, next_fire_at=at(2))) == []


def test_a_job_that_is_over_owes_nothing_after_its_end() -> None:
    over = a_job(status=JobStatus.CANCELLED, next_fire_at=None, revision=2, updated_at=at(2.5))
    assert slots(a_run(1), a_run(2), job=over) == []
    assert slots(a_run(4, created_at=at(3.5), revision=2), job=over) == [Code.SLOT_UNPLANNED]


def test_slots_of_schedules_that_held_before_are_not_missed() -> None:
    changed = a_job(revision=2, updated_at=at(3.5))
    assert slots(a_run(4, revision=2), a_run(5, revision=2), job=changed) == []
    assert slots(a_run(5, revision=2), job=changed) == [Code.SLOT_MISSING]
    assert slots(a_run(4), a_run(5), job=a_job(), since=at(3.5)) == []


def test_slots_of_schedules_that_held_before_are_expected_where_they_are_known() -> None:
    schedule = parse_schedule("30 * * * * *", now=START)
    changed = a_job(revision=3, updated_at=at(4), schedule=schedule, next_fire_at=at(5.5))
    past = PastSchedule(schedule=EVERY_MINUTE, revision=1, since=START, until=at(3))
    trail = ScheduleTrail(
        owner="local", job_id=JOB, revision=3, changed_at=at(4), since=at(3), since_revision=2, past=(past,)
    )
    later = [
        a_run(9 + place, slot=at(half), due_at=at(half), wake_at=at(half), revision=2,
              first_started_at=at(half), started_at=at(half), finished_at=at(half))
        for place, half in enumerate((3.5, 4.5))
    ]  # fmt: skip
    runs = [a_run(1), a_run(2), a_run(3), *later]
    for lost in (None, *runs):
        kept = [run for run in runs if run is not lost]
        expected = [] if lost is None else [Code.SLOT_MISSING]
        assert slots(*kept, job=changed, trails={JOB: trail}) == expected, lost
    stray = replace(a_run(2), id=RunId("d" * 32), slot=at(2.5), due_at=at(2.5), wake_at=at(2.5))
    assert Code.SLOT_UNPLANNED in slots(*runs, stray, job=changed, trails={JOB: trail})


def test_a_run_that_gave_way_to_a_later_revision_does_not_count() -> None:
    changed = a_job(revision=2, updated_at=at(3.5))
    given_up = a_run(4, id=RunId("c" * 32), state=State.CANCELLED, first_started_at=None, started_at=None, attempt=0)
    assert slots(given_up, a_run(4, revision=2), a_run(5, revision=2), job=changed) == []
    kept = replace(given_up, revision=2)
    assert Code.SLOT_TWICE in slots(kept, a_run(4, revision=2), a_run(5, revision=2), job=changed)


def test_a_slot_may_overlap_a_run_that_somebody_asked_for() -> None:
    manual = a_run(9, trigger=Trigger.MANUAL, slot=None, due_at=at(0.5), wake_at=at(0.5),
                   first_started_at=at(0.5), started_at=at(0.5), finished_at=at(1.5))  # fmt: skip
    skipped = a_run(1, state=State.SKIPPED, reason=Reason.OVERLAP, first_started_at=None, started_at=None, attempt=0)
    rest = [a_run(number) for number in (2, 3, 4, 5)]
    assert slots(manual, skipped, *rest) == []
    assert slots(skipped, *rest) == [Code.SKIPPED_WITHOUT_CAUSE]


def test_a_slot_may_be_skipped_beside_a_run_whose_end_the_store_had_not_heard_of() -> None:
    going = a_run(1, finished_at=at(1.2))
    skipped = a_run(2, state=State.SKIPPED, reason=Reason.OVERLAP, first_started_at=None, started_at=None, attempt=0)
    rest = [a_run(number) for number in (3, 4, 5)]

    def judged(heard: datetime, skipped: Run = skipped, kind: EventKind = EventKind.RUN_SKIPPED) -> list[Code]:
        decided_at = skipped.finished_at or skipped.due_at
        events = {
            going.id: EndEvent(kind=EventKind.RUN_SUCCEEDED, at=heard),
            skipped.id: EndEvent(kind=kind, at=decided_at),
        }
        return slots(going, skipped, *rest, end_events=events)

    assert judged(at(2.1)) == []
    assert judged(at(1.9)) == [Code.SKIPPED_WITHOUT_CAUSE], "it was known before the slot was due"
    assert judged(at(2.1), kind=EventKind.RUN_SUCCEEDED) == [Code.SKIPPED_WITHOUT_CAUSE], "nobody skipped it"
    late = replace(skipped, finished_at=at(3))  # after an outage, and a look takes its time
    assert judged(at(3) - timedelta(seconds=5), late) == []
    assert judged(at(2.5), late) == [Code.SKIPPED_WITHOUT_CAUSE]


def test_slots_that_a_clock_change_swallows_are_told_once() -> None:
    day = timedelta(days=1)
    schedule = parse_schedule(
        {"type": "cron", "expression": "30 2 * * *", "timezone": "Europe/Berlin", "dst": {"gap": "skip"}}, now=START
    )
    gap = datetime(2026, 3, 29, 1, tzinfo=UTC)
    job = a_job(schedule=schedule, created_at=gap - day / 2, updated_at=gap - day / 2, next_fire_at=gap + day * 9)
    told = a_skip(1, 1, start=gap, end=gap, reason=Reason.DST_GAP)
    history = History(now=gap + day / 2, jobs=[job], skips=[told])
    assert violations(history) == []
    assert [found.code for found in violations(dataclasses.replace(history, skips=[]))] == [Code.SLOT_MISSING]
    assert [found.code for found in violations(dataclasses.replace(history, skips=[told, told]))] == [Code.SLOT_TWICE]
