"""I5 and I20: every slot of a recurring job, by the reference evaluator, is told exactly once and for a true reason."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from horae.proof.checking.findings import Code, Violation
from horae.proof.checking.history.recorded import Asked, Recording
from horae.proof.checking.history.recording import Action, FinalRun, FinalSkip
from horae.proof.checking.history.reference import MICRO, Slots, micros, object_form
from horae.proof.checking.history.versions import slots_of, versions
from horae.proof.checking.judges.leases import ended_at, held_at
from horae.proof.checking.wording import at, found, lasting, name

GAP = timedelta(hours=3)  # no clock change is longer
MISSED_AFTER = 5.0  # a slot that nobody fired within this of its time is missed
RESULT_DELAY = 0.25  # seconds that a result may take when nothing is broken


def judge_accounts(recording: Recording) -> Iterator[Violation]:
    for asked in recording.asked.values():
        if asked.recurring and asked.possible:
            yield from _judge(asked, slots_of(asked, recording), recording)


def evaluators(recording: Recording) -> frozenset[str]:
    """Whose word the slots of this history were judged by."""
    told = [slots_of(asked, recording).evaluators for asked in recording.asked.values() if asked.recurring]
    return frozenset().union(*told)


def _judge(asked: Asked, slots: Slots, recording: Recording) -> Iterator[Violation]:
    if asked.job is None:
        if asked.accepted:
            yield found(Code.LOST, name(asked), "it was accepted, and is not there at the end")
        return
    runs = _runs_by_slot(asked)
    skipped = _skipped_slots(asked, slots)
    for slot in sorted(slots.expected - runs.keys() - skipped.keys()):
        yield found(Code.SLOT_MISSING, name(asked), f"nothing says what became of its slot {at(slot / MICRO)}")
    for slot, same in runs.items():
        yield from _judge_slot(asked, slot, same, skipped[slot], slots, recording)
    for slot, times in skipped.items():
        if times > 1:
            yield found(Code.SLOT_TWICE, name(asked), f"its slot {at(slot / MICRO)} is skipped {times} times")
    for skip in asked.skips:
        yield from _judge_skip(asked, skip, slots, recording)


def _runs_by_slot(asked: Asked) -> dict[int, list[FinalRun]]:
    runs: defaultdict[int, list[FinalRun]] = defaultdict(list)
    for run in asked.runs:
        if run.trigger == "schedule" and run.slot is not None:
            runs[micros(run.slot)].append(run)
    return runs


def _skipped_slots(asked: Asked, slots: Slots) -> Counter[int]:
    """How often each slot lies in a range that was skipped."""
    times: Counter[int] = Counter()
    for skip in asked.skips:
        if skip.reason != "dst_gap":
            start, end = micros(skip.start), micros(skip.end)
            times.update(slot for slot in slots.possible if start <= slot <= end)
    return times


def _judge_slot(
    asked: Asked, slot: int, runs: list[FinalRun], skipped: int, slots: Slots, recording: Recording
) -> Iterator[Violation]:
    valid = [run for run in runs if not _gave_way(run)]
    changed = bool(asked.of(Action.UPDATE, Action.PAUSE, Action.RESUME, Action.DELETE))
    if len(valid) + skipped > 1 or (len(runs) > 1 and not changed):
        names = ", ".join(run.run for run in runs)
        told = f"its slot {at(slot / MICRO)} has {names}{' and is skipped too' if skipped else ''}"
        yield found(Code.SLOT_TWICE, name(asked), told)
    if not slots.allow(slot) and slot <= micros(recording.end_at):
        code = Code.OLD_VERSION if _was_slot_before(asked) else Code.SLOT_UNPLANNED
        for run in valid:
            yield found(code, run.run, f"its slot {at(slot / MICRO)} is none of its schedule by then")
    for run in runs:
        if run.status == "skipped" and (problem := _wrong_reason(asked, run.reason, slot / MICRO, recording, run)):
            yield found(Code.SKIPPED_WITHOUT_CAUSE, run.run, problem)


def _gave_way(run: FinalRun) -> bool:
    """Whether it never started and may have been replaced by a run of a later version."""
    return run.started_at is None and run.status in ("cancelled", "skipped") and run.reason != "overlap"


def _was_slot_before(asked: Asked) -> bool:
    return len(versions(asked)) > 1


def _judge_skip(asked: Asked, skip: FinalSkip, slots: Slots, recording: Recording) -> Iterator[Violation]:
    told = f"the skip ({skip.reason}) from {at(skip.start)} to {at(skip.end)}"
    if skip.reason == "dst_gap":
        if not _near_clock_change(asked, skip.start):
            yield found(Code.SKIPPED_WITHOUT_CAUSE, name(asked), f"{told} lies at no change of the clock")
        return
    inside = [slot for slot in slots.possible if micros(skip.start) <= slot <= micros(skip.end)]
    if len(inside) != skip.count and skip.end <= recording.end_at and not (asked.of(Action.UPDATE) or slots.unknown):
        yield found(Code.SLOT_MISCOUNTED, name(asked), f"{told} says {skip.count} slots, not {len(inside)}")
    for moment in dict.fromkeys((skip.start, skip.end)):
        if problem := _wrong_reason(asked, skip.reason, moment, recording, None):
            yield found(Code.SKIPPED_WITHOUT_CAUSE, name(asked), f"{told}: {problem}")


# --- reasons, derived anew


def _wrong_reason(
    asked: Asked, reason: str | None, slot: float, recording: Recording, run: FinalRun | None
) -> str | None:
    """Why the reason of a skip cannot be true; None where it can."""
    match reason:
        case "overlap":
            return _no_overlap(asked, slot, run, recording)
        case "paused":
            return None if _was_paused(asked, slot, recording) else "it was not paused then"
        case "cancelled":
            acts = asked.of(Action.CANCEL, Action.DELETE, Action.UPDATE, Action.PAUSE)
            return None if acts else "nobody cancelled it"
        case "too_late":
            return _not_too_late(asked, slot, recording, run)
        case "misfire":
            return _not_missed(asked, slot, recording)
        case _:
            return f"{reason!r} is no reason"


def _no_overlap(asked: Asked, slot: float, run: FinalRun | None, recording: Recording) -> str | None:
    if all(version.definition.overlap == "allow" for version in versions(asked)):
        return "it was skipped as overlapping, which its job allows"
    due = slot if run is None else run.due_at
    decided_at = None if run is None else ended_at(run.run, recording)
    others = [other for other in asked.runs if run is None or other.run != run.run]
    if any(_was_going(other, due, recording) for other in others):
        return None
    # It is looked at when it is due, or later, and decided on after the answer to that look.
    moments = () if decided_at is None else (due, decided_at)
    if any(held_at(other.run, moment, recording) for other in others for moment in moments):
        return None
    return f"it was skipped as overlapping, but no run of its job was going {at(due)}"


def _was_going(other: FinalRun, due: float, recording: Recording) -> bool:
    """By its handlers and by its end; its start may be lost with its worker, and its end may reach the store late."""
    slack = recording.setup.clock_error + RESULT_DELAY
    began = min((span.start.at for span in recording.spans.get(other.run, ())), default=other.started_at)
    if not (began is not None and began <= due + slack) and not (other.crashes and other.due_at <= due):
        return False
    if other.finished_at is None or other.finished_at >= due - slack:
        return True
    return not recording.leases and recording.is_troubled(other.finished_at, due)


def _was_paused(asked: Asked, slot: float, recording: Recording) -> bool:
    slack = recording.setup.clock_error
    resumes = asked.of(Action.RESUME)
    for pause in asked.of(Action.PAUSE):
        over = min((call.done_at for call in resumes if call.began_at > pause.done_at), default=float("inf"))
        # What is due and not yet held by a worker when the pause comes is skipped as well.
        if pause.began_at - recording.setup.lateness - slack <= slot <= over + slack:
            return True
    return False


def _not_too_late(asked: Asked, slot: float, recording: Recording, run: FinalRun | None) -> str | None:
    definitions = [version.definition for version in versions(asked)]
    if run is not None:
        limits = [each.start_within_seconds for each in definitions if each.start_within_seconds is not None]
        if not limits:
            return "it was skipped as too late, but might start at any time"
        ended = run.finished_at if run.finished_at is not None else recording.end_at
        early = run.due_at + min(limits) - ended
        slack = recording.setup.clock_error
        return f"it was skipped as too late {lasting(early)} before it was" if early > slack else None
    oldest = min(each.catchup_seconds for each in definitions)
    if slot + oldest > recording.end_at:
        return f"it was skipped as too late within the {oldest:g} s in which it is caught up"
    return _not_missed(asked, slot, recording)


def _not_missed(asked: Asked, slot: float, recording: Recording) -> str | None:
    if _was_paused(asked, slot, recording) or recording.is_troubled(slot - MISSED_AFTER, slot + MISSED_AFTER):
        return None
    return "it was skipped as missed, but nothing was broken then"


def _near_clock_change(asked: Asked, moment: float) -> bool:
    for version in versions(asked):
        zone = ZoneInfo(str(object_form(version.definition.schedule).get("timezone", "UTC")))
        here = datetime.fromtimestamp(moment, UTC)
        if (here - GAP).astimezone(zone).utcoffset() != (here + GAP).astimezone(zone).utcoffset():
            return True
    return False
