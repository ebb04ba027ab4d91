"""The ledger tells what became of every slot, each once."""

from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from horae.core.decisions.firing import Due, Firing, fire
from horae.core.ids import Ids
from horae.core.job_rules import close_pause, resume
from horae.core.model import (
    Backfill,
    Job,
    JobId,
    JobStatus,
    Misfire,
    Reason,
    Run,
    RunId,
    Skip,
    Spec,
    State,
    Trigger,
)
from horae.core.schedule.evaluate import next_after
from horae.core.schedule.parse import parse_schedule
from horae.core.values import replace
from horae.ports.reader import Ledger
from horae.queries.ledger import SlotEntry, SlotOutcome, slot_entries

new_id = Ids()
START = datetime(2026, 3, 1, tzinfo=UTC)
EVERY_SECOND = parse_schedule("* * * * * *", now=START)
NOTHING = Ledger(runs=[], skips=[], backfills=[])


def second(number: int) -> datetime:
    return START + timedelta(seconds=number)


def a_job(**changes: object) -> Job:
    job = Job(
        id=JobId(new_id()),
        owner="local",
        created_by="local",
        spec=Spec(task="echo"),
        schedule=EVERY_SECOND,
        next_fire_at=second(1),
        plan_at=START,
        created_at=START,
        updated_at=START,
    )
    return replace(job, **changes)  # type: ignore[arg-type]


def a_run(job: Job, slot: datetime, **changes: object) -> Run:
    run = Run(
        id=RunId(new_id()),
        job_id=job.id,
        owner="local",
        created_by="local",
        spec=job.spec,
        slot=slot,
        due_at=slot,
        wake_at=slot,
        created_at=START,
    )
    return replace(run, **changes)  # type: ignore[arg-type]


def outcome_of(run: Run) -> tuple[SlotOutcome, Reason | None]:
    job = a_job(next_fire_at=None)
    [entry] = slot_entries(job, replace(NOTHING, runs=[run]), start=START, end=second(100), now=second(100))
    assert entry.run_id == run.id
    return entry.outcome, entry.reason


def test_a_slot_is_told_by_its_run() -> None:
    job = a_job()
    assert outcome_of(a_run(job, second(1))) == (SlotOutcome.PENDING, None)
    assert outcome_of(a_run(job, second(1), state=State.RUNNING)) == (SlotOutcome.PENDING, None)
    assert outcome_of(a_run(job, second(1), state=State.SUCCEEDED)) == (SlotOutcome.RAN, None)
    assert outcome_of(a_run(job, second(1), state=State.FAILED)) == (SlotOutcome.RAN, None)
    skipped = a_run(job, second(1), state=State.SKIPPED, reason=Reason.OVERLAP)
    assert outcome_of(skipped) == (SlotOutcome.SKIPPED, Reason.OVERLAP)


def test_a_cancelled_run_ran_only_if_it_had_started() -> None:
    job = a_job()
    assert outcome_of(a_run(job, second(1), state=State.CANCELLED)) == (SlotOutcome.SKIPPED, Reason.CANCELLED)
    started = a_run(job, second(1), state=State.CANCELLED, first_started_at=second(1))
    assert outcome_of(started) == (SlotOutcome.RAN, None)


def test_a_slot_that_a_change_of_schedule_gave_a_new_run_is_told_once() -> None:
    job = a_job(next_fire_at=None)
    old = a_run(job, second(1), revision=1, state=State.CANCELLED)
    new = a_run(job, second(1), revision=2)
    [entry] = slot_entries(job, replace(NOTHING, runs=[old, new]), start=START, end=second(9), now=second(9))
    assert entry.run_id == new.id


def test_slots_that_nobody_fired_yet_are_pending() -> None:
    job = a_job(next_fire_at=second(4))
    [entry] = slot_entries(job, NOTHING, start=START, end=second(9), now=second(5))
    assert entry == SlotEntry(start=second(4), end=second(9), count=6, outcome=SlotOutcome.PENDING)


def test_slots_that_passed_in_a_pause_are_skipped_and_those_to_come_are_pending() -> None:
    job = a_job(next_fire_at=second(4), status=JobStatus.PAUSED)
    passed, coming = slot_entries(job, NOTHING, start=START, end=second(9), now=second(5))
    assert passed == SlotEntry(
        start=second(4), end=second(5), count=2, outcome=SlotOutcome.SKIPPED, reason=Reason.PAUSED
    )
    assert coming == SlotEntry(start=second(6), end=second(9), count=4, outcome=SlotOutcome.PENDING)


def test_a_job_that_is_over_has_no_slots_to_come() -> None:
    for status in (JobStatus.CANCELLED, JobStatus.FINISHED):
        assert slot_entries(a_job(status=status), NOTHING, start=START, end=second(9), now=second(9)) == []


def test_slots_that_are_being_caught_up_with_are_pending_but_those_a_user_backfills_are_none() -> None:
    job = a_job(next_fire_at=second(10))
    backfill = Backfill(
        id=new_id(),
        job_id=job.id,
        trigger=Trigger.SCHEDULE,
        start=second(3),
        end=second(9),
        plan_at=START,
        created_at=START,
    )
    asked_for = replace(backfill, id=new_id(), trigger=Trigger.BACKFILL)
    ledger = replace(NOTHING, backfills=[backfill, asked_for])
    [entry] = slot_entries(job, ledger, start=second(5), end=second(9), now=second(9))
    assert entry == SlotEntry(start=second(5), end=second(9), count=5, outcome=SlotOutcome.PENDING)


def test_a_skipped_range_is_told_as_it_was_kept() -> None:
    job = a_job(next_fire_at=None)
    skipped = Skip(job_id=job.id, revision=1, start=second(2), end=second(40), count=39, reason=Reason.MISFIRE)
    [entry] = slot_entries(job, replace(NOTHING, skips=[skipped]), start=second(10), end=second(20), now=second(60))
    assert (entry.start, entry.end, entry.count) == (second(2), second(40), 39)
    assert (entry.outcome, entry.reason) == (SlotOutcome.SKIPPED, Reason.MISFIRE)


class Book:
    """A job with everything that was ever written about its slots, as a store keeps it."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.runs: list[Run] = []
        self.skips: list[Skip] = []
        self.backfills: list[Backfill] = []

    def apply(self, firing: Firing) -> None:
        self.job = replace(firing.job, next_fire_at=firing.next_fire_at, plan_at=firing.plan_at, status=firing.status)
        self.runs += firing.runs
        self.skips += firing.skips
        self.backfills += [firing.backfill] if firing.backfill else []

    def retract(self, now: datetime) -> None:
        """As a store does for a pause: runs due later are taken back."""
        taken = [run.slot for run in self.runs if run.due_at > now and run.slot]
        self.runs = [run for run in self.runs if run.due_at <= now]
        self.skips = [skip for skip in self.skips if skip.start <= now]
        slots = [*taken, *([self.job.next_fire_at] if self.job.next_fire_at else [])]
        self.job = replace(self.job, next_fire_at=min(slots, default=None), revision=self.job.revision + 1)

    def ledger(self) -> Ledger:
        return Ledger(runs=self.runs, skips=self.skips, backfills=self.backfills)


ACTS = st.lists(
    st.tuples(
        st.sampled_from(["plan", "pause", "resume skip", "resume once", "resume all", "close"]),
        st.integers(min_value=0, max_value=90),
    ),
    max_size=25,
)


@settings(max_examples=150, deadline=None)
@given(acts=ACTS, expression=st.sampled_from(["* * * * * *", "*/7 * * * * *", "every 2s", "* * * * *"]))
def test_whatever_pauses_and_resumes_a_job_every_slot_is_accounted_for_once(
    acts: list[tuple[str, int]], expression: str
) -> None:
    schedule = parse_schedule(expression, now=START)
    book = Book(a_job(schedule=schedule, next_fire_at=next_after(schedule, START)))
    now = START
    for act, seconds in acts:
        now += timedelta(seconds=seconds)
        paused = book.job.status is JobStatus.PAUSED
        if act == "plan" and not paused:
            book.apply(fire(Due(job=book.job), now=now, horizon=timedelta(seconds=30), new_id=new_id))
        elif act == "pause" and not paused:
            while book.job.next_fire_at and book.job.next_fire_at <= now:
                book.apply(fire(Due(job=book.job), now=now, horizon=timedelta(), new_id=new_id))
            book.job = replace(book.job, status=JobStatus.PAUSED)
            book.retract(now)
        elif act == "close" and paused:
            book.apply(close_pause(book.job, now=now, new_id=new_id))
            assert book.job.status is JobStatus.PAUSED
        elif act.startswith("resume") and paused:
            missed = Misfire(act.split()[1])
            book.apply(resume(book.job, missed, now=now, new_id=new_id))
            assert book.job.status is JobStatus.SCHEDULED
    end = now + timedelta(seconds=60)
    found = slot_entries(book.job, book.ledger(), start=START, end=end, now=now)
    assert _slots_told([entry for entry in found if entry.start <= end], schedule, end) == _slots(schedule, end)


def _slots(schedule: object, end: datetime) -> list[datetime]:
    slots = []
    slot = next_after(schedule, START)  # type: ignore[arg-type]
    while slot is not None and slot <= end:
        slots.append(slot)
        slot = next_after(schedule, slot)  # type: ignore[arg-type]
    return slots


def _slots_told(found: list[SlotEntry], schedule: object, end: datetime) -> list[datetime]:
    """Every slot of every entry: in order, so that one that is told twice shows."""
    told: list[datetime] = []
    for entry in found:
        slot: datetime | None = entry.start
        slots = []
        while slot is not None and slot <= entry.end:
            slots.append(slot)
            slot = next_after(schedule, slot)  # type: ignore[arg-type]
        assert len(slots) == entry.count
        told += slots
    return [slot for slot in told if slot <= end]
