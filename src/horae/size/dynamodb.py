"""What a load needs and costs on DynamoDB, with SQS in front of it."""

import math
from collections.abc import Sequence

from horae.core.values import Value
from horae.size import units
from horae.size.estimate import BillLine, Need, Quote, figure
from horae.size.load import MONTH_SECONDS, PlannedLoad
from horae.size.machines import HOURS, Machines, machine_line, machine_needs, machines_of
from horae.size.prices import Prices
from horae.size.units import VerbUnits

PARTITION = 700  # write units a second that a partition is planned for; it takes 1,000
MOST_SHARDS = 64
UTILIZATION = 0.7  # of provisioned capacity
CALL_SECONDS = 0.1  # for which a process collects what it writes together, about
PAGE = 25  # runs in a request
SQS_BATCH = 10
SQS_CALLS = 3  # send, receive, delete
LONG_POLL = 20  # seconds
GB = 1e9


class RunUsage(Value, frozen=True, kw_only=True):
    """Units and requests of one run."""

    writes: float
    reads: float
    requests: float


def kilobytes(load: PlannedLoad) -> int:
    """Return the write units of the row of a run."""
    return math.ceil((units.ROW_BYTES + load.payload_bytes) / 1024)


def batch_of(load: PlannedLoad, nodes: int) -> float:
    """Return how many runs a process writes together, in the mean."""
    return min(max(load.runs / nodes * CALL_SECONDS, 1.0), 100.0)


def verbs_of(load: PlannedLoad, *, recurring: bool) -> Sequence[VerbUnits]:
    """Return the verbs in the life of a run."""
    start = (units.START,) if load.task_seconds > units.START_SECONDS else ()
    return (units.FIRE if recurring else units.CREATE, units.CLAIM, *start, units.SETTLE)


def usage_of(verbs: Sequence[VerbUnits], *, size: int, batch: float) -> RunUsage:
    """Return what a run of so many KB uses in batches of so many runs."""
    calls = max(batch / PAGE, 1.0)
    return RunUsage(
        writes=sum(verb.sized * size + verb.fixed + verb.per_call / batch for verb in verbs),
        reads=sum(verb.reads + verb.per_call_reads / batch for verb in verbs),
        requests=sum((verb.requests_per_25 * calls + verb.requests_per_call) / batch for verb in verbs),
    )


def dynamodb_quotes(load: PlannedLoad, prices: Prices) -> tuple[Quote, Quote]:
    """Return a load on DynamoDB and SQS, on demand and with provisioned capacity."""
    cores = load.peak / 1000 * units.DYNAMODB_CORES_PER_1000
    machines = machines_of(load, cores=cores, process_runs=units.DYNAMODB_PROCESS_RUNS)
    batch = batch_of(load, machines.nodes)
    one_shot = usage_of(verbs_of(load, recurring=False), size=kilobytes(load), batch=batch)
    fired = usage_of(verbs_of(load, recurring=True), size=kilobytes(load), batch=batch)
    mean = _together(load, one_shot, fired)
    needs = (*_table_needs(load, mean), *machine_needs(load, machines))
    shared = (*_kept(load, prices), *_sqs(load, machines, batch, prices), machine_line(machines, prices))
    return (
        Quote(
            name="DynamoDB on demand + SQS",
            needs=needs,
            lines=(*_on_demand(load, one_shot, fired, mean, prices), *_idle(machines, prices), *shared),
        ),
        Quote(
            name="DynamoDB provisioned + SQS",
            needs=needs,
            lines=(*_provisioned(load, machines, mean, prices), *shared),
        ),
    )


def _together(load: PlannedLoad, one_shot: RunUsage, fired: RunUsage) -> RunUsage:
    """Return what a run of the mixture uses in the mean."""
    if not load.runs:
        return RunUsage(writes=0.0, reads=0.0, requests=0.0)
    share = load.recurring / load.runs
    return RunUsage(
        writes=one_shot.writes * (1 - share) + fired.writes * share,
        reads=one_shot.reads * (1 - share) + fired.reads * share,
        requests=one_shot.requests * (1 - share) + fired.requests * share,
    )


def _table_needs(load: PlannedLoad, mean: RunUsage) -> tuple[Need, ...]:
    writes, size = load.peak * mean.writes, kilobytes(load)
    rows = load.peak * 3 * size
    shards = min(max(math.ceil(load.peak / PARTITION), 1), MOST_SHARDS)
    return (
        Need("tables", "6", "runs, due, jobs, meta, events, blobs"),
        Need(
            "write units a second",
            figure(math.ceil(writes)),
            f"{load.peak:,.0f} runs/s × {mean.writes:.2f}; on demand begins at 4,000: set WarmThroughput above that",
        ),
        Need("partitions of runs", figure(math.ceil(rows / PARTITION) or 1), f"{rows:,.0f} units/s ÷ {PARTITION}"),
        Need("hint shards of a lane", str(shards), f"{load.peak:,.0f} hints/s ÷ {PARTITION}; at most {MOST_SHARDS}"),
        Need("requests a second", figure(math.ceil(load.peak * mean.requests)), f"{mean.requests:.2f} for each run"),
        Need("SQS queues", str(load.queues), "one for each queue and priority class"),
    )


def _on_demand(
    load: PlannedLoad, one_shot: RunUsage, fired: RunUsage, mean: RunUsage, prices: Prices
) -> tuple[BillLine, ...]:
    lines = []
    for what, rate, usage in (("one-shots", load.rate, one_shot), ("recurring runs", load.recurring, fired)):
        if rate:
            amount = rate * MONTH_SECONDS * usage.writes / 1e6
            price = prices.write_units_million
            arithmetic = f"{figure(rate * MONTH_SECONDS)} × {usage.writes:.2f} units × ${price:g} a million"
            lines.append(BillLine(f"writes of {what}", amount * price, arithmetic))
    reads = load.runs_a_month * mean.reads / 1e6
    price = prices.read_units_million
    arithmetic = f"{figure(load.runs_a_month)} × {mean.reads:.2f} units × ${price:g} a million"
    return (*lines, BillLine("reads", reads * price, arithmetic))


def idle_line(nodes: int, prices: Prices) -> BillLine:
    """Return what a cluster costs that has nothing to do."""
    writes, reads = units.IDLE_WRITES_NODE_HOUR, units.IDLE_READS_NODE_HOUR
    dollars = nodes * HOURS * (writes * prices.write_units_million + reads * prices.read_units_million) / 1e6
    arithmetic = (
        f"{nodes} nodes × {HOURS} h × ({writes:,.0f} writes × ${prices.write_units_million:g}"
        f" + {reads:,.0f} reads × ${prices.read_units_million:g}) a million"
    )
    return BillLine("heartbeats and looking", dollars, arithmetic)


def _idle(machines: Machines, prices: Prices) -> tuple[BillLine, ...]:
    return (idle_line(machines.workers, prices),)


def _provisioned(load: PlannedLoad, machines: Machines, mean: RunUsage, prices: Prices) -> tuple[BillLine, BillLine]:
    """Return capacity that auto scaling keeps at a share of what is used; it follows the load within minutes."""
    idle_writes = machines.workers * units.IDLE_WRITES_NODE_HOUR / 3600
    idle_reads = machines.workers * units.IDLE_READS_NODE_HOUR / 3600
    lines = []
    for what, each, idle, price in (
        ("write", mean.writes, idle_writes, prices.write_unit_hour),
        ("read", mean.reads, idle_reads, prices.read_unit_hour),
    ):
        amount = math.ceil((load.runs * each + idle) / UTILIZATION)
        arithmetic = f"({load.runs:,.0f} runs/s × {each:.2f} + {idle:.3g}) ÷ {UTILIZATION} × {HOURS} h × ${price:g}"
        lines.append(BillLine(f"{what} capacity", amount * HOURS * price, arithmetic))
    return lines[0], lines[1]


def _kept(load: PlannedLoad, prices: Prices) -> tuple[BillLine, ...]:
    each = units.ROW_BYTES + load.payload_bytes + units.INDEX_BYTES + units.ITEM_OVERHEAD
    runs = load.runs * 86_400 * load.retention_days
    hints = load.runs * 86_400 * units.HINT_BYTES  # they are deleted within about a day
    gigabytes, price = (runs * each + hints) / GB, prices.dynamodb_gb_month
    kept = f"{figure(runs)} runs of {load.retention_days:g} days × {each} bytes, and a day of hints"
    arithmetic = f"{kept} = {figure(gigabytes)} GB × ${price:g}"
    return (BillLine("storage", gigabytes * price, arithmetic),)


def _sqs(load: PlannedLoad, machines: Machines, batch: float, prices: Prices) -> tuple[BillLine, ...]:
    together, price = min(batch, SQS_BATCH), prices.sqs_requests_million
    calls = load.runs_a_month * SQS_CALLS / together
    polls = machines.workers * load.queues * MONTH_SECONDS / LONG_POLL
    arithmetic = (
        f"({figure(load.runs_a_month)} × {SQS_CALLS} calls ÷ {together:.2g} together + {machines.workers} workers"
        f" × {load.queues} queues × a poll in {LONG_POLL} s) × ${price:g} a million"
    )
    return (BillLine("SQS", (calls + polls) / 1e6 * price, arithmetic),)
