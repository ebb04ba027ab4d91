"""Measures what verbs of the DynamoDB store use, by the counters of its own client, on tables in memory."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, cast

from horae.api.dispatch.context import Services
from horae.aws_api.counters import RequestTally
from horae.core.decisions.results import start, succeed
from horae.core.drafts import Draft
from horae.core.effects import register_node
from horae.core.ids import Ids
from horae.core.model import JobId, Node, NodeId, Run, RunId, Spec
from horae.core.schedule.types import At
from horae.core.values import replace
from horae.engine.cluster.lease import Timing
from horae.ports.store import ClaimRequest
from horae.stores.dynamodb.store import DynamoStore
from horae.tasks.registry import Registry, TaskFunction
from tests.dynamodb_memory.client import MemoryClient
from tests.dynamodb_memory.partitions import Partitions
from tests.dynamodb_memory.server import DynamoServer
from tests.dynamodb_memory.store_tables import made_tables
from tests.partitions.nodes import METRICS, SimulatedNode
from tests.partitions.virtual import EPOCH, START, VirtualClock, run_in_virtual_time, seconds
from tests.simulation.virtual import SimulatedLoop

NODE = NodeId("01" * 16)
SECOND = timedelta(seconds=1)
CALLS = 5  # of each verb that are measured, after one that is not


def one_shots(count: int, ids: Ids) -> list[Run]:
    """Plain one-shots that are due at once."""
    spec = Spec(task="work", params="x" * 200)
    template = Run(RunId(""), JobId(""), "ann", "ann", spec, START, START, START, schedule=At(time=START))
    return [replace(template, id=RunId(each), job_id=JobId(each)) for each in ids.many(count)]


def measured(batch: int) -> Mapping[str, RequestTally]:
    """What CALLS batches of so many one-shots use: created, claimed among their ids, started and settled."""
    found: dict[str, RequestTally] = {}

    async def main(loop: SimulatedLoop) -> None:
        server = DynamoServer(clock=lambda: seconds(loop))
        await made_tables(server)
        client = MemoryClient(server)
        store = DynamoStore("dynamodb://local/x", client=client)
        node = Node(
            id=NODE, name="n", roles=("worker",), version="1", started_at=START, beat_at=START, tasks={"work": "{}"}
        )
        await store.apply([register_node(node)])
        ids = Ids(wall=lambda: EPOCH)
        for call in range(1 + CALLS):
            if call == 1:
                client.counters.reset()
            await _live(store, one_shots(batch, ids))
            await asyncio.sleep(10)
        found.update(client.counters.by_verb())

    run_in_virtual_time(main)
    return found


async def _live(store: DynamoStore, runs: list[Run]) -> None:
    await store.create(runs)
    among = [run.id for run in runs]
    request = ClaimRequest(
        node=NODE, queues=(), tasks=("work",), now=START, until=START + SECOND, limit=len(runs), among=among
    )
    claimed = (await store.claim(request)).runs
    assert len(claimed) == len(runs)
    started = [start(run, START) for run in claimed]
    assert all(await store.start(started))
    assert all(await store.settle([succeed(run, None, START + SECOND) for run in started]))


def idle_units(*, seconds_long: int, nodes: int = 3) -> tuple[float, float]:
    """Write and read units that one of some nodes without any work uses in an hour."""
    found: list[tuple[float, float]] = []

    async def main(loop: SimulatedLoop) -> None:
        clock = VirtualClock(loop)
        partitions = Partitions(lambda: seconds(loop), limited=False)
        server = DynamoServer(clock=lambda: seconds(loop), partitions=partitions)
        await made_tables(server)
        there = [
            SimulatedNode(
                number,
                DynamoStore("dynamodb://local/x", client=MemoryClient(server)),
                None,
                clock,
                Registry(),
                Timing(),
                concurrency=10,
            )
            for number in range(nodes)
        ]
        for node in there:
            await node.start()
        await asyncio.sleep(60)
        before = sum(partitions.total.values()), sum(partitions.total_reads.values())
        await asyncio.sleep(seconds_long)
        share = 3600 / seconds_long / nodes
        writes = sum(partitions.total.values()) - before[0]
        reads = sum(partitions.total_reads.values()) - before[1]
        found.append((writes * share, reads * share))
        for node in there:
            await node.stop()

    run_in_virtual_time(main)
    return found[0]


def recurring_units(*, jobs: int, every: int, seconds_long: int) -> float:
    """Write units of one run of recurring jobs on one node, without what the node uses when it is idle."""
    found: list[float] = []

    async def main(loop: SimulatedLoop) -> None:
        clock, ran = VirtualClock(loop), 0
        partitions = Partitions(lambda: seconds(loop), limited=False)
        server = DynamoServer(clock=lambda: seconds(loop), partitions=partitions)
        await made_tables(server)
        store = DynamoStore("dynamodb://local/x", client=MemoryClient(server))
        registry = Registry()

        async def work() -> None:
            nonlocal ran
            ran += 1

        registry.add(TaskFunction(work, name="work"))
        node = SimulatedNode(1, store, None, clock, registry, Timing(), concurrency=100)
        await node.start()
        await asyncio.sleep(5)
        services = Services.over(
            store,
            store.blobs,
            cast(Any, clock),
            METRICS,
            new_id=Ids(wall=lambda: seconds(loop)),
            horizon=timedelta(seconds=30),
            dead_after=timedelta(seconds=15),
            task_defaults=registry.get,
            check_params=registry.check,
            ready=lambda: True,
        )
        for _ in range(jobs):
            await services.jobs.create(Draft(task="work", schedule=f"every {every}s"), owner="ann", by="ann")
        await asyncio.sleep(65)
        before, ran = sum(partitions.total.values()), 0
        await asyncio.sleep(seconds_long)
        found.append((sum(partitions.total.values()) - before) / ran)
        await node.stop()

    run_in_virtual_time(main)
    return found[0]
