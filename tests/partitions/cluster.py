"""Puts nodes, creators and the tables together, lets them work, and reports."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any, Protocol

from horae.core.values import Value
from horae.engine.cluster.lease import Timing
from horae.ports.queue import Queue
from horae.ports.store import Store
from horae.run import Run
from horae.tasks.registry import Registry, TaskFunction
from tests.partitions.load import Creator, Lateness, LoadShape
from tests.partitions.nodes import SimulatedNode, in_front
from tests.partitions.virtual import VirtualClock, run_in_virtual_time, seconds
from tests.simulation.virtual import SimulatedLoop

CONCURRENCY = 200  # of each node
JOIN_SECONDS = 5.0  # in which the nodes join, one after another
PATIENCE = 60.0  # seconds after the load in which everything is to be done
UPKEEP_SECONDS = 5.0


class Backend(Protocol):
    """What all processes share, and each has clients of."""

    def store(self) -> Store:
        """The store as one process has it."""

    def queue(self) -> Queue | None:
        """The queue in front of it, if there is one."""


class Cluster(Value, frozen=True, kw_only=True):
    """Who takes part."""

    nodes: int = 100
    timing: Timing = Timing()
    upkeep: Callable[[], None] | None = None  # called every few seconds


def run_load(
    shape: LoadShape, cluster: Cluster, backend_of: Callable[[SimulatedLoop, VirtualClock], Awaitable[Backend]]
) -> Lateness:
    """Let a cluster work on a load in virtual time, and return how late it was."""
    found: list[Lateness] = []

    async def main(loop: SimulatedLoop) -> None:
        clock = VirtualClock(loop)
        lateness = Lateness(lambda: seconds(loop))
        found.append(lateness)
        backend = await backend_of(loop, clock)
        registry = _registry(lateness)
        nodes = [
            SimulatedNode(
                number, backend.store(), backend.queue(), clock, registry, cluster.timing, concurrency=CONCURRENCY
            )
            for number in range(cluster.nodes)
        ]
        tasks = [asyncio.create_task(_live(node, JOIN_SECONDS * node.number / cluster.nodes)) for node in nodes]
        await asyncio.sleep(JOIN_SECONDS + 1)
        work = asyncio.ensure_future(_create(backend, clock, shape, lateness, cluster))
        await _until_done(work, tasks, lateness, cluster)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*(node.stop() for node in nodes))

    run_in_virtual_time(main)
    return found[0]


async def _create(
    backend: Backend, clock: VirtualClock, shape: LoadShape, lateness: Lateness, cluster: Cluster
) -> None:
    """Create the load in processes of their own."""
    async with AsyncExitStack() as stack:
        creators = []
        for number in range(shape.creators):
            front = in_front(backend.store(), backend.queue(), clock, cluster.timing)
            store = await stack.enter_async_context(front)
            creators.append(Creator(number, store, clock, shape, lateness))
        await asyncio.gather(*(creator.run() for creator in creators))


async def _live(node: SimulatedNode, wait: float) -> None:
    await asyncio.sleep(wait)
    await node.start()
    await node.failed()


async def _until_done(
    work: "asyncio.Future[Any]", nodes: Sequence["asyncio.Task[None]"], lateness: Lateness, cluster: Cluster
) -> None:
    """Wait for the creators, and then until everything has started and is settled; a node that fails ends it."""
    patience = PATIENCE
    while patience > 0:
        done, _ = await asyncio.wait([work, *nodes], timeout=UPKEEP_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if cluster.upkeep is not None:
            cluster.upkeep()
        for task in done:
            await task
        if work.done():
            await asyncio.sleep(UPKEEP_SECONDS)
            patience -= UPKEEP_SECONDS
            if not lateness.lost:
                return


def _registry(lateness: Lateness) -> Registry:
    registry = Registry()

    async def work(run: Run, to: str, subject: str) -> None:
        lateness.start(run.id)

    registry.add(TaskFunction(work, name="work"))
    return registry


def idle_timing() -> Timing:
    """The defaults of a cluster."""
    return Timing(heartbeat=timedelta(seconds=3))
