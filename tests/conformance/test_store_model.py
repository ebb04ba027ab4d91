"""Random lives of runs: whatever is done in whatever order, the store agrees with a few lines of Python."""

from dataclasses import dataclass, field
from datetime import datetime

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from horae.core.decisions.results import Settled, cancel, give_back, lost, skip, start, succeed
from horae.core.lifecycle import FINAL, HELD, WAITING
from horae.core.model import NodeId, Reason, Run, RunId, State
from horae.core.values import replace
from horae.ports.reader import RunFilter
from horae.ports.store import Store
from tests import acts
from tests.conformance.builders import (
    DEAD_AFTER,
    MINUTE,
    NOW,
    SECOND,
    claims_of,
    failed,
    given_node,
    new_id,
    one_shot,
    retried,
)

ENDS = {"succeed": lambda run, at: succeed(run, None, at), "retry": retried, "fail": failed, "give back": give_back}

Step = tuple[str, int, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["create", "claim", "start", *ENDS, "cancel", "skip", "stale", "park", "die", "wait"]),
        st.integers(0, 7),
        st.integers(0, 3),
    ),
    min_size=5,
    max_size=40,
)


@dataclass
class Model:
    """What the store should hold: one value per run, and who has which gate."""

    store: Store
    nodes: list[NodeId]
    queue: str
    now: datetime = NOW
    runs: dict[RunId, Run] = field(default_factory=dict)
    gates: dict[str, NodeId] = field(default_factory=dict)
    parked: set[RunId] = field(default_factory=set)

    async def create(self, which: int, variant: int) -> None:
        gate = f"{self.queue}/{variant // 3}" if variant else None
        at = self.now + (which // 2 - 2) * SECOND
        run = one_shot(at, queue=self.queue, priority=which % 2, gate=gate)
        await acts.create(self.store, [run])
        self.runs[run.id] = run

    async def claim(self, which: int, variant: int) -> None:
        node, limit = self.nodes[which % len(self.nodes)], 1 + variant * 3
        claims = await claims_of(
            self.store, node, queues=[self.queue], now=self.now, until=self.now + SECOND, limit=limit
        )
        assert claims.alive
        expected = self._claimable(node)
        taken = [run.id for run in claims.runs]
        if not claims.more:
            assert sorted(taken) == sorted(expected)
        assert set(taken) <= set(expected)
        order = [(-run.spec.priority, run.wake_at) for run in claims.runs]
        assert order == sorted(order)
        for run in claims.runs:
            before = self.runs[run.id]
            assert run == replace(before, state=State.CLAIMED, node=node, fence=before.fence + 1)
            self.runs[run.id] = run
            if run.gate is not None:
                self.gates[run.gate] = node
        for contested in claims.contested:
            assert contested.run == self.runs[contested.run.id]
            assert contested.run.due_at <= self.now

    def _claimable(self, node: NodeId) -> list[RunId]:
        awake = [
            run
            for run in self.runs.values()
            if run.state in WAITING and run.wake_at <= self.now + SECOND and run.id not in self.parked
        ]
        return [run.id for run in awake if run.gate is None or self._may_pass(run, node)]

    def _may_pass(self, run: Run, node: NodeId) -> bool:
        assert run.gate is not None
        return self.gates.get(run.gate, node) == node and all(other.node == node for other in self._ahead(run))

    def _ahead(self, run: Run) -> list[Run]:
        line = [other for other in self.runs.values() if other.gate == run.gate and other.state not in FINAL]
        return [other for other in line if (other.due_at, other.id) < (run.due_at, run.id)]

    def _pick(self, which: int, *states: State) -> Run | None:
        found = sorted((run for run in self.runs.values() if run.state in states), key=lambda run: run.id)
        return found[which % len(found)] if found else None

    async def start(self, which: int) -> None:
        if (run := self._pick(which, State.CLAIMED)) is not None:
            self.runs[run.id] = start(run, self.now)
            assert await self.store.start([self.runs[run.id]]) == [True]

    async def end(self, how: str, which: int) -> None:
        if (run := self._pick(which, State.RUNNING)) is not None:
            await self._settle(ENDS[how](run, self.now))

    async def leave(self, how: str, which: int) -> None:
        run = self._pick(which, *WAITING, State.CLAIMED)
        if run is None:
            return
        settled = cancel(run, self.now) if how == "cancel" else skip(run, Reason.OVERLAP, self.now)
        if run.state in HELD:  # whoever takes it for waiting changes nothing
            waiting = replace(run, state=State.SCHEDULED, node=None)
            assert await self.store.settle([cancel(waiting, self.now)]) == [False]
        await self._settle(settled)

    async def _settle(self, settled: Settled) -> None:
        assert await self.store.settle([settled]) == [True]
        self._apply(settled)

    def _apply(self, settled: Settled) -> None:
        run = settled.run
        self.runs[run.id] = run
        self.parked.discard(run.id)
        if run.state in FINAL:
            waiting = [self.runs[each] for each in self.parked if self.runs[each].gate == run.gate]
            for head in sorted(waiting, key=lambda each: (each.due_at, each.id))[:1]:
                self.parked.discard(head.id)
                self.runs[head.id] = replace(head, wake_at=max(head.wake_at, self.now))

    async def stale(self, which: int) -> None:
        run = self._pick(which, *HELD, State.SUCCEEDED, State.RETRYING)
        if run is not None:
            late = replace(run, state=State.RUNNING, fence=run.fence - 1, started_at=self.now)
            later = self.now + MINUTE
            assert await self.store.settle([succeed(late, '"late"', later), give_back(late, later)]) == [False, False]
            assert await self.store.start([late]) == [False]

    async def park(self, which: int) -> None:
        waiting = [run for run in self.runs.values() if run.gate and run.state in WAITING and run.id not in self.parked]
        if not waiting:
            return
        run = waiting[which % len(waiting)]
        await acts.park(self.store, [run])
        held = [other for other in self.runs.values() if other.gate == run.gate and other.state in HELD]
        if held or self._ahead(run):
            self.parked.add(run.id)

    async def die(self, which: int) -> None:
        """A node is buried, its runs go back, its gates are freed; another takes its place."""
        dead = self.nodes.pop(which % len(self.nodes))
        await acts.unregister(self.store, dead)
        held = [run for run in self.runs.values() if run.node == dead and run.state in HELD]
        orphans = [run for run in await self.store.orphans(limit=1000) if run.id in self.runs]
        assert sorted(orphans, key=lambda run: run.id) == sorted(held, key=lambda run: run.id)
        for orphan in orphans:
            await self._settle(lost(orphan, self.now))
        self.gates = {gate: node for gate, node in self.gates.items() if node != dead}
        self.nodes.append(await given_node(self.store))

    async def step(self, name: str, which: int, variant: int) -> None:
        match name:
            case "create":
                await self.create(which, variant)
            case "claim":
                await self.claim(which, variant)
            case "start":
                await self.start(which)
            case "cancel" | "skip":
                await self.leave(name, which)
            case "stale":
                await self.stale(which)
            case "park":
                await self.park(which)
            case "die":
                await self.die(which)
            case "wait":
                self.now += which * SECOND
            case _:
                await self.end(name, which)

    async def check(self) -> None:
        """Everything is as it should be."""
        listed = await self.store.list_runs(RunFilter(owner="ada", queue=self.queue), cursor=None, limit=1000)
        assert {run.id: run for run in listed.items} == self.runs
        runs = list(self.runs.values())
        assert await self.store.still_held(runs) == [run.state in HELD for run in runs]


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
async def test_any_sequence_of_verbs_leaves_what_the_model_says(store: Store, steps: list[Step]) -> None:
    nodes = [await given_node(store, beat_at=NOW + DEAD_AFTER) for _ in range(2)]
    model = Model(store=store, nodes=nodes, queue=new_id())
    for name, which, variant in [*[("create", 3, 0)] * 2, *[("create", 3, 1)] * 4, ("claim", 0, 2), *steps]:
        await model.step(name, which, variant)
    await model.check()
