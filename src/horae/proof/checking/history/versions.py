"""Reconstructs the definitions that a job had over time, and the slots that follow from them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from horae.core.schedule.timestamps import parse_timestamp
from horae.proof.checking.history.recording import (
    FOREVER,
    JobVersion,
    RecordedCall,
    Recording,
    RequestedJob,
    is_recurring,
)
from horae.proof.checking.history.records import Action, Definition
from horae.proof.checking.history.reference import ReferenceSlots, micros, object_form, slots


def versions(requested: RequestedJob) -> list[JobVersion]:
    """Return every definition that the job may have had, oldest first; computed once."""
    if requested.versions is None:
        requested.versions = list(_versions(requested))
    return requested.versions


def _versions(requested: RequestedJob) -> Iterator[JobVersion]:
    changes = [call for call in requested.calls_of(Action.UPDATE) if call.invoke.definition is not None]
    ends = requested.calls_of(Action.DELETE)
    last_certain = min((call.began_at for call in ends), default=FOREVER)
    last_possible = min((call.done_at for call in ends), default=FOREVER)
    for place in range(len(changes) + 1):
        origin, later = _origin(requested, changes, place), changes[place:]
        yield JobVersion(
            origin.definition,
            origin.possible_from,
            origin.certain_from,
            min([last_certain, *(call.began_at for call in later)]),
            # A change that was sent before this one was answered may have taken effect before it.
            min([last_possible, *(call.done_at for call in later if call.began_at > origin.done_at)]),
            origin.shown,
        )


@dataclass(frozen=True, slots=True)
class _Origin:
    """The create or update that made a version."""

    definition: Definition
    possible_from: float
    certain_from: float
    done_at: float
    shown: Mapping[str, Any]


def _origin(requested: RequestedJob, changes: Sequence[RecordedCall], place: int) -> _Origin:
    """The origin of the first version or of a change; the order of concurrent changes is unknown."""
    in_order = all(call.done_at < changes[place - 1].began_at for call in changes[: max(place - 1, 0)])
    is_last = place == len(changes) and in_order and all(call.ok for call in changes)
    at_the_end = requested.job.schedule if is_last and requested.job is not None else {}
    if place == 0:
        shown = next((call.ok.schedule for call in requested.create_calls if call.ok and call.ok.schedule), at_the_end)
        certain_from = requested.accepted_at
        if certain_from == FOREVER and requested.job is not None:  # its create was not answered, but it exists
            certain_from = requested.job.created_at
        return _Origin(requested.definition, requested.requested_at, certain_from, requested.requested_at, shown)
    change = changes[place - 1]
    assert change.invoke.definition is not None
    shown = (change.ok.schedule if change.ok else {}) or at_the_end
    certain_from = change.done_at if in_order else FOREVER
    return _Origin(change.invoke.definition, change.began_at, certain_from, change.done_at, shown)


def slots_of(requested: RequestedJob, recording: Recording) -> ReferenceSlots:
    """Return the slots of a recurring job up to the end of the history; computed once."""
    if requested.slots is None:
        requested.slots = _slots_of(requested, recording)
    return requested.slots


def _slots_of(requested: RequestedJob, recording: Recording) -> ReferenceSlots:
    expected: set[int] = set()
    possible: set[int] = set()
    evaluators: set[str] = set()
    unknown: list[tuple[float, float]] = []
    error, end = recording.setup.clock_error, recording.end_at
    ahead = recording.setup.lateness  # a worker may hold a run for this long before a change can retract it
    for version in versions(requested):
        if not is_recurring(version.definition):
            continue
        start, stop = version.possible_from - error, min(version.possible_to + ahead, end) + error
        form = _form(version)
        if form["type"] == "every" and not form.get("anchor"):
            unknown.append((start, stop))
            continue
        found, evaluator = slots(form, start, stop)
        evaluators.add(evaluator)
        possible.update(map(micros, found))
        # Slots that jitter moves behind a change are fired again by the new version, and not recorded.
        paused = paused_since(requested)  # from then on its slots may be run or skipped
        last = min(version.certain_to, FOREVER if paused is None else paused) - error - jitter(requested)
        certain = version.certain_from + error, min(last, recording.judged_to)
        expected.update(micros(slot) for slot in found if certain[0] < slot <= certain[1])
    return ReferenceSlots(frozenset(expected), frozenset(possible), frozenset(evaluators), tuple(unknown))


def paused_since(requested: RequestedJob) -> float | None:
    """Return since when it may be paused without having been resumed for certain; None if it is not paused."""
    resumed = [call.began_at for call in requested.calls_of(Action.RESUME) if call.ok]
    open_pauses = [
        call for call in requested.calls_of(Action.PAUSE) if not any(began > call.done_at for began in resumed)
    ]
    return min((call.began_at for call in open_pauses), default=None)


def _form(version: JobVersion) -> dict[str, object]:
    """The schedule in its object form; an interval requested without an anchor gets that of the answer."""
    form = dict(object_form(version.definition.schedule))
    if form["type"] == "every" and not form.get("anchor"):
        anchor = form.get("starts_at") or version.shown.get("anchor")
        return {**form, "anchor": anchor}
    return form


def due_times(requested: RequestedJob) -> Iterator[float]:
    """The possible due times of a one-shot; `now` is the time of the request."""
    for version in versions(requested):
        form = object_form(version.definition.schedule)
        if form["type"] == "at":
            yield parse_timestamp(str(form["time"])).timestamp()
        elif form["type"] == "now":
            yield version.possible_from


def may_wait_for_other_jobs(requested: RequestedJob, recording: Recording) -> bool:
    """Whether its runs may have to wait for runs of other jobs."""
    limited = {limit.name for limit in recording.setup.limits if limit.scope == "queue"}
    definitions = [version.definition for version in versions(requested)]
    return any(each.ordering_key is not None or each.queue in limited for each in definitions)


def runs_wait_for_each_other(requested: RequestedJob) -> bool:
    """Whether its runs may have to wait for each other."""
    return requested.recurring and any(version.definition.overlap != "allow" for version in versions(requested))


def has_start_limit(requested: RequestedJob) -> bool:
    return any(version.definition.start_within_seconds is not None for version in versions(requested))


def jitter(requested: RequestedJob) -> float:
    """Return how many seconds after its slot a run may be due."""
    forms = [object_form(version.definition.schedule) for version in versions(requested)]
    return max(float(form.get("jitter_seconds") or 0) for form in forms)
