"""Whether a life kept the promises: its recorded history and its store, judged by `horae.proof.checking`."""

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from horae.proof.checking import Checker, Recording, Violation, judge_recording

if TYPE_CHECKING:
    from tests.simulation.life import Life

LEAST_FAULTS = 3
LEAST_RUNS = 50


async def judge(life: "Life") -> list[str]:
    """Everything that is wrong; empty when all promises were kept."""
    recording = Recording(life.history.lines)
    verdict = judge_recording(recording)
    life.runs, life.occurrences = len(recording.final_runs), verdict.coverage.occurrences
    stored = await _stored(life)
    told = [f"{found.code}: {found.subject}: {found.detail}" for found in (*verdict.violations, *stored)]
    return [*dict.fromkeys(told), *_vacuous(life)]


async def _stored(life: "Life") -> list[Violation]:
    """What `horae check` tells of the store."""

    async def time() -> datetime:
        return life.now()

    checker = Checker(life.store, pause=0, now=time)
    return [violation async for violation in checker.violations()]


def _vacuous(life: "Life") -> Iterator[str]:
    """A life proves nothing unless enough happened."""
    fired = sum(life.faults.fired.faults.values())
    if fired < LEAST_FAULTS or life.runs < LEAST_RUNS:
        yield f"too little happened: {fired} faults and {life.runs} runs"
