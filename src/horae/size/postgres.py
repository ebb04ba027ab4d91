"""What a load needs and costs on PostgreSQL, with or without Redis in front of it."""

import math

from horae.size import units
from horae.size.estimate import BillLine, Need, Quote, figure
from horae.size.load import PlannedLoad
from horae.size.machines import HOURS, machine_line, machine_needs, machines_of
from horae.size.prices import Prices

FULL = 0.6  # of its cores that a database uses at the busiest time
LEAST_CORES = 2
ZONES = 2  # a standby in another zone costs as much again
REDIS_FROM = 1_000.0  # runs a second from which Redis is worth its price
GB = 1e9


def postgres_quote(load: PlannedLoad, prices: Prices) -> Quote:
    """Return a load on PostgreSQL."""
    databases = max(math.ceil(load.peak / units.POSTGRES_MOST), 1)
    used = databases * units.POSTGRES_CORES + load.peak / 1000 * units.POSTGRES_CORES_PER_1000
    own = used * units.POSTGRES_SHARE
    cores = max(math.ceil(own / databases / FULL), LEAST_CORES)
    machines = machines_of(load, cores=used - own, process_runs=units.PROCESS_RUNS)
    redis = load.peak >= REDIS_FROM
    connections = (machines.workers + machines.nodes) * units.POSTGRES_CONNECTIONS
    needs = (
        Need("databases", f"{databases} × {cores} vCPU", _why_databases(load, databases, own)),
        Need(
            "connections",
            figure(connections),
            f"{machines.workers + machines.nodes} processes × {units.POSTGRES_CONNECTIONS}",
        ),
        *((Need("Redis nodes", str(2 * databases), "one and its replica for each database"),) if redis else ()),
        *machine_needs(load, machines),
    )
    lines = (
        _database_line(databases, cores, prices),
        _storage_line(load, prices),
        *((_redis_line(databases, prices),) if redis else ()),
        machine_line(machines, prices),
    )
    return Quote(name="PostgreSQL + Redis" if redis else "PostgreSQL", needs=needs, lines=lines)


def _why_databases(load: PlannedLoad, databases: int, own: float) -> str:
    most = f"{units.POSTGRES_MOST:,.0f} runs/s were measured on one"
    if databases == 1:
        return f"{own:.2g} cores at {load.peak:,.0f} runs/s, {FULL:.0%} of each; {most}"
    return f"{most}; {databases} clusters side by side, each with its own owners; {own:.2g} cores in all"


def _database_line(databases: int, cores: int, prices: Prices) -> BillLine:
    price = prices.postgres_vcpu_hour
    dollars = databases * cores * ZONES * HOURS * price
    return BillLine("databases", dollars, f"{databases} × {cores} vCPU × {ZONES} zones × {HOURS} h × ${price:g}")


def _storage_line(load: PlannedLoad, prices: Prices) -> BillLine:
    each = units.POSTGRES_ROW_BYTES + load.payload_bytes
    runs = load.runs * 86_400 * load.retention_days
    gigabytes, price = runs * each / GB, prices.postgres_gb_month
    arithmetic = (
        f"{figure(runs)} runs of {load.retention_days:g} days × {each} bytes = {figure(gigabytes)} GB × {ZONES} zones"
        f" × ${price:g}"
    )
    return BillLine("storage", gigabytes * ZONES * price, arithmetic)


def _redis_line(databases: int, prices: Prices) -> BillLine:
    price = prices.redis_node_hour
    return BillLine("Redis", 2 * databases * HOURS * price, f"{2 * databases} nodes × {HOURS} h × ${price:g}")
