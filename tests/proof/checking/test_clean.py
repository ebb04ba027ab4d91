"""The checker finds nothing wrong with the engine under random actions and crashes."""

import random
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from horae.core.decisions.new_runs import requeued
from horae.core.decisions.results import Failure
from horae.core.decisions.retry import RetryPolicy
from horae.core.drafts import Draft
from horae.core.errors import Conflict
from horae.core.model import Job, JobError, JobId, Misfire, OnFailure, Overlap, Policy, Reason, Run, State, Trigger
from horae.core.schedule.parse import schedule_to_wire
from horae.engine.execution.outcome import AttemptResult, Success
from horae.jobs.service import Jobs
from horae.ports.reader import RunFilter
from horae.proof.checking import Checker, Code, History, violations
from horae.proof.checking.store.slots import last_judged
from horae.stores.sqlite.executor import InlineExecutor
from horae.stores.sqlite.store import SqliteStore
from tests import acts
from tests.acts import Resolution
from tests.clocks import ManualClock
from tests.engine.system import START, SimNode, System, taking
from tests.engine.test_jobs import jobs_of
from tests.proof.checking.whole_store import checked, read_history

SCHEDULES = ("every 1s", "every 7s", "*/5 * * * * *", {"type": "every", "seconds": 10, "jitter_seconds": 4})
ERROR = JobError(type="ValueError", message="boom")


class Life:
    """Random actions of users and nodes on a system in virtual time."""

    def __init__(self, system: System, chance: random.Random) -> None:
        self.system = system
        self.chance = chance
        self.jobs: Jobs = jobs_of(system)
        self._frozen: list[SimNode] = []
        system.scripts = dict.fromkeys(("echo", "slow", "flaky"), self._script)

    def _script(self, run: Run) -> tuple[float, AttemptResult]:
        match run.spec.task:
            case "slow":
                return self.chance.choice((0.5, 3.0, 12.0)), Success(result="null")
            case "flaky" if self.chance.random() < 0.6:
                return self.chance.choice((0.0, 0.5)), Failure(error=ERROR, fatal=False)
            case _:
                return 0.0, Success(result="null")

    async def step(self) -> None:
        """Do something random, then let some time pass."""
        await self.chance.choice(self.actions())()
        await self.system.advance(seconds=self.chance.choice((0, 0.01, 0.4, 1, 3, 9)))

    def actions(self) -> list[Callable[[], Awaitable[object]]]:
        return [
            *[self.create] * 3, self.create_keyed, self.create_keyed, self.pause, self.resume, self.patch, self.cancel,
            self.run_now, self.cancel_run, self.requeue, self.crash, self.freeze, self.thaw, self.add_node, self.drain,
        ]  # fmt: skip

    async def create(self) -> None:
        await self._create(self.chance.choice(SCHEDULES), self._policy())

    async def create_keyed(self) -> None:
        key = self.chance.choice(("a", "b"))
        for _ in range(self.chance.choice((1, 5))):
            when = self.chance.choice(("now", (self.system.clock.now() + timedelta(seconds=3)).isoformat()))
            await self._create(when, self._policy(OnFailure), ordering_key=key)

    async def _create(self, schedule: object, policy: Policy, **changes: object) -> None:
        task = self.chance.choice(("echo", "slow", "flaky"))
        draft = Draft(task=task, schedule=schedule, allow_unknown_task=True, policy=policy, **changes)  # type: ignore[arg-type]
        await self.jobs.create(draft, owner="local", by="local")

    def _policy(self, on_failure: Iterable[OnFailure] = (OnFailure.CONTINUE,)) -> Policy:
        return Policy(
            retry=RetryPolicy(max_retries=self.chance.choice((0, 2)), initial=timedelta(seconds=1)),
            overlap=self.chance.choice(list(Overlap)),
            misfire=self.chance.choice(list(Misfire)),
            catchup=timedelta(seconds=self.chance.choice((10, 3600))),
            on_failure=self.chance.choice(list(on_failure)),
            start_within=self.chance.choice((None, None, timedelta(seconds=2))),
        )

    async def pause(self) -> None:
        await self._act(lambda job: self.jobs.pause(job, owner=None))

    async def resume(self) -> None:
        missed = self.chance.choice(list(Misfire))
        await self._act(lambda job: self.jobs.resume(job, missed=missed, owner=None))

    async def patch(self) -> None:
        schedule = self.chance.choice((*SCHEDULES, None))

        async def revise(job: Job) -> Draft:
            form = schedule_to_wire(job.schedule) if schedule is None else schedule
            return Draft(task=job.spec.task, schedule=form, policy=self._policy(), allow_unknown_task=True)  # type: ignore[arg-type]

        await self._act(lambda job: self.jobs.patch(job, revise, owner=None))

    async def cancel(self) -> None:
        keep = self.chance.random() < 0.5
        await self._act(lambda job: self.jobs.cancel(job, keep_running=keep, owner=None))

    async def run_now(self) -> None:
        await self._act(lambda job: self.jobs.run_now(job, None, owner=None, by="local"))

    async def _act(self, act: Callable[[JobId], Awaitable[object]]) -> None:
        runs = [run for run in await self._runs() if not run.one_shot]
        if runs:
            try:
                await act(self.chance.choice(runs).job_id)
            except Conflict:
                return  # it is over: users are told so

    async def cancel_run(self) -> None:
        if runs := await self._runs(State.SCHEDULED, State.CLAIMED, State.RUNNING, State.RETRYING):
            try:
                await self.jobs.cancel_run(self.chance.choice(runs).id, owner=None)
            except Conflict:
                return

    async def requeue(self) -> None:
        now, new_id = self.system.clock.now(), self.system.new_id
        for run in [run for run in await self._runs(State.FAILED) if run.resolution is None][:3]:
            successor = requeued(run, now=now, new_id=new_id) if self.chance.random() < 0.7 else None
            await acts.resolve(self.system.store, [Resolution(run_id=run.id, successor=successor)], now=now)

    async def _runs(self, *states: State) -> list[Run]:
        which = RunFilter(states=frozenset(states) or None)
        return list((await self.system.store.list_runs(which, cursor=None, limit=200)).items)

    # --- nodes

    async def crash(self) -> None:
        if node := self._some_node():
            node.kill()

    async def freeze(self) -> None:
        if node := self._some_node():
            node.freeze()
            self._frozen.append(node)

    async def thaw(self) -> None:
        while self._frozen:
            self._frozen.pop().thaw()

    async def drain(self) -> None:
        if node := self._some_node():
            await node.drain()

    async def add_node(self) -> None:
        if sum(node.alive for node in self.system.nodes) < 4:
            await self.system.add_node(concurrency=self.chance.choice((3, 100)))

    def _some_node(self) -> SimNode | None:
        alive = [node for node in self.system.nodes if node.alive]
        return self.chance.choice(alive) if len(alive) > 1 else None


async def live(folder: Path, seed: int, steps: int = 40) -> System:
    """Live for some minutes; at the end anything may be running."""
    clock = ManualClock(START)
    store = SqliteStore(folder / f"{seed}.db", executor=InlineExecutor(durable=False), wall=clock.now)
    await store.open()
    system = System(store, clock, seed=seed)
    life = Life(system, random.Random(seed))
    await system.add_node()
    await system.add_node(concurrency=3)
    for _ in range(steps):
        await life.step()
    return system


@pytest.fixture(autouse=True)
def nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for cancels to be confirmed: virtual time stands still."""
    monkeypatch.setattr("horae.jobs.cancel.CONFIRM_SECONDS", 0.0)


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(n, marks=pytest.mark.acceptance) for n in range(6, 40))])
async def test_nothing_is_wrong_with_a_life_of_crashes_pauses_and_changes(tmp_path: Path, seed: int) -> None:
    system = await live(tmp_path, seed)
    try:
        assert await checked(system.store, system.clock.now()) == []
        await system.advance(minutes=3)
        assert await checked(system.store, system.clock.now()) == []
    finally:
        await system.store.close()


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(n, marks=pytest.mark.acceptance) for n in range(3, 20))])
async def test_every_run_and_skip_of_such_a_life_is_missed_when_it_is_lost(tmp_path: Path, seed: int) -> None:
    system = await live(tmp_path, seed)
    history = await read_history(system.store, system.clock.now())
    await system.store.close()
    for job in history.jobs:
        own = replace(history, jobs=[job], runs=[run for run in history.runs if run.job_id == job.id])
        told = [run for run in own.runs if run.slot is not None and accounts_for_its_slot(run, job, history)]
        for run in told[::3]:
            without = replace(own, runs=[other for other in own.runs if other.id != run.id])
            assert is_missed(without), (job, run)
        for skip in [skip for skip in own.skips if skip.job_id == job.id]:
            assert is_missed(replace(own, skips=[other for other in own.skips if other != skip])), (job, skip)


def accounts_for_its_slot(run: Run, job: Job, history: History) -> bool:
    """Whether nothing else does: it has started, or is of the current revision."""
    decided = run.slot is not None and run.slot <= last_judged(job, history.now)
    started = run.first_started_at is not None
    return run.trigger is Trigger.SCHEDULE and decided and (started or run.revision == job.revision)


def is_missed(history: History) -> bool:
    return any(found.code is Code.SLOT_MISSING for found in violations(history))


async def test_a_slot_that_was_skipped_while_a_result_waited_for_the_store_raises_no_alarm(tmp_path: Path) -> None:
    clock = ManualClock(START)
    store = SqliteStore(tmp_path / "horae.db", executor=InlineExecutor(durable=False), wall=clock.now)
    await store.open()
    system = System(store, clock)
    system.scripts["slow"] = taking(2)
    far = await system.add_node()
    draft = Draft(task="slow", schedule="every 5s", allow_unknown_task=True, policy=Policy(overlap=Overlap.SKIP))
    job = await jobs_of(system).create(draft, owner="local", by="local")
    await system.advance(seconds=5.5)
    await system.add_node()
    far.cut_off()
    await system.advance(seconds=9)
    far.reconnect()
    await system.advance(seconds=1)
    first, second = (await store.ledger(job.id, start=START, end=START + timedelta(seconds=10), limit=9)).runs
    assert (first.state, first.finished_at) == (State.SUCCEEDED, START + timedelta(seconds=7))
    assert (second.state, second.reason) == (State.SKIPPED, Reason.OVERLAP)
    assert await checked(store, clock.now()) == []
    await store.close()


class Restless:
    """A store in which time passes with every read."""

    def __init__(self, system: System) -> None:
        self._system = system

    def __getattr__(self, name: str) -> Callable[..., Awaitable[object]]:
        async def look(*args: object, **options: object) -> object:
            seen = await getattr(self._system.store, name)(*args, **options)
            await self._system.advance(seconds=0.7)
            return seen

        return look


@pytest.mark.parametrize("seed", range(3))
async def test_a_store_that_changes_under_the_look_raises_no_alarm(tmp_path: Path, seed: int) -> None:
    system = await live(tmp_path, seed, steps=25)
    try:
        checker = Checker(Restless(system), pause=0)  # type: ignore[arg-type]
        assert [violation async for violation in checker.violations()] == []
    finally:
        await system.store.close()
