"""I1, I3, I15 and I18 without trusting any id: starts are matched to the times at which a job was asked to start.

The way of Jepsen's test of Chronos: by label alone, each window takes the earliest start in it that no other has
taken. Windows are taken by their ends; for intervals no cleverer choice finds more.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from horae.proof.checking.findings import Code, Violation
from horae.proof.checking.history.recorded import FOREVER, Asked, Recording
from horae.proof.checking.history.recording import Action, Effect, Happening
from horae.proof.checking.history.reference import MICRO
from horae.proof.checking.history.versions import (
    due_times,
    in_line,
    jitter,
    may_be_too_late,
    may_wait,
    slots_of,
    versions,
)
from horae.proof.checking.judges.starts import waits_by_right
from horae.proof.checking.wording import at, found, name

TOUCHING = (Action.CANCEL, Action.DELETE, Action.PAUSE, Action.RESUME, Action.UPDATE)


@dataclass(frozen=True, slots=True)
class Window:
    """When a start is asked for; what is not required may be skipped, refused or cancelled."""

    start: float
    end: float
    required: bool


def judge_windows(recording: Recording) -> Iterator[Violation]:
    if recording.closed_at is None:
        return
    for asked in recording.asked.values():
        if asked.possible:
            yield from _judge(asked, sorted(_windows(asked, recording), key=lambda w: (w.end, w.start)), recording)


def _judge(asked: Asked, windows: Sequence[Window], recording: Recording) -> Iterator[Violation]:
    error = recording.setup.clock_error
    times = [start.at for start in asked.starts]
    taken = [False] * len(times)
    missed = [window for window in windows if window.required and not _take(window, times, taken, error)]
    for window in windows:
        if not window.required:
            _take(window, times, taken, error)
    extra = [start for start, used in zip(asked.starts, taken, strict=True) if not used]
    for window in missed:
        late = next((start for start in extra if start.at > window.end), None)
        if late is None:
            yield found(Code.LOST, name(asked), f"nothing started for it between {at(window.start)} and the end")
        else:
            extra.remove(late)
            delayed = recording.deadline(window.start) > window.start + recording.setup.lateness
            code = Code.SLOW_RECOVERY if delayed else Code.LATE_START
            yield found(code, name(asked), f"what was due {at(window.start)} started {at(late.at)} only")
    yield from _unexcused(asked, extra, recording)


def _take(window: Window, times: Sequence[float], taken: list[bool], error: float) -> bool:
    for index in range(bisect_left(times, window.start - error), len(times)):
        if times[index] > window.end + error:
            return False
        if not taken[index]:
            taken[index] = True
            return True
    return False


def _windows(asked: Asked, recording: Recording) -> Iterator[Window]:
    touched = bool(asked.of(*TOUCHING)) or waits_by_right(asked, recording)
    if asked.recurring:
        yield from _slot_windows(asked, recording)
    else:
        start = min(due_times(asked))
        limited = may_be_too_late(asked) or _may_have_overlapped(asked, start, recording)
        ready = max(start, asked.accepted_at)
        required = asked.accepted and not touched and not limited and ready <= recording.judged_to
        yield Window(start, _end(asked, ready, recording) if required else FOREVER, required)
    for call in asked.of(Action.TRIGGER, Action.REQUEUE):
        limited = call.invoke.action is Action.TRIGGER and may_be_too_late(asked)
        required = call.ok is not None and not touched and not limited and call.done_at <= recording.judged_to
        yield Window(call.began_at, FOREVER, required)


def _slot_windows(asked: Asked, recording: Recording) -> Iterator[Window]:
    slots = slots_of(asked, recording)
    unstarted = _told_unstarted(asked)
    later = jitter(asked)
    limited = may_be_too_late(asked) or waits_by_right(asked, recording)
    for slot in slots.possible:
        moment = slot / MICRO
        skipped = slot in unstarted or any(skip.start <= moment <= skip.end for skip in asked.skips)
        required = slot in slots.expected and not skipped and not limited
        yield Window(moment, _end(asked, moment + later, recording) if required else FOREVER, required)


def _told_unstarted(asked: Asked) -> set[int]:
    """Slots whose runs are said to have ended without a start; whether rightly is judged elsewhere."""
    ended = [run for run in asked.runs if run.status in ("skipped", "cancelled") and run.slot is not None]
    return {round(run.slot * MICRO) for run in ended if run.slot is not None}


def _end(asked: Asked, ready: float, recording: Recording) -> float:
    """Until when a start is on time."""
    deadline = recording.deadline(ready)
    delayed = deadline > ready + recording.setup.lateness
    if may_wait(asked, recording) or (in_line(asked) and (delayed or _one_was_going(asked, ready, recording))):
        return FOREVER
    return deadline


def _one_was_going(asked: Asked, moment: float, recording: Recording) -> bool:
    """Whether more handlers of the job had started than ended; one that died is taken to be going on."""
    begun = sum(start.at <= moment + recording.setup.lateness for start in asked.starts)
    return begun > sum(end.at < moment for end in asked.ends)


def _may_have_overlapped(asked: Asked, moment: float, recording: Recording) -> bool:
    """Whether a job for once came due while a run of it was going that somebody had asked for by itself."""
    alone = all(version.definition.overlap == "allow" for version in versions(asked))
    return bool(asked.of(Action.TRIGGER, Action.REQUEUE)) and not alone and _one_was_going(asked, moment, recording)


def _unexcused(asked: Asked, extra: Sequence[Effect], recording: Recording) -> Iterator[Violation]:
    """Another start is one more try: there is one for each that did not end well, or whose end a fault may have hidden.

    A user's backfill asks for as many starts as there are slots in it, which the history does not tell; nor can starts
    be told from others where nobody wrote down when an interval began.
    """
    if not extra or asked.of(Action.BACKFILL) or (asked.recurring and slots_of(asked, recording).unknown):
        return
    begun = [start.at for start in asked.starts]
    ended_well = [end.at for end in asked.ends if end.event is Happening.END and end.good]
    repeated, troubled = 0, list(begun)
    for start in extra:
        if bisect_left(begun, start.at) - bisect_left(ended_well, start.at) > repeated:
            repeated += 1
            continue
        hidden = next((one for one in troubled if one < start.at and recording.is_troubled(one, start.at)), None)
        if hidden is None:
            yield found(Code.UNASKED, name(asked), f"a handler started for it {at(start.at)} without being asked for")
        else:
            troubled.remove(hidden)
