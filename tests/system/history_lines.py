"""Converts effect logs and the final state of a store to lines of a recorded history."""

from datetime import UTC, datetime

from horae.adapters import opened_store
from horae.proof.checking import read_final
from horae.proof.checking.history.records import Effect, HandlerEvent, Line
from tests.system import effects
from tests.system.faults import clock


def effect_line(note: effects.Effect, *, good: bool = True) -> Effect:
    """Convert an effect; `good` is whether the handler was meant to succeed."""
    return Effect(
        at=note.at,
        event=HandlerEvent(note.event),
        run=note.run,
        job=note.job,
        attempt=note.attempt,
        fence=note.fence,
        due=note.due,
        label=note.label,
        pid=note.pid,
        good=good,
    )


async def final_lines(url: str) -> list[Line]:
    async with opened_store(url) as store:
        return [line async for line in read_final(store, now=datetime.now(UTC), at=clock())]
