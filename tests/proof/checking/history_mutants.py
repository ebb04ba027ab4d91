"""Violations to plant in clean recorded histories, each with the invariant that it breaks."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from msgspec.structs import replace

from horae.proof.checking.history.records import (
    Action,
    Effect,
    Fail,
    FinalAttempt,
    FinalCounts,
    FinalJob,
    FinalRun,
    FinalSkip,
    HandlerEvent,
    InjectedFault,
    Invoke,
    LeaseGranted,
    Line,
    Ok,
    ResultReport,
    Setup,
)
from tests.proof.checking.clean_histories import BEGIN, LATENESS, OUTAGE, QUIET, RECOVERY, SECONDS

END = BEGIN + SECONDS + QUIET
T = TypeVar("T")


class NotApplicable(Exception):
    """The history contains nothing in which this violation could be planted."""


@dataclass
class Draft:
    """A history that is being changed."""

    lines: list[Line]
    runs: dict[str, FinalRun] = field(init=False)

    def __post_init__(self) -> None:
        self.runs = {line.run: line for line in self.lines if isinstance(line, FinalRun)}

    def pick(self, fits: Callable[[FinalRun], object]) -> FinalRun:
        return first(run for run in sorted(self.runs.values(), key=lambda run: run.run) if fits(run))

    def swap(self, old: Line, *new: Line) -> None:
        self.lines[self.lines.index(old) : self.lines.index(old) + 1] = new

    def drop(self, goes: Callable[[Line], object]) -> None:
        self.lines[:] = [line for line in self.lines if not goes(line)]

    def effects(self, run: FinalRun) -> list[Effect]:
        of = [line for line in self.lines if isinstance(line, Effect) and line.run == run.run]
        return sorted(of, key=lambda effect: effect.at)

    def shift(self, run: FinalRun, seconds: float, *, fence: int = 0) -> None:
        """Move the lines of a run from a fence on by some seconds."""
        for line in list(self.lines):
            if isinstance(line, Effect | LeaseGranted | ResultReport) and line.run == run.run and line.fence >= fence:
                self.swap(line, replace(line, at=line.at + seconds))

    def forget(self, run: FinalRun, *, final: bool = True) -> None:
        """Remove a run from the history."""
        kinds = (Effect, LeaseGranted, ResultReport, FinalRun) if final else (Effect, LeaseGranted, ResultReport)
        self.drop(lambda line: isinstance(line, kinds) and line.run == run.run)

    def start(self, run: FinalRun, at: float, *, fence: int, attempt: int = 1, name: str | None = None) -> None:
        """Add a handler that starts and succeeds."""
        effect = Effect(
            at=at, event=HandlerEvent.START, run=name or run.run, job=run.job, attempt=attempt, fence=fence,
            due=run.due_at, label=run.label,
        )  # fmt: skip
        self.lines += [effect, replace(effect, at=at + 0.1, event=HandlerEvent.END)]

    def calls(self, action: Action) -> list[tuple[Invoke, Ok]]:
        oks = {line.call: line for line in self.lines if isinstance(line, Ok)}
        asked = [line for line in self.lines if isinstance(line, Invoke) and line.action is action]
        return sorted(((line, oks[line.call]) for line in asked if line.call in oks), key=lambda pair: pair[0].at)

    def is_quiet(self, at: float) -> bool:
        faults = [line for line in self.lines if isinstance(line, InjectedFault)]
        return not any(fault.at - 30 <= at <= (fault.until or fault.at) + RECOVERY + 6 for fault in faults)

    def is_broken(self, at: float) -> bool:
        faults = [line for line in self.lines if isinstance(line, InjectedFault)]
        return any(fault.at <= at <= (fault.until or fault.at) + RECOVERY for fault in faults)

    def answered(self, run: FinalRun) -> bool:
        return any(ok.run == run.run for _, ok in self.calls(Action.CREATE))


def first(found: Iterable[T]) -> T:
    for one in found:
        return one
    raise NotApplicable


# --- what kinds of runs there are


def is_plain(run: FinalRun) -> bool:
    """A one-shot that succeeded at the first attempt."""
    once = run.slot is None and run.trigger == "schedule" and run.ordering_key is None and run.queue == "default"
    return once and run.status == "succeeded" and len(run.attempts) == 1 and not run.crashes


def outcomes(run: FinalRun) -> list[str]:
    return [attempt.outcome for attempt in run.attempts]


def retried(run: FinalRun) -> bool:
    return outcomes(run)[:2] == ["failed", "succeeded"] and not run.crashes


def is_slot(run: FinalRun) -> bool:
    return run.slot is not None and run.status == "succeeded" and len(run.attempts) == 1


# --- I1, I2, I3, I18


def a_run_is_dropped(draft: Draft) -> None:
    draft.forget(draft.pick(lambda run: is_plain(run) and draft.answered(run)))


def a_run_never_starts(draft: Draft) -> None:
    run = draft.pick(is_plain)
    draft.forget(run, final=False)
    draft.swap(run, replace(run, status="scheduled", finished_at=None, started_at=None, attempts=(), attempt=0))


def a_recurring_job_is_gone(draft: Draft) -> None:
    accepted = {ok.job for _, ok in draft.calls(Action.CREATE)}
    job = first(line for line in draft.lines if isinstance(line, FinalJob) and line.job in accepted)
    draft.drop(lambda line: isinstance(line, FinalJob | FinalSkip | FinalRun | Effect) and line.job == job.job)


def a_success_has_no_start(draft: Draft) -> None:
    draft.forget(draft.pick(is_plain), final=False)


def a_run_starts_two_seconds_early(draft: Draft) -> None:
    draft.shift(draft.pick(lambda run: is_plain(run) and run.due_at > run.created_at + 5), -2.2)


def a_slot_starts_early(draft: Draft) -> None:
    draft.shift(draft.pick(is_slot), -0.5)


def a_retry_comes_early(draft: Draft) -> None:
    run = draft.pick(retried)
    ended, started = draft.effects(run)[1:3]
    draft.shift(run, ended.at + 0.5 - started.at, fence=started.fence)


def a_run_starts_late(draft: Draft) -> None:
    run = draft.pick(lambda run: is_plain(run) and draft.answered(run) and draft.is_quiet(run.due_at))
    draft.shift(run, LATENESS + 1)


def most_runs_start_late(draft: Draft) -> None:
    """Each start within its bound, but the percentiles are not."""
    first(run for run in draft.runs.values() if is_plain(run) and draft.is_quiet(run.due_at))
    setup = first(line for line in draft.lines if isinstance(line, Setup))
    draft.swap(setup, replace(setup, lateness_p50=0.0005, lateness_p99=0.0005))


def recovery_takes_too_long(draft: Draft) -> None:
    run = draft.pick(lambda run: is_slot(run) and draft.is_broken(run.due_at) and run.due_at < OUTAGE[0])
    label = run.label
    allows = any(
        isinstance(line, Invoke) and line.definition and line.definition.label == label
        and line.definition.overlap == "allow" for line in draft.lines
    )  # fmt: skip
    if not allows:
        raise NotApplicable
    draft.shift(run, END - 1 - run.due_at)


# --- I4


def two_results_are_committed(draft: Draft) -> None:
    run = draft.pick(is_plain)
    again = replace(run.attempts[0], fence=run.fence + 1)
    draft.swap(run, replace(run, fence=run.fence + 1, attempts=[*run.attempts, again]))


def a_stale_report_is_taken(draft: Draft) -> None:
    report = first(line for line in draft.lines if isinstance(line, ResultReport) and not line.accepted)
    newer = [line for line in draft.lines if isinstance(line, LeaseGranted) and line.run == report.run]
    if max(lease.fence for lease in newer) == report.fence:
        raise NotApplicable
    last = max(lease.at for lease in newer)
    draft.swap(report, replace(report, accepted=True, at=max(report.at, last + 0.01)))


def a_success_keeps_an_old_fence(draft: Draft) -> None:
    run = draft.pick(is_plain)
    draft.swap(run, replace(run, fence=run.fence + 1))


def attempts_overlap_without_a_lost_lease(draft: Draft) -> None:
    run = draft.pick(retried)
    ended, started = draft.effects(run)[1:3]
    draft.shift(run, ended.at - 0.008 - started.at, fence=started.fence)


def a_fence_is_given_twice(draft: Draft) -> None:
    run = draft.pick(is_plain)
    draft.start(run, draft.effects(run)[-1].at + 0.01, fence=run.fence)


def a_result_comes_before_its_end(draft: Draft) -> None:
    end = draft.effects(draft.pick(is_plain))[-1]
    draft.swap(end, replace(end, at=end.at + 1))


def a_run_is_there_twice(draft: Draft) -> None:
    draft.lines.append(draft.pick(is_plain))


# --- I5, I20


def a_slot_has_two_runs(draft: Draft) -> None:
    run = draft.pick(is_slot)
    for line in list(draft.lines):
        if isinstance(line, Effect | FinalRun) and line.run == run.run:
            draft.lines.append(replace(line, run="run_twin"))


def a_slot_is_not_accounted_for(draft: Draft) -> None:
    draft.forget(draft.pick(lambda run: run.slot is not None and run.slot < END - 60))


def a_run_has_no_slot(draft: Draft) -> None:
    run = draft.pick(is_slot)
    assert run.slot is not None
    draft.swap(run, replace(run, slot=run.slot + 0.5, due_at=run.due_at + 0.5))
    draft.shift(run, 0.5)


def a_skip_has_a_wrong_reason(draft: Draft) -> None:
    run = draft.pick(lambda run: run.reason == "overlap")
    draft.swap(run, replace(run, reason="misfire" if draft.is_quiet(run.due_at) else "bad weather"))


def a_slot_is_skipped_for_an_overlap_with_nothing(draft: Draft) -> None:
    going = [run for run in draft.runs.values() if run.finished_at is None or run.started_at is not None]

    def alone(run: FinalRun) -> bool:
        others = [other for other in going if other.job == run.job and other.run != run.run]
        return not any(other.due_at <= run.due_at <= (other.finished_at or END) + 0.5 for other in others)

    run = draft.pick(lambda run: is_slot(run) and alone(run) and not draft.is_broken(run.due_at))
    draft.forget(run, final=False)
    gone = replace(run, status="skipped", reason="overlap", started_at=None, attempts=(), finished_at=run.due_at + 0.01)
    draft.swap(run, gone)


def a_skip_is_miscounted(draft: Draft) -> None:
    skip = first(line for line in draft.lines if isinstance(line, FinalSkip))
    draft.swap(skip, replace(skip, count=skip.count + 1))


def a_slot_is_missed_in_quiet_times(draft: Draft) -> None:
    """A slot is skipped as missed although there was no fault."""
    resumed = {invoke.job for invoke, _ in draft.calls(Action.RESUME) + draft.calls(Action.UPDATE)}
    run = draft.pick(lambda run: is_slot(run) and draft.is_quiet(run.due_at) and run.job not in resumed)
    assert run.slot is not None
    draft.forget(run)
    draft.lines.append(FinalSkip(at=END, job=run.job, start=run.slot, end=run.slot, count=1, reason="misfire"))


def a_slot_is_run_and_skipped(draft: Draft) -> None:
    run = draft.pick(is_slot)
    assert run.slot is not None
    draft.lines.append(FinalSkip(at=END, job=run.job, start=run.slot, end=run.slot, count=1, reason="overlap"))


def an_old_version_goes_on(draft: Draft) -> None:
    change, _ = first(draft.calls(Action.UPDATE))
    run = draft.pick(lambda run: run.job == change.job and (run.slot or 0) > change.at + 30)
    assert run.slot is not None
    slot = run.slot // 12 * 12 + 8  # by the old schedule only
    twin = replace(run, run="run_old", slot=slot, due_at=slot)
    draft.lines.append(twin)
    draft.start(twin, slot + 0.1, fence=run.fence)


def a_deleted_job_starts(draft: Draft) -> None:
    call, ok = first(draft.calls(Action.DELETE))
    run = draft.pick(lambda run: run.job == call.job)
    draft.start(run, ok.at + 30, fence=run.fence + 1)


# --- I6, I7


def an_ended_run_runs_again(draft: Draft) -> None:
    read, ok = first(pair for pair in reversed(draft.calls(Action.READ)))
    draft.lines += [
        replace(read, call="again", at=ok.at + 1),
        replace(ok, call="again", at=ok.at + 1.1, status="running"),
    ]


def a_cancel_is_taken_back(draft: Draft) -> None:
    call, ok = first(pair for pair in draft.calls(Action.CANCEL) if pair[1].status == "cancelling")
    read = Invoke(at=ok.at + 0.001, call="look", action=Action.READ, run=call.run)
    draft.lines += [read, Ok(at=ok.at + 0.002, call="look", run=call.run, status="queued")]


def an_end_changes_after_it_was_read(draft: Draft) -> None:
    _, ok = first(draft.calls(Action.READ))
    assert ok.run is not None
    run = draft.runs[ok.run]
    draft.swap(run, replace(run, status="cancelled"))


def a_handler_starts_after_the_success(draft: Draft) -> None:
    run = draft.pick(is_plain)
    draft.start(run, draft.effects(run)[-1].at + 1, fence=run.fence + 1)


def a_cancelled_run_starts(draft: Draft) -> None:
    call, ok = first(pair for pair in draft.calls(Action.CANCEL) if pair[1].status == "cancelled")
    assert call.run is not None
    draft.start(draft.runs[call.run], ok.at + 1, fence=1)


def a_cancel_is_ignored(draft: Draft) -> None:
    call, _ = first(pair for pair in draft.calls(Action.CANCEL) if pair[1].status == "cancelling")
    assert call.run is not None
    draft.start(draft.runs[call.run], END - 5, fence=draft.runs[call.run].fence + 1)


def a_cancel_is_forgotten(draft: Draft) -> None:
    call, _ = first(pair for pair in draft.calls(Action.CANCEL) if pair[1].status == "cancelling")
    assert call.run is not None
    run = draft.runs[call.run]
    draft.swap(run, replace(run, status="retrying", finished_at=None))


# --- I8, I9


def an_attempt_is_missing(draft: Draft) -> None:
    run = draft.pick(retried)
    draft.swap(run, replace(run, attempts=[run.attempts[0], replace(run.attempts[1], number=3)]))


def a_lost_attempt_is_counted(draft: Draft) -> None:
    run = draft.pick(lambda run: outcomes(run)[:2] == ["lost", "succeeded"])
    draft.swap(run, replace(run, attempts=[run.attempts[0], replace(run.attempts[1], number=2)]))


def a_run_is_tried_too_often(draft: Draft) -> None:
    run = draft.pick(lambda run: run.dead_letter and not run.crashes and run.attempts[-1].error == "ValueError")
    last = run.attempts[-1]
    more = [replace(last, number=last.number + n, fence=last.fence + n) for n in range(1, 5)]
    draft.swap(run, replace(run, attempts=[*run.attempts, *more], fence=run.fence + 4))


def a_started_handler_has_no_attempt(draft: Draft) -> None:
    run = draft.pick(lambda run: retried(run) and not run.crashes)
    draft.swap(run, replace(run, attempts=[replace(run.attempts[1], number=1)]))


def a_dead_letter_is_lost(draft: Draft) -> None:
    run = draft.pick(lambda run: run.dead_letter)
    draft.swap(run, replace(run, dead_letter=False))


def a_dead_letter_is_pruned(draft: Draft) -> None:
    run = draft.pick(lambda run: run.dead_letter and outcomes(run) and set(outcomes(run)) == {"failed"} and _used(run))
    draft.drop(lambda line: isinstance(line, FinalRun) and line.run == run.run)


def _used(run: FinalRun) -> bool:
    return run.attempts[-1].error == "ValueError"


def a_requeued_letter_stays(draft: Draft) -> None:
    run = draft.pick(lambda run: run.resolution is not None)
    draft.swap(run, replace(run, dead_letter=True))


def a_letter_is_requeued_twice(draft: Draft) -> None:
    run = draft.pick(lambda run: run.requeue_of is not None)
    draft.lines.append(replace(run, run="run_copy"))


def a_run_is_given_up_early(draft: Draft) -> None:
    run = draft.pick(lambda run: outcomes(run) == ["failed"] and run.attempts[0].error == "Fatal")
    draft.swap(run, replace(run, attempts=[replace(run.attempts[0], error="ValueError")]))


def parameters_change(draft: Draft) -> None:
    run = draft.pick(lambda run: run.dead_letter)
    draft.swap(run, replace(run, params='{"label": "changed"}'))


# --- I10, I11, I12, I13


def an_order_is_broken(draft: Draft) -> None:
    def follows(run: FinalRun) -> bool:
        return run.ordering_key is not None and run.status == "succeeded" and len(run.attempts) == 1

    run = draft.pick(follows)
    same = sorted(
        (each for each in draft.runs.values() if each.ordering_key == run.ordering_key), key=lambda each: each.due_at
    )
    second = first(each for each in same[1:] if follows(each) and not each.crashes)
    before = min(effect.at for effect in draft.effects(same[0]))
    start = draft.effects(second)[0].at
    draft.shift(second, before - 0.2 - start)


def two_of_a_key_work_at_once(draft: Draft) -> None:
    chained = sorted(
        (run for run in draft.runs.values() if run.ordering_key and run.status == "succeeded" and not run.crashes),
        key=lambda run: draft.effects(run)[0].at,
    )
    if len(chained) < 2:
        raise NotApplicable
    one, other = chained[0], chained[1]
    last, start = draft.effects(one)[-1], draft.effects(other)[0]
    draft.shift(other, last.at - 0.005 - start.at)


def two_runs_of_a_job_overlap(draft: Draft) -> None:
    skipped = draft.pick(lambda run: run.reason == "overlap")
    going = first(
        run
        for run in draft.runs.values()
        if run.job == skipped.job and run.started_at and run.finished_at and run.attempts
        and run.started_at < skipped.due_at < run.finished_at - 0.1
    )  # fmt: skip
    assert going.finished_at is not None
    fence = skipped.fence + 1
    told = FinalAttempt(number=1, fence=fence, outcome="succeeded", started_at=skipped.due_at, ended_at=END)
    changes = {"status": "succeeded", "reason": None, "fence": fence, "attempt": 1, "attempts": [told]}
    draft.swap(skipped, replace(skipped, **changes))
    draft.start(skipped, skipped.due_at + 0.02, fence=fence)


def a_limit_is_exceeded(draft: Draft) -> None:
    narrow = sorted((run for run in draft.runs.values() if run.queue == "narrow"), key=lambda run: run.due_at)
    if len(narrow) < 3:
        raise NotApplicable
    now = draft.effects(narrow[0])[0].at
    for run in narrow[:3]:
        effects = draft.effects(run)
        draft.swap(effects[0], replace(effects[0], at=now + 0.01))
        draft.swap(effects[1], replace(effects[1], at=now + 5))


def a_key_makes_two_jobs(draft: Draft) -> None:
    call, ok = first(pair for pair in draft.calls(Action.CREATE) if pair[0].idempotency_key)
    draft.swap(ok, replace(ok, job="job_twin", run="run_twin"))
    run = draft.pick(lambda run: call.definition is not None and run.label == call.definition.label)
    draft.lines.append(replace(run, job="job_twin", run="run_twin"))


def a_key_takes_another_body(draft: Draft) -> None:
    call, _ = first(pair for pair in reversed(draft.calls(Action.CREATE)) if pair[0].idempotency_key)
    assert call.definition is not None
    draft.swap(call, replace(call, definition=replace(call.definition, priority=7)))


def an_owner_is_swapped(draft: Draft) -> None:
    run = draft.pick(is_plain)
    draft.swap(run, replace(run, owner="somebody else"))


def a_foreign_run_is_shown(draft: Draft) -> None:
    read, _ = first(draft.calls(Action.READ))
    draft.swap(read, replace(read, owner="somebody else"))


# --- I15, I19


def something_starts_unasked(draft: Draft) -> None:
    run = draft.pick(is_plain)
    draft.start(replace(run, label="never heard of"), BEGIN + 5, fence=1, name="run_new")


def what_was_refused_starts(draft: Draft) -> None:
    refused = {line.call for line in draft.lines if isinstance(line, Fail)}
    call = first(line for line in draft.lines if isinstance(line, Invoke) and line.call in refused)
    assert call.definition is not None
    run = draft.pick(is_plain)
    draft.start(replace(run, label=call.definition.label), call.at + 1, fence=1, name="run_new")


def a_job_for_once_runs_twice(draft: Draft) -> None:
    """The same job runs again as another run, recorded consistently."""
    run = draft.pick(lambda run: is_plain(run) and draft.is_quiet(run.due_at))
    for line in list(draft.lines):
        if isinstance(line, Effect | FinalRun) and line.run == run.run:
            draft.lines.append(replace(line, run="run_twin", at=line.at + 2))


def counts_are_off(draft: Draft) -> None:
    counts = first(line for line in draft.lines if isinstance(line, FinalCounts))
    draft.swap(counts, replace(counts, dead_letters=(counts.dead_letters or 0) + 1))


def a_success_never_ended(draft: Draft) -> None:
    run = draft.pick(is_plain)
    draft.drop(lambda line: isinstance(line, Effect) and line.run == run.run and line.event is HandlerEvent.END)


MUTANTS: dict[Callable[[Draft], None], str] = {
    a_run_is_dropped: "I1",
    a_run_never_starts: "I1",
    a_recurring_job_is_gone: "I1",
    a_success_has_no_start: "I1",
    a_run_starts_two_seconds_early: "I2",
    a_slot_starts_early: "I2",
    a_retry_comes_early: "I2",
    a_run_starts_late: "I3",
    most_runs_start_late: "I3",
    two_results_are_committed: "I4",
    a_stale_report_is_taken: "I4",
    a_success_keeps_an_old_fence: "I4",
    attempts_overlap_without_a_lost_lease: "I4",
    a_fence_is_given_twice: "I4",
    a_result_comes_before_its_end: "I4",
    a_run_is_there_twice: "I4",
    a_slot_has_two_runs: "I5",
    a_slot_is_not_accounted_for: "I5",
    a_run_has_no_slot: "I5",
    a_skip_has_a_wrong_reason: "I5",
    a_slot_is_skipped_for_an_overlap_with_nothing: "I5",
    a_skip_is_miscounted: "I5",
    a_slot_is_missed_in_quiet_times: "I5",
    a_slot_is_run_and_skipped: "I5",
    an_ended_run_runs_again: "I6",
    a_cancel_is_taken_back: "I6",
    an_end_changes_after_it_was_read: "I6",
    a_handler_starts_after_the_success: "I6",
    a_cancelled_run_starts: "I7",
    a_cancel_is_ignored: "I7",
    a_cancel_is_forgotten: "I7",
    an_attempt_is_missing: "I8",
    a_lost_attempt_is_counted: "I8",
    a_run_is_tried_too_often: "I8",
    a_started_handler_has_no_attempt: "I8",
    a_dead_letter_is_lost: "I9",
    a_dead_letter_is_pruned: "I9",
    a_requeued_letter_stays: "I9",
    a_letter_is_requeued_twice: "I9",
    a_run_is_given_up_early: "I9",
    parameters_change: "I9",
    an_order_is_broken: "I10",
    two_of_a_key_work_at_once: "I10",
    two_runs_of_a_job_overlap: "I10",
    a_limit_is_exceeded: "I11",
    a_key_makes_two_jobs: "I12",
    a_key_takes_another_body: "I12",
    an_owner_is_swapped: "I13",
    a_foreign_run_is_shown: "I13",
    something_starts_unasked: "I15",
    what_was_refused_starts: "I15",
    a_job_for_once_runs_twice: "I15",
    recovery_takes_too_long: "I18",
    counts_are_off: "I19",
    a_success_never_ended: "I19",
    a_deleted_job_starts: "I20",
    an_old_version_goes_on: "I20",
}
