"""Clean recorded histories by seed, and those that a violation was planted in."""

from collections.abc import Callable, Iterator
from functools import cache

from horae.proof.checking import Recording, judge_recording
from horae.proof.checking.history.records import Line
from tests.proof.checking.histories import clean_history
from tests.proof.checking.mutants import MUTANTS, Draft, Unfit

SEEDS = 400

_clean = cache(clean_history)  # nobody changes a line, only the list


def found_in(lines: list[Line]) -> list[str]:
    """What is wrong with a history, by invariant."""
    violations = judge_recording(Recording(lines)).violations
    return [f"{each.invariant} {each.code} {each.subject}: {each.detail}" for each in violations]


def planted(mutant: Callable[[Draft], None], times: int) -> Iterator[tuple[int, list[Line]]]:
    """So many histories that the violation was planted in, with their seeds."""
    left = times
    for seed in range(SEEDS):
        draft = Draft(list(_clean(seed)))
        try:
            mutant(draft)
        except Unfit:
            continue
        yield seed, draft.lines
        if (left := left - 1) == 0:
            return
    raise AssertionError(f"only {times - left} of {SEEDS} histories have anything to plant it in")


def uncaught(mutant: Callable[[Draft], None], times: int) -> dict[int, list[str]]:
    """What was found instead, by seed, where the violation was not caught by the invariant that it breaks."""
    told = {seed: found_in(lines) for seed, lines in planted(mutant, times)}
    invariant = f"{MUTANTS[mutant]} "
    return {seed: found for seed, found in told.items() if not any(each.startswith(invariant) for each in found)}
