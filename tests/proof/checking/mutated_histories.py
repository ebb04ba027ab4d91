"""Plants violations in clean recorded histories, and judges the result."""

from collections.abc import Callable, Iterator
from functools import cache

from horae.proof.checking import Recording, judge_recording
from horae.proof.checking.history.records import Line
from tests.proof.checking.clean_histories import clean_history
from tests.proof.checking.history_mutants import MUTANTS, Draft, NotApplicable

SEEDS = 400

_clean = cache(clean_history)  # lines are immutable; only the list is copied


def found_in(lines: list[Line]) -> list[str]:
    """The violations of a history, with their invariants."""
    violations = judge_recording(Recording(lines)).violations
    return [f"{each.invariant} {each.code} {each.subject}: {each.detail}" for each in violations]


def planted(mutant: Callable[[Draft], None], times: int) -> Iterator[tuple[int, list[Line]]]:
    """Yield histories that contain the planted violation, with their seeds."""
    left = times
    for seed in range(SEEDS):
        draft = Draft(list(_clean(seed)))
        try:
            mutant(draft)
        except NotApplicable:
            continue
        yield seed, draft.lines
        if (left := left - 1) == 0:
            return
    raise AssertionError(f"only {times - left} of {SEEDS} histories have anything to plant it in")


def uncaught(mutant: Callable[[Draft], None], times: int) -> dict[int, list[str]]:
    """The violations found, by seed, of histories whose planted violation was not reported under its invariant."""
    found_by_seed = {seed: found_in(lines) for seed, lines in planted(mutant, times)}
    invariant = f"{MUTANTS[mutant]} "
    return {
        seed: found for seed, found in found_by_seed.items() if not any(each.startswith(invariant) for each in found)
    }
