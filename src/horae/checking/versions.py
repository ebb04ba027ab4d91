"""What a job was asked to do at each time: its definitions, and its slots by the reference evaluator."""

from collections.abc import Iterator

from horae.checking.recorded import FOREVER, Asked, Recording, Version, is_recurring
from horae.checking.recording import Action
from horae.checking.reference import Slots, micros, object_form, slots
from horae.core.timestamps import parse_timestamp


def versions(asked: Asked) -> list[Version]:
    """Every definition that the job may have had, oldest first; worked out once."""
    if asked.versions is None:
        asked.versions = list(_versions(asked))
    return asked.versions


def _versions(asked: Asked) -> Iterator[Version]:
    changes = [call for call in asked.of(Action.UPDATE) if call.invoke.definition is not None]
    ends = asked.of(Action.DELETE)
    last_certain = min((call.began_at for call in ends), default=FOREVER)
    last_possible = min((call.done_at for call in ends), default=FOREVER)
    certain_from = asked.accepted_at
    if certain_from == FOREVER and asked.job is not None:  # nobody was told, but it is there
        certain_from = asked.job.created_at
    definition, possible_from = asked.definition, asked.asked_at
    shown = next((call.ok.schedule for call in asked.creates if call.ok and call.ok.schedule), {})
    for change in changes:
        assert change.invoke.definition is not None
        yield Version(
            definition, possible_from, certain_from, min(change.began_at, last_certain), change.done_at, shown
        )
        definition = change.invoke.definition
        possible_from, certain_from = change.began_at, change.done_at
        shown = change.ok.schedule if change.ok else {}
    if not shown and asked.job is not None and all(change.ok for change in changes):
        shown = asked.job.schedule
    yield Version(definition, possible_from, certain_from, last_certain, last_possible, shown)


def slots_of(asked: Asked, recording: Recording) -> Slots:
    """The slots of a recurring job up to the end of the history; worked out once."""
    if asked.slots is None:
        asked.slots = _slots_of(asked, recording)
    return asked.slots


def _slots_of(asked: Asked, recording: Recording) -> Slots:
    expected: set[int] = set()
    possible: set[int] = set()
    evaluators: set[str] = set()
    unknown: list[tuple[float, float]] = []
    error, end = recording.setup.clock_error, recording.end_at
    ahead = recording.setup.lateness  # workers hold runs that long before a change can take them back
    for version in versions(asked):
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
        # What is due by jitter after a change is planned anew by then, and not told of any more.
        last = min(version.certain_to, _paused_for_good(asked)) - error - jitter(asked)
        certain = version.certain_from + error, min(last, recording.judged_to)
        expected.update(micros(slot) for slot in found if certain[0] < slot <= certain[1])
    return Slots(frozenset(expected), frozenset(possible), frozenset(evaluators), tuple(unknown))


def _paused_for_good(asked: Asked) -> float:
    """Since when it may be paused without having been resumed: what becomes of its slots is open until then."""
    paused: float | None = None
    for call in asked.of(Action.PAUSE, Action.RESUME):
        if call.invoke.action is Action.PAUSE:
            paused = call.began_at if paused is None else paused
        elif call.ok:
            paused = None
    return FOREVER if paused is None else paused


def _form(version: Version) -> dict[str, object]:
    """The schedule as an object; where an interval was asked for without an anchor, with that which it was given."""
    form = dict(object_form(version.definition.schedule))
    if form["type"] == "every" and not form.get("anchor"):
        anchor = form.get("starts_at") or version.shown.get("anchor")
        return {**form, "anchor": anchor}
    return form


def due_times(asked: Asked) -> Iterator[float]:
    """The instants that a job for once may have been given; what is due at once is due when it is asked for."""
    for version in versions(asked):
        form = object_form(version.definition.schedule)
        if form["type"] == "at":
            yield parse_timestamp(str(form["time"])).timestamp()
        elif form["type"] == "now":
            yield version.possible_from


def may_wait(asked: Asked, recording: Recording) -> bool:
    """Whether runs of it may have to wait for those of other jobs although nothing is broken."""
    limited = {limit.name for limit in recording.setup.limits if limit.scope == "queue"}
    definitions = [version.definition for version in versions(asked)]
    return any(each.ordering_key is not None or each.queue in limited for each in definitions)


def in_line(asked: Asked) -> bool:
    """Whether runs of it may have to wait for each other."""
    return asked.recurring and any(version.definition.overlap != "allow" for version in versions(asked))


def may_be_too_late(asked: Asked) -> bool:
    return any(version.definition.start_within_seconds is not None for version in versions(asked))


def jitter(asked: Asked) -> float:
    """How much later than its slot a run may be due, in seconds."""
    forms = [object_form(version.definition.schedule) for version in versions(asked)]
    return max(float(form.get("jitter_seconds") or 0) for form in forms)
