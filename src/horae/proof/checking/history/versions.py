"""Reconstructs the definitions that a job had over time, and the slots that follow from them."""

from collections.abc import Iterator, Sequence

from horae.core.schedule.timestamps import parse_timestamp
from horae.proof.checking.history.recording import (
    FOREVER,
    JobVersion,
    RecordedCall,
    Recording,
    RequestedJob,
    is_recurring,
)
from horae.proof.checking.history.records import Action
from horae.proof.checking.history.reference import ReferenceSlots, micros, object_form, slots


def versions(requested: RequestedJob) -> list[JobVersion]:
    """Return every definition that the job may have had, oldest first; computed once."""
    if requested.versions is None:
        requested.versions = list(_versions(requested))
    return requested.versions


def _versions(requested: RequestedJob) -> Iterator[JobVersion]:
    changes = [call for call in requested.calls_of(Action.UPDATE) if call.invoke.definition is not None]
    for place in range(len(changes) + 1):
        yield _version(requested, changes, place)


def _version(requested: RequestedJob, changes: Sequence[RecordedCall], place: int) -> JobVersion:
    """The first version (place 0), or that of a change; the order of concurrent changes is unknown."""
    deletes, later = requested.calls_of(Action.DELETE), changes[place:]
    in_order = all(call.done_at < changes[place - 1].began_at for call in changes[: max(place - 1, 0)])
    is_last = place == len(changes) and in_order and all(call.ok for call in changes)
    at_the_end = requested.job.schedule if is_last and requested.job is not None else {}
    if place == 0:
        definition, began_at, done_at = requested.definition, requested.requested_at, requested.requested_at
        shown = next((call.ok.schedule for call in requested.create_calls if call.ok and call.ok.schedule), at_the_end)
        certain_from = requested.accepted_at
        if certain_from == FOREVER and requested.job is not None:  # its create was not answered, but it exists
            certain_from = requested.job.created_at
    else:
        change = changes[place - 1]
        assert change.invoke.definition is not None
        definition, began_at, done_at = change.invoke.definition, change.began_at, change.done_at
        shown = (change.ok.schedule if change.ok else {}) or at_the_end
        certain_from = change.done_at if in_order else FOREVER
    # A change that was sent before this one was answered may have taken effect before it.
    replacing = [call for call in later if call.began_at > done_at]
    return JobVersion(
        definition,
        possible_from=began_at,
        certain_from=certain_from,
        certain_to=min((call.began_at for call in (*deletes, *later)), default=FOREVER),
        possible_to=min((call.done_at for call in (*deletes, *replacing)), default=FOREVER),
        shown=shown,
    )


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
