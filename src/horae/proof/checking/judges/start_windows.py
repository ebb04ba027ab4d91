"""I1, I3, I15 and I18 without ids: starts are matched by label and time to the windows in which they are expected.

As in Jepsen's test of Chronos, each window takes the earliest start in it that no other window has taken. Windows are
processed in the order of their ends, which for intervals finds a largest possible matching.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from horae.proof.checking.findings import Code, Violation, at, found
from horae.proof.checking.history.recording import FOREVER, Recording, RequestedJob
from horae.proof.checking.history.records import Action, Effect, HandlerEvent
from horae.proof.checking.history.reference import MICRO
from horae.proof.checking.history.versions import (
    due_times,
    has_start_limit,
    jitter,
    may_wait_for_other_jobs,
    runs_wait_for_each_other,
    slots_of,
    versions,
)
from horae.proof.checking.judges.starts import may_wait_forever

TOUCHING = (Action.CANCEL, Action.DELETE, Action.PAUSE, Action.RESUME, Action.UPDATE)


@dataclass(frozen=True, slots=True)
class StartWindow:
    """When a start is expected; one that is not required may be skipped, refused or cancelled."""

    start: float
    end: float
    required: bool


def judge_start_windows(recording: Recording) -> Iterator[Violation]:
    if recording.closed_at is None:
        return
    for requested in recording.requested.values():
        if requested.may_exist:
            windows = sorted(_windows(requested, recording), key=lambda window: (window.end, window.start))
            yield from _judge(requested, windows, recording)


def _judge(requested: RequestedJob, windows: Sequence[StartWindow], recording: Recording) -> Iterator[Violation]:
    error = recording.setup.clock_error
    times = [start.at for start in requested.starts]
    taken = [False] * len(times)
    missed = [window for window in windows if window.required and not _take(window, times, taken, error)]
    for window in windows:
        if not window.required:
            _take(window, times, taken, error)
    extra = [start for start, used in zip(requested.starts, taken, strict=True) if not used]
    for window in missed:
        late = next((start for start in extra if start.at > window.end), None)
        if late is None:
            yield found(Code.LOST, requested.name, f"no handler started for it between {at(window.start)} and the end")
        else:
            extra.remove(late)
            delayed = recording.deadline(window.start) > window.start + recording.setup.lateness
            code = Code.SLOW_RECOVERY if delayed else Code.LATE_START
            yield found(code, requested.name, f"its run due {at(window.start)} started {at(late.at)} only")
    yield from _unexplained_starts(requested, extra, recording)


def _take(window: StartWindow, times: Sequence[float], taken: list[bool], error: float) -> bool:
    for index in range(bisect_left(times, window.start - error), len(times)):
        if times[index] > window.end + error:
            return False
        if not taken[index]:
            taken[index] = True
            return True
    return False


def _windows(requested: RequestedJob, recording: Recording) -> Iterator[StartWindow]:
    touched = bool(requested.calls_of(*TOUCHING)) or may_wait_forever(requested, recording)
    if requested.recurring:
        yield from _slot_windows(requested, recording)
    else:
        start = min(due_times(requested))
        limited = has_start_limit(requested) or _may_have_overlapped(requested, start, recording)
        ready = max(start, requested.accepted_at)
        required = requested.accepted and not touched and not limited and ready <= recording.judged_to
        yield StartWindow(start, _end(requested, ready, recording) if required else FOREVER, required)
    for call in requested.calls_of(Action.TRIGGER, Action.REQUEUE):
        limited = call.invoke.action is Action.TRIGGER and has_start_limit(requested)
        required = call.ok is not None and not touched and not limited and call.done_at <= recording.judged_to
        yield StartWindow(call.began_at, FOREVER, required)


def _slot_windows(requested: RequestedJob, recording: Recording) -> Iterator[StartWindow]:
    slots = slots_of(requested, recording)
    unstarted = _ended_unstarted(requested)
    later = jitter(requested)
    limited = has_start_limit(requested) or may_wait_forever(requested, recording)
    for slot in slots.possible:
        moment = slot / MICRO
        skipped = slot in unstarted or any(skip.start <= moment <= skip.end for skip in requested.skips)
        required = slot in slots.expected and not skipped and not limited
        yield StartWindow(moment, _end(requested, moment + later, recording) if required else FOREVER, required)


def _ended_unstarted(requested: RequestedJob) -> set[int]:
    """Slots whose runs ended without a start; whether they had a reason is judged elsewhere."""
    ended = [run for run in requested.runs if run.status in ("skipped", "cancelled") and run.slot is not None]
    return {round(run.slot * MICRO) for run in ended if run.slot is not None}


def _end(requested: RequestedJob, ready: float, recording: Recording) -> float:
    """The latest start that is on time."""
    deadline = recording.deadline(ready)
    delayed = deadline > ready + recording.setup.lateness
    if may_wait_for_other_jobs(requested, recording) or (
        runs_wait_for_each_other(requested) and (delayed or _one_was_running(requested, ready, recording))
    ):
        return FOREVER
    return deadline


def _one_was_running(requested: RequestedJob, moment: float, recording: Recording) -> bool:
    """Whether more handlers of the job had started than ended; one that died counts as running."""
    begun = sum(start.at <= moment + recording.setup.lateness for start in requested.starts)
    return begun > sum(end.at < moment for end in requested.ends)


def _may_have_overlapped(requested: RequestedJob, moment: float, recording: Recording) -> bool:
    """Whether a one-shot came due while a triggered or requeued run of it was running."""
    if all(version.definition.overlap == "allow" for version in versions(requested)):
        return False
    others = requested.calls_of(Action.TRIGGER, Action.REQUEUE)
    return bool(others) and _one_was_running(requested, moment, recording)


def _unexplained_starts(requested: RequestedJob, extra: Sequence[Effect], recording: Recording) -> Iterator[Violation]:
    """Each extra start must be a retry of a start that did not succeed, or whose end a fault may have hidden.

    Not judged for jobs with a backfill, whose number of slots is not recorded, or with an interval of unknown anchor.
    """
    unknown_slots = requested.recurring and slots_of(requested, recording).unknown
    if not extra or unknown_slots or requested.calls_of(Action.BACKFILL):
        return
    begun = [start.at for start in requested.starts]
    ended_well = [end.at for end in requested.ends if end.event is HandlerEvent.END and end.good]
    repeated, troubled = 0, list(begun)
    for start in extra:
        if bisect_left(begun, start.at) - bisect_left(ended_well, start.at) > repeated:
            repeated += 1
            continue
        hidden = next((one for one in troubled if one < start.at and recording.overlaps_fault(one, start.at)), None)
        if hidden is None:
            yield found(Code.UNASKED, requested.name, f"a handler started for it {at(start.at)} without a request")
        else:
            troubled.remove(hidden)
