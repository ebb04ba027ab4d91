"""I5 and I20: every slot of a recurring job is run or skipped exactly once, and skips have a true reason."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from horae.proof.checking.findings import Code, Violation, at, duration, found
from horae.proof.checking.history.recording import Recording, RequestedJob
from horae.proof.checking.history.records import Action, FinalRun, FinalSkip
from horae.proof.checking.history.reference import MICRO, ReferenceSlots, micros, object_form
from horae.proof.checking.history.versions import slots_of, versions
from horae.proof.checking.judges.leases import ended_at, was_leased_at

GAP = timedelta(hours=3)  # no clock change is longer
MISSED_AFTER = 5.0  # seconds after which a slot that was not fired counts as missed
RESULT_DELAY = 0.25  # seconds that a result may take without a fault


def judge_slots(recording: Recording) -> Iterator[Violation]:
    for requested in recording.requested.values():
        if requested.recurring and requested.may_exist:
            yield from _judge(requested, slots_of(requested, recording), recording)


def evaluators(recording: Recording) -> frozenset[str]:
    """Return the evaluators that computed the slots of this history."""
    recurring = [requested for requested in recording.requested.values() if requested.recurring]
    return frozenset().union(*(slots_of(requested, recording).evaluators for requested in recurring))


def _judge(requested: RequestedJob, slots: ReferenceSlots, recording: Recording) -> Iterator[Violation]:
    if requested.job is None:
        if requested.accepted:
            yield found(Code.LOST, requested.name, "it was accepted, but is missing in the final state")
        return
    runs = _runs_by_slot(requested)
    skipped = _skipped_slots(requested, slots)
    for slot in sorted(slots.expected - runs.keys() - skipped.keys()):
        detail = f"there is neither a run nor a skip for its slot {at(slot / MICRO)}"
        yield found(Code.SLOT_MISSING, requested.name, detail)
    for slot, same in runs.items():
        yield from _judge_slot(requested, slot, same, skipped[slot], slots, recording)
    for slot, times in skipped.items():
        if times > 1:
            yield found(Code.SLOT_TWICE, requested.name, f"its slot {at(slot / MICRO)} is skipped {times} times")
    for skip in requested.skips:
        yield from _judge_skip(requested, skip, slots, recording)


def _runs_by_slot(requested: RequestedJob) -> dict[int, list[FinalRun]]:
    runs: defaultdict[int, list[FinalRun]] = defaultdict(list)
    for run in requested.runs:
        if run.trigger == "schedule" and run.slot is not None:
            runs[micros(run.slot)].append(run)
    return runs


def _skipped_slots(requested: RequestedJob, slots: ReferenceSlots) -> Counter[int]:
    """How many skipped ranges contain each slot."""
    times: Counter[int] = Counter()
    for skip in requested.skips:
        if skip.reason != "dst_gap":
            start, end = micros(skip.start), micros(skip.end)
            times.update(slot for slot in slots.possible if start <= slot <= end)
    return times


def _judge_slot(
    requested: RequestedJob, slot: int, runs: list[FinalRun], skipped: int, slots: ReferenceSlots, recording: Recording
) -> Iterator[Violation]:
    valid = [run for run in runs if not _was_replaced(run)]
    changed = bool(requested.calls_of(Action.UPDATE, Action.PAUSE, Action.RESUME, Action.DELETE))
    if len(valid) + skipped > 1 or (len(runs) > 1 and not changed):
        names = ", ".join(run.run for run in runs)
        detail = f"its slot {at(slot / MICRO)} has {names}{' and is skipped too' if skipped else ''}"
        yield found(Code.SLOT_TWICE, requested.name, detail)
    if not slots.allow(slot) and slot <= micros(recording.end_at):
        code = Code.OLD_VERSION if len(versions(requested)) > 1 else Code.SLOT_UNPLANNED
        for run in valid:
            yield found(code, run.run, f"its slot {at(slot / MICRO)} is no slot of its schedule at that time")
    for run in runs:
        if run.status == "skipped" and (problem := _wrong_reason(requested, run.reason, slot / MICRO, recording, run)):
            yield found(Code.SKIPPED_WITHOUT_CAUSE, run.run, problem)


def _was_replaced(run: FinalRun) -> bool:
    """Whether it never started, and a run of a later version may have replaced it."""
    return run.started_at is None and run.status in ("cancelled", "skipped") and run.reason != "overlap"


def _judge_skip(
    requested: RequestedJob, skip: FinalSkip, slots: ReferenceSlots, recording: Recording
) -> Iterator[Violation]:
    skipped = f"the skip ({skip.reason}) from {at(skip.start)} to {at(skip.end)}"
    if skip.reason == "dst_gap":
        if not _near_clock_change(requested, skip.start):
            yield found(Code.SKIPPED_WITHOUT_CAUSE, requested.name, f"{skipped} is not near a clock change")
        return
    inside = [slot for slot in slots.possible if micros(skip.start) <= slot <= micros(skip.end)]
    countable = skip.end <= recording.end_at and not requested.calls_of(Action.UPDATE) and not slots.unknown
    if countable and len(inside) != skip.count:
        yield found(Code.SLOT_MISCOUNTED, requested.name, f"{skipped} counts {skip.count} slots, not {len(inside)}")
    for moment in dict.fromkeys((skip.start, skip.end)):
        if problem := _wrong_reason(requested, skip.reason, moment, recording, None):
            yield found(Code.SKIPPED_WITHOUT_CAUSE, requested.name, f"{skipped}: {problem}")


# --- reasons, derived independently


def _wrong_reason(
    requested: RequestedJob, reason: str | None, slot: float, recording: Recording, run: FinalRun | None
) -> str | None:
    """Return why the reason of a skip cannot be true; None if it can."""
    match reason:
        case "overlap":
            return _no_overlap(requested, slot, run, recording)
        case "paused":
            return None if _was_paused(requested, slot, recording) else "it was not paused then"
        case "cancelled":
            acts = requested.calls_of(Action.CANCEL, Action.DELETE, Action.UPDATE, Action.PAUSE)
            return None if acts else "no call cancelled it"
        case "too_late":
            return _not_too_late(requested, slot, recording, run)
        case "misfire":
            return _not_missed(requested, slot, recording)
        case _:
            return f"{reason!r} is not a known reason"


def _no_overlap(requested: RequestedJob, slot: float, run: FinalRun | None, recording: Recording) -> str | None:
    if all(version.definition.overlap == "allow" for version in versions(requested)):
        return "it was skipped as overlapping, which its job allows"
    due = slot if run is None else run.due_at
    decided_at = None if run is None else ended_at(run.run, recording)
    others = [other for other in requested.runs if run is None or other.run != run.run]
    if any(_was_running(other, due, recording) for other in others):
        return None
    # The slot is read when it is due or later, and decided on after that read is answered.
    moments = () if decided_at is None else (due, decided_at)
    if any(was_leased_at(other.run, moment, recording) for other in others for moment in moments):
        return None
    return f"it was skipped as overlapping, but no run of its job was running {at(due)}"


def _was_running(other: FinalRun, due: float, recording: Recording) -> bool:
    """Whether another run was running; its start may be lost with its worker, and its end may be stored late."""
    slack = recording.setup.clock_error + RESULT_DELAY
    began = min((span.start.at for span in recording.spans.get(other.run, ())), default=other.started_at)
    if not (began is not None and began <= due + slack) and not (other.crashes and other.due_at <= due):
        return False
    if other.finished_at is None or other.finished_at >= due - slack:
        return True
    return not recording.leases and recording.overlaps_fault(other.finished_at, due)


def _was_paused(requested: RequestedJob, slot: float, recording: Recording) -> bool:
    slack = recording.setup.clock_error
    resumes = requested.calls_of(Action.RESUME)
    for pause in requested.calls_of(Action.PAUSE):
        over = min((call.done_at for call in resumes if call.began_at > pause.done_at), default=float("inf"))
        # A due run that no worker holds yet when the job is paused is skipped as well.
        if pause.began_at - recording.setup.lateness - slack <= slot <= over + slack:
            return True
    return False


def _not_too_late(requested: RequestedJob, slot: float, recording: Recording, run: FinalRun | None) -> str | None:
    definitions = [version.definition for version in versions(requested)]
    if run is not None:
        limits = [each.start_within_seconds for each in definitions if each.start_within_seconds is not None]
        if not limits:
            return "it was skipped as too late, but has no start limit"
        ended = run.finished_at if run.finished_at is not None else recording.end_at
        early = run.due_at + min(limits) - ended
        slack = recording.setup.clock_error
        return f"it was skipped as too late {duration(early)} before it was" if early > slack else None
    oldest = min(each.catchup_seconds for each in definitions)
    if slot + oldest > recording.end_at:
        return f"it was skipped as too late within its catch-up period of {oldest:g} s"
    return _not_missed(requested, slot, recording)


def _not_missed(requested: RequestedJob, slot: float, recording: Recording) -> str | None:
    if _was_paused(requested, slot, recording) or recording.overlaps_fault(slot - MISSED_AFTER, slot + MISSED_AFTER):
        return None
    return "it was skipped as missed, but there was no fault then"


def _near_clock_change(requested: RequestedJob, moment: float) -> bool:
    for version in versions(requested):
        zone = ZoneInfo(str(object_form(version.definition.schedule).get("timezone", "UTC")))
        here = datetime.fromtimestamp(moment, UTC)
        if (here - GAP).astimezone(zone).utcoffset() != (here + GAP).astimezone(zone).utcoffset():
            return True
    return False
