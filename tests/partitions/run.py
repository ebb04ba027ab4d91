"""One simulation: the load, the cluster, the tables with as many partitions as sizing asks for, and the figures."""

import gc
import math
from typing import Any

import structlog.testing

from tests.partitions.cluster import Cluster, run_load
from tests.partitions.dynamodb import DynamoBackend
from tests.partitions.load import LoadShape
from tests.partitions.report import PLANNED, figures
from tests.partitions.virtual import VirtualClock
from tests.simulation.virtual import SimulatedLoop

HEADROOM = 2.0  # partitions that tables are made with beyond what the mean needs: WarmThroughput for the peak


def widths_of(shape: LoadShape) -> dict[str, int]:
    """How many partitions each table and index has: as many as `WarmThroughput` of their peak gives them."""
    of_rows = max(4, math.ceil(HEADROOM * 3 * shape.rate / PLANNED))
    of_entries = max(4, math.ceil(HEADROOM * shape.rate / PLANNED))
    indexes = {f"runs/{name}": of_entries for name in ("by_owner", "by_job", "by_slot", "dead", "by_params", "old")}
    indexes |= {f"jobs/{name}": 4 for name in ("by_owner", "by_params", "old")}
    return {"runs": of_rows, "due": of_entries, "meta": 16, "events": 8, "jobs": 4, "blobs": 4, **indexes}


def simulate_partitions(shape: LoadShape, *, nodes: int, latency: float, queue: bool) -> dict[str, Any]:
    """Return the figures of a load on a cluster."""
    found: list[DynamoBackend] = []

    async def backend_of(loop: SimulatedLoop, clock: VirtualClock) -> DynamoBackend:
        backend = DynamoBackend(loop, clock, latency=latency, widths=widths_of(shape), queue=queue)
        found.append(backend)
        await backend.begin()
        return backend

    gc.collect()
    gc.freeze()
    gc.disable()  # hundreds of thousands of items would be looked through again and again
    try:
        with structlog.testing.capture_logs():
            lateness = run_load(shape, Cluster(nodes=nodes, upkeep=lambda: found[0].upkeep()), backend_of)
    finally:
        gc.enable()
        gc.unfreeze()
    found[0].finish()
    return figures(found[0], lateness)
