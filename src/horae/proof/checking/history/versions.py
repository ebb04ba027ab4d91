"""What a job was asked to do at each time: its definitions, and its slots by the reference evaluator."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from horae.core.schedule.timestamps import parse_timestamp
from horae.proof.checking.history.recorded import FOREVER, Asked, Call, Recording, Version, is_recurring
from horae.proof.checking.history.recording import Action, Definition
from horae.proof.checking.history.reference import Slots, micros, object_form, slots


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
    for place in range(len(changes) + 1):
        made, later = _made(asked, changes, place), changes[place:]
        yield Version(
            made.definition,
            made.possible_from,
            made.certain_from,
            min([last_certain, *(call.began_at for call in later)]),
            # A change that began before this one was done may have come before it.
            min([last_possible, *(call.done_at for call in later if call.began_at > made.done_at)]),
            made.shown,
        )


@dataclass(frozen=True, slots=True)
class _Made:
    """How a version came about."""

    definition: Definition
    possible_from: float
    certain_from: float
    done_at: float
    shown: Mapping[str, Any]


def _made(asked: Asked, changes: Sequence[Call], place: int) -> _Made:
    """The first version, or that of a change; of changes at the same time nobody knows which came last."""
    in_order = all(call.done_at < changes[place - 1].began_at for call in changes[: max(place - 1, 0)])
    is_last = place == len(changes) and in_order and all(call.ok for call in changes)
    at_the_end = asked.job.schedule if is_last and asked.job is not None else {}
    if place == 0:
        shown = next((call.ok.schedule for call in asked.creates if call.ok and call.ok.schedule), at_the_end)
        certain_from = asked.accepted_at
        if certain_from == FOREVER and asked.job is not None:  # nobody was told, but it is there
            certain_from = asked.job.created_at
        return _Made(asked.definition, asked.asked_at, certain_from, asked.asked_at, shown)
    change = changes[place - 1]
    assert change.invoke.definition is not None
    shown = (change.ok.schedule if change.ok else {}) or at_the_end
    certain_from = change.done_at if in_order else FOREVER
    return _Made(change.invoke.definition, change.began_at, certain_from, change.done_at, shown)


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
        paused = paused_since(asked)  # what becomes of its slots is open from then on
        last = min(version.certain_to, FOREVER if paused is None else paused) - error - jitter(asked)
        certain = version.certain_from + error, min(last, recording.judged_to)
        expected.update(micros(slot) for slot in found if certain[0] < slot <= certain[1])
    return Slots(frozenset(expected), frozenset(possible), frozenset(evaluators), tuple(unknown))


def paused_since(asked: Asked) -> float | None:
    """Since when it may be paused, without having been resumed for certain after that; None when it is not."""
    resumed = [call.began_at for call in asked.of(Action.RESUME) if call.ok]
    open_pauses = [call for call in asked.of(Action.PAUSE) if not any(began > call.done_at for began in resumed)]
    return min((call.began_at for call in open_pauses), default=None)


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
