"""I16 and I17: two histories of the same calls are of one class, whatever the hints and the clocks of nodes did."""

from collections.abc import Iterator

from horae.proof.checking.history.recorded import Asked, Recording


def history_class(recording: Recording) -> dict[str, tuple[str, ...]]:
    """By label, what came of each job; nothing in it depends on when the history was recorded.

    Of a job for once, the ends of its runs; of a recurring one, in which ways its slots ended.
    """
    return {label: _ends(asked) for label, asked in recording.asked.items()}


def differences(one: Recording, other: Recording) -> Iterator[str]:
    """What came out differently in two histories with the same labels."""
    first, second = history_class(one), history_class(other)
    for label in sorted(first.keys() | second.keys()):
        if first.get(label) != second.get(label):
            yield f"{label}: {first.get(label)} in one, {second.get(label)} in the other"


def _ends(asked: Asked) -> tuple[str, ...]:
    ends = [f"{run.trigger} {run.status} {run.reason or ''}".rstrip() for run in asked.runs]
    return tuple(sorted(set(ends) if asked.recurring else ends))
