"""The machines that run Horae itself: nodes, worker processes, cores."""

import math

from horae.core.values import Value
from horae.size.estimate import BillLine, Need
from horae.size.load import PlannedLoad
from horae.size.prices import Prices

FULL = 0.6  # of its cores that a node uses at the busiest time
NODE_CORES = 2
LEAST_NODES = 3  # so that one may fail while another is replaced
SLOTS = 100  # runs at a time of a worker process, the default of --concurrency
HOURS = 730


class Machines(Value, frozen=True, kw_only=True):
    """How many nodes and processes a load needs."""

    nodes: int
    workers: int
    cores: float
    slots: int


def machines_of(load: PlannedLoad, *, cores: float, process_runs: float) -> Machines:
    """Return the machines of a load; `cores` is what Horae itself uses at the peak."""
    slots = math.ceil(load.peak * load.task_seconds)
    workers = max(math.ceil(slots / SLOTS), math.ceil(load.peak / process_runs), LEAST_NODES)
    nodes = max(math.ceil(cores / (FULL * NODE_CORES)), LEAST_NODES)
    return Machines(nodes=load.nodes or nodes, workers=max(workers, load.nodes), cores=cores, slots=slots)


def machine_needs(load: PlannedLoad, machines: Machines) -> tuple[Need, ...]:
    cores = f"{machines.cores:.2g} cores at {load.peak:,.0f} runs/s, {FULL:.0%} of {NODE_CORES} each"
    return (
        Need(
            "nodes", f"{machines.nodes} × {NODE_CORES} vCPU", f"{cores}; at least {LEAST_NODES}; your tasks' own beside"
        ),
        Need(
            "worker processes",
            str(machines.workers),
            f"{load.peak:,.0f} runs/s × {load.task_seconds:g} s = {machines.slots:,} at a time, {SLOTS} in each",
        ),
    )


def machine_line(machines: Machines, prices: Prices) -> BillLine:
    price = prices.node_vcpu_hour
    dollars = machines.nodes * NODE_CORES * HOURS * price
    return BillLine("nodes", dollars, f"{machines.nodes} × {NODE_CORES} vCPU × {HOURS} h × ${price:g}")
