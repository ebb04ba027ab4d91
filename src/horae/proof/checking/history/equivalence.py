"""I16 and I17: two histories of the same calls end alike, whatever happened to signals and to the clocks of nodes."""

from collections.abc import Iterator

from horae.proof.checking.history.recording import Recording, RequestedJob


def history_class(recording: Recording) -> dict[str, tuple[str, ...]]:
    """Return the ends of each job's runs by label, in a form that does not depend on time.

    For a recurring job it is the set of ways in which its slots ended.
    """
    return {label: _ends(requested) for label, requested in recording.requested.items()}


def differences(one: Recording, other: Recording) -> Iterator[str]:
    """Describe each job that ended differently in two histories with the same labels."""
    first, second = history_class(one), history_class(other)
    for label in sorted(first.keys() | second.keys()):
        if first.get(label) != second.get(label):
            yield f"{label}: {first.get(label)} in one, {second.get(label)} in the other"


def _ends(requested: RequestedJob) -> tuple[str, ...]:
    ends = [f"{run.trigger} {run.status} {run.reason or ''}".rstrip() for run in requested.runs]
    return tuple(sorted(set(ends) if requested.recurring else ends))
