"""The task of every simulated job: it records its start and end, takes its time, and fails if it is to."""

import asyncio
from collections.abc import Callable

from horae.proof.checking.history.records import Effect, HandlerEvent
from horae.run import Run
from horae.tasks.registry import Registry, TaskFunction
from tests.simulation.virtual import MACHINE, Machine


class Workplace(Machine):
    """A machine with handlers that write to the history."""

    number: int
    node_id: str
    at: Callable[[], float]
    note: Callable[[Effect], None]


async def work(run: Run, label: str, seconds: float = 0.0, fails: int = 0) -> int:
    """Work for some seconds, and fail on the first `fails` attempts."""
    here = MACHINE.get()
    assert isinstance(here, Workplace)
    node = here.node_id

    def note(event: HandlerEvent, *, good: bool = True) -> None:
        here.note(
            Effect(
                at=here.at(),
                event=event,
                run=run.id,
                job=run.job_id,
                attempt=run.attempt,
                fence=run.fence,
                due=run.due_at.timestamp(),
                label=label,
                node=node,
                pid=here.number,
                good=good,
            )
        )

    note(HandlerEvent.START)
    try:
        if seconds:
            await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        note(HandlerEvent.STOPPED)
        raise
    note(HandlerEvent.END, good=run.attempt > fails)
    if run.attempt <= fails:
        raise ValueError(f"attempt {run.attempt}")
    return run.fence


REGISTRY = Registry()  # one for all lives: inspecting a function takes as long as hundreds of runs
REGISTRY.add(TaskFunction(work, name="work"))
SCHEMAS = REGISTRY.schemas()
