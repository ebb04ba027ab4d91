"""Judges a simulated life by its recorded history and its store."""

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from horae.proof.checking import Checker, Recording, Violation, judge_recording

if TYPE_CHECKING:
    from tests.simulation.life import Life

LEAST_FAULTS = 3
LEAST_RUNS = 50


async def judge(life: "Life") -> list[str]:
    """Return everything that is wrong with a life."""
    recording = Recording(life.history.lines)
    verdict = judge_recording(recording)
    life.runs, life.occurrences = len(recording.final_runs), verdict.coverage.occurrences
    stored = await _store_violations(life)
    messages = [f"{found.code}: {found.subject}: {found.detail}" for found in (*verdict.violations, *stored)]
    return [*dict.fromkeys(messages), *_too_little(life)]


async def _store_violations(life: "Life") -> list[Violation]:
    """The violations that `horae check` would find in the store."""

    async def time() -> datetime:
        return life.now()

    checker = Checker(life.store, pause=0, now=time)
    return [violation async for violation in checker.violations()]


def _too_little(life: "Life") -> Iterator[str]:
    """Report a life in which too little happened to prove anything."""
    fired = sum(life.faults.fired.faults.values())
    if fired < LEAST_FAULTS or life.runs < LEAST_RUNS:
        yield f"too little happened: {fired} faults and {life.runs} runs"
