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
    for change in changes:
        assert change.invoke.definition is not None
        yield Version(definition, possible_from, certain_from, min(change.began_at, last_certain), change.done_at)
        definition = change.invoke.definition
        possible_from, certain_from = change.began_at, change.done_at
    yield Version(definition, possible_from, certain_from, last_certain, last_possible)


def slots_of(asked: Asked, recording: Recording) -> Slots:
    """The slots of a recurring job up to the end of the history; worked out once."""
    if asked.slots is None:
        asked.slots = _slots_of(asked, recording)
    return asked.slots


def _slots_of(asked: Asked, recording: Recording) -> Slots:
    expected: set[int] = set()
    possible: set[int] = set()
    evaluators: set[str] = set()
    error, end = recording.setup.clock_error, recording.end_at
    ahead = recording.setup.lateness  # workers hold runs that long before a change can take them back
    for version in versions(asked):
        if not is_recurring(version.definition):
            continue
        start, stop = version.possible_from - error, min(version.possible_to + ahead, end) + error
        found, evaluator = slots(_form(version, asked), start, stop, anchor=_anchor(asked))
        evaluators.add(evaluator)
        possible.update(map(micros, found))
        certain = version.certain_from + error, min(version.certain_to - error, recording.judged_to)
        expected.update(micros(slot) for slot in found if certain[0] < slot <= certain[1])
    return Slots(frozenset(expected), frozenset(possible), frozenset(evaluators))


def _form(version: Version, asked: Asked) -> dict[str, object]:
    """The schedule as an object; where an interval has no anchor, that of the final state is taken."""
    form = dict(object_form(version.definition.schedule))
    told = asked.job.schedule if asked.job is not None else {}
    if form["type"] == "every" and not form.get("anchor") and told.get("anchor") and told.get("type") == "every":
        form["anchor"] = told["anchor"]
    return form


def _anchor(asked: Asked) -> float:
    return asked.job.created_at if asked.job is not None else asked.asked_at


def due_times(asked: Asked) -> Iterator[float]:
    """The instants that a job for once may have been given; what is due at once is due when it is asked for."""
    for version in versions(asked):
        form = object_form(version.definition.schedule)
        if form["type"] == "at":
            yield parse_timestamp(str(form["time"])).timestamp()
        elif form["type"] == "now":
            yield version.possible_from
