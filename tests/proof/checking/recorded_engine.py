"""The real engine in virtual time under random actions and crashes, recorded as a harness would record it."""

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from horae.core.decisions.new_runs import requeued
from horae.core.drafts import Draft
from horae.core.errors import Conflict
from horae.core.lifecycle import FINAL
from horae.core.model import Job, JobId, Policy, Reason, Run, State
from horae.core.schedule.parse import schedule_to_wire
from horae.engine.execution.attempt import RunningAttempt
from horae.engine.execution.outcome import AttemptResult, Stopped, Success
from horae.proof.checking import read_final
from horae.proof.checking.findings import job_name, run_name
from horae.proof.checking.history.final_state import label_in_params
from horae.proof.checking.history.records import (
    Action,
    Definition,
    Effect,
    Fail,
    HandlerEvent,
    InjectedFault,
    Invoke,
    Line,
    Ok,
    Setup,
)
from horae.stores.sqlite.executor import InlineExecutor
from horae.stores.sqlite.store import SqliteStore
from tests import acts
from tests.acts import Resolution
from tests.clocks import ManualClock
from tests.engine.system import START, SimNode, System, taking
from tests.proof.checking.test_clean import SCHEDULES, Life


class RecordedSystem(System):
    """A system whose handlers record their starts and ends."""

    def __init__(self, store: SqliteStore, clock: ManualClock, *, seed: int) -> None:
        super().__init__(store, clock, seed=seed)
        self.effects: list[Effect] = []

    async def add_node(self, *, concurrency: int = 100, queues: tuple[str, ...] = ()) -> SimNode:
        node = await super().add_node(concurrency=concurrency, queues=queues)
        begin = node.executor.begin

        def noted(
            run: Run, done: Callable[[Run, AttemptResult], None], progressed: Callable[[Run, float], None]
        ) -> RunningAttempt:
            self._note(HandlerEvent.START, run, node)

            def over(ended: Run, result: AttemptResult) -> None:
                event = HandlerEvent.STOPPED if isinstance(result, Stopped) else HandlerEvent.END
                self._note(event, ended, node, good=isinstance(result, Success))
                done(ended, result)

            return begin(run, over, progressed)

        node.executor.begin = noted  # type: ignore[method-assign]
        return node

    def _note(self, event: HandlerEvent, run: Run, node: SimNode, *, good: bool = True) -> None:
        self.effects.append(
            Effect(
                at=self.clock.now().timestamp(),
                event=event,
                run=run_name(run.id),
                job=job_name(run.job_id),
                attempt=run.attempt,
                fence=run.fence,
                due=run.due_at.timestamp(),
                label=label_in_params(run.spec.params),
                node=node.heartbeat.node.name,
                good=good,
                params=run.spec.params,
            )
        )


class RecordedLife(Life):
    """A random life of which every call and fault is recorded."""

    system: RecordedSystem

    def __init__(self, system: RecordedSystem, chance: random.Random) -> None:
        super().__init__(system, chance)
        self.lines: list[Line] = []
        self._labels: dict[JobId, str] = {}
        self._frozen_at: dict[int, float] = {}

    def now(self) -> float:
        return self.system.clock.now().timestamp()

    async def call(self, action: Action, act: Callable[[], Awaitable[Any]], **about: Any) -> Any:
        """Do something, and record the call and its answer."""
        call = f"call {len(self.lines)}"
        self.lines.append(Invoke(at=self.now(), call=call, action=action, **about))
        try:
            answer = await act()
        except Conflict as exc:
            self.lines.append(Fail(at=self.now(), call=call, code=409, problem=str(exc)))
            return None
        self.lines.append(Ok(at=self.now(), call=call, **_shown(answer)))
        return answer

    async def _create(self, schedule: object, policy: Policy, **changes: object) -> None:
        label = f"job {len(self.lines)}"
        draft = self._draft(label, schedule, policy, **changes)
        definition = _definition(label, draft)
        job = await self.call(
            Action.CREATE, lambda: self.jobs.create(draft, owner="local", by="local"), definition=definition
        )
        self._labels[job.id] = label

    def _draft(self, label: str, schedule: object, policy: Policy, **changes: object) -> Draft:
        task = self.chance.choice(("echo", "slow", "flaky"))
        return Draft(
            task=task,
            params=f'{{"label":"{label}"}}',
            schedule=schedule,  # type: ignore[arg-type]
            allow_unknown_task=True,
            policy=policy,
            max_retries=policy.retry.max_retries,
            **changes,  # type: ignore[arg-type]
        )

    async def pause(self) -> None:
        await self._change(Action.PAUSE, lambda job: self.jobs.pause(job, owner=None))

    async def resume(self) -> None:
        missed = self._misfire()
        await self._change(Action.RESUME, lambda job: self.jobs.resume(job, missed=missed, owner=None))

    async def cancel(self) -> None:
        keep = self.chance.random() < 0.5
        await self._change(
            Action.DELETE, lambda job: self.jobs.cancel(job, keep_running=keep, owner=None), keep_running=keep
        )

    async def run_now(self) -> None:
        await self._change(Action.TRIGGER, lambda job: self.jobs.run_now(job, None, owner=None, by="local"))

    async def patch(self) -> None:
        job = await self._some_job()
        if job is None or job.id not in self._labels:
            return
        schedule = self.chance.choice((*SCHEDULES, None)) or schedule_to_wire(job.schedule)
        draft = self._draft(self._labels[job.id], schedule, self._policy())

        async def revise(old: Job) -> Draft:
            return draft

        await self.call(
            Action.UPDATE,
            lambda: self.jobs.patch(job.id, revise, owner=None),
            job=job_name(job.id),
            definition=_definition(self._labels[job.id], draft),
        )

    def _misfire(self) -> Any:
        return self._policy().misfire

    async def _some_job(self) -> Job | None:
        ids = [job for job in self._labels if self._labels[job]]
        found = await self.system.store.jobs(ids)
        jobs = [job for job in found.values() if job.recurring]
        return self.chance.choice(jobs) if jobs else None

    async def _change(self, action: Action, act: Callable[[JobId], Awaitable[object]], **about: Any) -> None:
        job = await self._some_job()
        if job is not None:
            await self.call(action, lambda: act(job.id), job=job_name(job.id), **about)

    async def cancel_run(self) -> None:
        if runs := await self._runs(State.SCHEDULED, State.CLAIMED, State.RUNNING, State.RETRYING):
            run = self.chance.choice(runs)
            await self.call(Action.CANCEL, lambda: self.jobs.cancel_run(run.id, owner=None), run=run_name(run.id))

    async def requeue(self) -> None:
        now, store = self.system.clock.now(), self.system.store
        for run in [run for run in await self._runs(State.FAILED) if run.resolution is None][:3]:
            successor = requeued(run, now=now, new_id=self.system.new_id) if self.chance.random() < 0.7 else None
            resolution = Resolution(run_id=run.id, successor=successor)

            async def resolve(resolution: Resolution = resolution, successor: Run | None = successor) -> Run | None:
                assert await acts.resolve(store, [resolution], now=now) == [True]
                return successor

            action = Action.DISCARD if successor is None else Action.REQUEUE
            await self.call(action, resolve, run=run_name(run.id))

    async def read(self) -> None:
        """Read some run."""
        if runs := await self._runs():
            run = self.chance.choice(runs)
            await self.call(Action.READ, lambda: self.system.run(run.id), run=run_name(run.id))

    def happenings(self) -> list[Callable[[], Awaitable[object]]]:
        return [*super().happenings(), self.read, self.read]

    # --- nodes

    async def crash(self) -> None:
        if node := self._some_node():
            self.lines.append(InjectedFault(at=self.now(), fault="kill", target=node.heartbeat.node.name))
            node.kill()

    async def freeze(self) -> None:
        if node := self._some_node():
            self.freeze_node(node)

    def freeze_node(self, node: SimNode) -> None:
        node.freeze()
        self._frozen.append(node)
        self._frozen_at[id(node)] = self.now()

    async def thaw(self) -> None:
        while self._frozen:
            self._thaw(self._frozen.pop())

    def _thaw(self, node: SimNode) -> None:
        name, at = node.heartbeat.node.name, self._frozen_at.pop(id(node))
        self.lines.append(InjectedFault(at=at, fault="freeze", target=name, until=self.now()))
        node.thaw()

    # --- the end

    async def end(self) -> list[Line]:
        """End all faults, wait until all work is done, and record the final state."""
        await self.thaw()
        await self.system.add_node()
        await self.system.advance(seconds=90)
        self.lines.append(Setup(at=START.timestamp(), lateness=15.0, recovery=40.0, lease=20.0, grace=20.0))
        async for line in read_final(self.system.store, now=self.system.clock.now(), at=self.now()):
            self.lines.append(line)
        return self.lines


def _shown(answer: object) -> dict[str, Any]:
    """The fields of an answer, as the API shows them."""
    match answer:
        case Job(run=None):
            return {"job": job_name(answer.id), "owner": answer.owner, "schedule": schedule_to_wire(answer.schedule)}
        case Job(run=Run() as run) | (Run() as run):
            stopping = run.stop is Reason.CANCELLED and run.state not in FINAL
            status = "cancelling" if stopping else str(run.state)
            return {"job": job_name(run.job_id), "run": run_name(run.id), "owner": run.owner, "status": status}
    return {}


def _definition(label: str, draft: Draft) -> Definition:
    policy = draft.policy
    return Definition(
        label=label,
        task=draft.task,
        params=draft.params,
        schedule=draft.schedule if isinstance(draft.schedule, str) else dict(draft.schedule),
        ordering_key=draft.ordering_key,
        on_failure=policy.on_failure,
        max_retries=policy.retry.max_retries,
        initial_seconds=policy.retry.initial.total_seconds(),
        start_within_seconds=None if policy.start_within is None else policy.start_within.total_seconds(),
        overlap=policy.overlap,
        misfire=policy.misfire,
        catchup_seconds=policy.catchup.total_seconds(),
    )


Spoil = Callable[[SqliteStore], Any]


async def recorded_life(folder: Path, seed: int, steps: int = 40, spoil: Spoil = lambda store: store) -> list[Line]:
    """What a harness writes down of some minutes in which anything may happen; the nodes use the store spoilt."""
    async with _stage(folder, seed, spoil) as life:
        for _ in range(steps):
            await life.step()
        return [*await life.end(), *life.system.effects]


async def frozen_life(folder: Path, spoil: Spoil = lambda store: store) -> list[Line]:
    """Freeze a worker until another has restarted its run, so that it returns with a stale result."""
    async with _stage(folder, 0, spoil) as life:
        life.system.scripts.update(dict.fromkeys(life.system.scripts, taking(12)))
        await life._create("now", Policy())
        await life.system.advance(seconds=1)
        [busy] = [node for node in life.system.nodes if node.executor.under_way]
        life.freeze_node(busy)
        await life.system.advance(seconds=20)
        await life.thaw()
        return [*await life.end(), *life.system.effects]


@asynccontextmanager
async def _stage(folder: Path, seed: int, spoil: Spoil) -> AsyncIterator[RecordedLife]:
    clock = ManualClock(START)
    store = SqliteStore(folder / f"{seed}.db", executor=InlineExecutor(durable=False), wall=clock.now)
    await store.open()
    try:
        system = RecordedSystem(spoil(store), clock, seed=seed)
        life = RecordedLife(system, random.Random(seed))
        await system.add_node()
        await system.add_node(concurrency=3)
        yield life
    finally:
        await store.close()
