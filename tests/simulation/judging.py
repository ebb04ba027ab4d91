"""Whether a life kept the promises: its recorded history and its store, judged as any other by `horae.checking`."""

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from horae.checking import Checker, Code, Recording, Violation, judge_recording
from horae.checking.leases import ended_at, held_at

if TYPE_CHECKING:
    from tests.simulation.life import Life

LEAST_FAULTS = 3
LEAST_RUNS = 50


async def judge(life: "Life") -> list[str]:
    """Everything that is wrong; empty when all promises were kept."""
    recording = Recording(life.history.lines)
    verdict = judge_recording(recording)
    life.runs, life.sights = len(recording.finals), verdict.proof.sights
    stored = [found for found in await _stored(life) if not _is_explained(found, recording)]
    told = [f"{found.code}: {found.subject}: {found.detail}" for found in (*verdict.violations, *stored)]
    return [*dict.fromkeys(told), *_vacuous(life)]


async def _stored(life: "Life") -> list[Violation]:
    """What `horae check` tells of the store."""

    async def time() -> datetime:
        return life.now()

    checker = Checker(life.store, pause=0, now=time)
    return [violation async for violation in checker.violations()]


def _is_explained(found: Violation, recording: Recording) -> bool:
    """Whether a slot was skipped because another run was held, by all that the store could know.

    A result that waits for the store to answer again is older than the store's knowledge of it.
    """
    if found.code is not Code.SKIPPED_WITHOUT_CAUSE:
        return False
    skipped = recording.runs[found.subject]
    decided_at = ended_at(skipped.run, recording)
    assert decided_at is not None
    others = [run for run in recording.finals if run.job == skipped.job and run.run != skipped.run]
    return any(held_at(other.run, decided_at, recording) for other in others)


def _vacuous(life: "Life") -> Iterator[str]:
    """A life proves nothing unless enough happened."""
    fired = sum(life.faults.fired.faults.values())
    if fired < LEAST_FAULTS or life.runs < LEAST_RUNS:
        yield f"too little happened: {fired} faults and {life.runs} runs"
