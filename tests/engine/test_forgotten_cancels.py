"""A cancel that was accepted is never forgotten, whatever is done to the job of the run after it."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from horae.core.drafts import Draft
from horae.core.effects import request_stop, retractable
from horae.core.job_rules import run_status
from horae.core.model import Job, Misfire, NodeId, Reason, Run, State
from horae.core.values import replace
from horae.engine.worker.retraction import Retraction, retract
from horae.jobs import cancel
from horae.ports.reader import RunFilter
from tests.core.builders import NOON, a_run
from tests.engine.system import SimNode, System
from tests.engine.test_jobs import counts, create, jobs_of, ledger, revision_of

Act = Callable[[System, Job], Awaitable[Any]]


async def pause(system: System, job: Job) -> None:
    await jobs_of(system).pause(job.id, owner=None)


async def pause_and_resume(system: System, job: Job) -> None:
    await pause(system, job)
    await jobs_of(system).resume(job.id, missed=Misfire.ALL, owner=None)


async def label(system: System, job: Job) -> None:
    draft = Draft(task="echo", schedule="*/10 * * * * *", labels={"a": "b"}, allow_unknown_task=True)
    await jobs_of(system).patch(job.id, await revision_of(draft), owner=None)


async def held_run(system: System, job: Job) -> Run:
    held = RunFilter(job_id=job.id, states=frozenset({State.CLAIMED}))
    [run] = (await system.store.list_runs(held, cursor=None, limit=9)).items
    return run


async def claimed_by(system: System) -> tuple[SimNode, Job, Run]:
    """A job whose next run is held by a node that has not started it."""
    node = await system.add_node()
    job = await create(system, "*/10 * * * * *")
    await system.advance(seconds=9.5)
    return node, job, await held_run(system, job)


@pytest.fixture(autouse=True)
def nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for a worker that is dead."""
    monkeypatch.setattr(cancel, "CONFIRM_SECONDS", 0.0)


@pytest.mark.parametrize("act", [pause, pause_and_resume, label])
async def test_a_run_that_was_cancelled_on_a_dead_worker_stays_cancelled(either_system: System, act: Act) -> None:
    system = either_system
    node, job, run = await claimed_by(system)
    node.kill()
    asked = await jobs_of(system).cancel_run(run.id, owner=None)
    assert run_status(asked, system.clock.now()) == "cancelling"

    await act(system, job)

    assert (await system.run(run.id)).stop is Reason.CANCELLED
    await system.add_node()
    await system.advance(seconds=30)
    assert (await system.run(run.id)).state is State.CANCELLED
    await jobs_of(system).resume(job.id, missed=Misfire.ALL, owner=None)
    await system.advance(seconds=5)
    assert [start for start in system.starts_of(job.id) if start.run.slot == run.slot] == []
    assert counts(await ledger(system, job, end=run.slot)) == {"skipped:cancelled": 1}


async def test_a_worker_does_not_take_back_a_run_that_is_cancelled_after_the_pause(either_system: System) -> None:
    system = either_system
    node, job, run = await claimed_by(system)
    node.freeze()
    await pause(system, job)
    assert (await system.run(run.id)).stop is Reason.PAUSED
    await jobs_of(system).cancel_run(run.id, owner=None)

    assert await retract(system.store, [run], now=system.clock.now()) == [Retraction.GOES_ON]

    assert (await system.run(run.id)).stop is Reason.CANCELLED
    node.thaw()
    await system.advance(seconds=1)
    assert (await system.run(run.id)).state is State.CANCELLED


def test_a_cancelled_run_is_not_retractable() -> None:
    held = a_run(State.CLAIMED, slot=NOON, due_at=NOON, node=NodeId("1" * 32))
    before = NOON.replace(hour=1)
    assert retractable([held], [held], before) == [held]
    cancelled = replace(held, stop=Reason.CANCELLED)
    assert retractable([cancelled], [cancelled], before) == []


def test_a_stop_request_is_never_weakened() -> None:
    cancelled = a_run(State.CLAIMED, stop=Reason.CANCELLED, node=NodeId("1" * 32))
    [put] = request_stop(cancelled, Reason.PAUSED).puts
    assert getattr(put, "reason", None) is Reason.CANCELLED
