"""Overload on PostgreSQL: a herd of one owner at one instant, and the backlog of an outage.

Jobs have numbers, which handlers record with their own clocks; tests believe these records. Runs are written directly
into the store, as the API would write them, so that clients are not measured.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path

import asyncpg

from horae.adapters import opened_store
from horae.core.decisions.release import gate_of
from horae.core.ids import Ids
from horae.core.model import JobId, Run, RunId, Spec
from horae.core.schedule.parse import parse_schedule
from horae.ports.store import Store
from horae.proof.bench.start_recorder import FOLDER, count_starts, read_starts
from horae.proof.bench.tasks import APP
from tests import acts
from tests.system.cluster import Cluster, Server
from tests.system.on_time import percentile

FLOOD, QUIET = "flood", "quiet"

EARLY = 0.001  # seconds
LATE = 1.0  # of 99 in 100 of those who have nothing to do with the flood
OWN_LATE = 2.0  # of what comes due for the owner of the flood while it is worked off
MEMORY = 400e6  # bytes of one worker
HELD = 5_000  # runs that one worker may have in hand, so that another starts younger ones before them
OUTAGE = timedelta(hours=6)
A_SECOND = 5_000  # jobs that are surely written in a second
BATCH = 1_000
KEYS = 20
LOOK_SECONDS = 0.1

new_id = Ids()


@dataclass
class OverloadFigures:
    """The measured figures."""

    jobs: int
    seconds: float = 0.0  # from the first start to the last
    late: dict[str, list[float]] = field(default_factory=dict)  # seconds, of those who come beside the flood
    displaced: int = 0  # how many younger ones started before one, at most
    overtaken: int = 0  # how many less urgent ones started before the last urgent one
    memory: list[float] = field(default_factory=list)  # bytes, of each worker at its peak

    def __str__(self) -> str:
        late = "; ".join(
            f"{name} ({len(values)}) late p50 {percentile(values, 50) * 1000:.0f} ms, p99"
            f" {percentile(values, 99) * 1000:.0f} ms, max {max(values) * 1000:.0f} ms"
            for name, values in self.late.items()
        )
        megabytes = ", ".join(f"{peak / 1e6:.0f} MB" for peak in self.memory)
        return (
            f"{self.jobs} in {self.seconds:.1f} s; {late}; displaced by {self.displaced} at most,"
            f" {self.overtaken} went before something more urgent; memory {megabytes}"
        )


def start_workers(cluster: Cluster, records: Path, workers: int) -> list[Server]:
    """Start workers with tasks that only record their start."""
    records.mkdir(exist_ok=True)
    servers = [
        cluster.spawn(
            f"worker-{place}",
            ["serve", "--roles", "worker", "--app", APP],
            roles=frozenset({"worker"}),
            settings={FOLDER: str(records)},
        )
        for place in range(workers)
    ]
    cluster.ready(*servers)
    return servers


# --- all at one instant


def check_herd(
    cluster: Cluster, records: Path, servers: Sequence[Server], *, jobs: int, seconds: int, within: float
) -> OverloadFigures:
    """So many runs of one owner at one instant, and for so many seconds around it a few of another, in the same queue.

    All start, each once and none early: the urgent first, those with a key in their order, and the others' on time.
    """
    return asyncio.run(_herd(cluster, records, servers, jobs, seconds, within))


async def _herd(
    cluster: Cluster, records: Path, servers: Sequence[Server], jobs: int, seconds: int, within: float
) -> OverloadFigures:
    numbers = count(1_000_000_000)
    async with opened_store(cluster.store) as store:
        before = count_starts(records)
        due_at = await store.time() + timedelta(seconds=jobs / A_SECOND + 3)
        urgent = [_run(next(numbers), FLOOD, due_at, priority=5) for _ in range(jobs // 10)]
        keyed = [_run(next(numbers), FLOOD, due_at, ordering_key=f"key {place % KEYS}") for place in range(jobs // 100)]
        plain = [_run(next(numbers), FLOOD, due_at) for _ in range(jobs - len(urgent) - len(keyed))]
        quiet = [_run(next(numbers), QUIET, due_at + timedelta(seconds=tick / 20)) for tick in range(-20, 20 * seconds)]
        quiet += [_run(next(numbers), QUIET, due_at) for _ in range(20)]
        flood = [*plain, *urgent, *keyed]  # the urgent were not even created first
        await _write(store, [*flood, *quiet])
        assert await store.time() < due_at - timedelta(seconds=1), "they were to be there before they are due"
        offered = [*flood, *quiet]
        deadline = asyncio.get_running_loop().time() + (due_at - await store.time()).total_seconds() + within
        while count_starts(records) - before < len(offered):
            assert asyncio.get_running_loop().time() < deadline, _missing(cluster, records, offered)
            now = await store.time()
            if due_at < now < due_at + timedelta(seconds=seconds):  # and some that nobody knew of
                new = _run(next(numbers), QUIET, now)
                await _write(store, [new])
                quiet.append(new)
                offered.append(new)
            await asyncio.sleep(LOOK_SECONDS)
    started = _started_once(records, offered)
    mine = [started[_number(run)] for run in flood]
    seen = OverloadFigures(jobs=jobs, seconds=max(mine) - min(mine), memory=[peak_memory(server) for server in servers])
    seen.late["another owner"] = [started[_number(run)] - run.due_at.timestamp() for run in quiet]
    last_urgent = max(started[_number(run)] for run in urgent)
    seen.overtaken = sum(started[_number(run)] < last_urgent for run in plain)
    for place in range(KEYS):
        line = [started[_number(run)] for run in keyed if run.spec.ordering_key == f"key {place}"]
        assert line == sorted(line), f"the runs of key {place} started in another order than theirs"
    _judge(cluster, seen, workers=len(servers))
    return seen


# --- after an outage


def check_backlog(
    cluster: Cluster, records: Path, *, jobs: int, workers: int, within: float
) -> tuple[OverloadFigures, list[Server]]:
    """So many runs that came due during six hours without a worker, then workers, and new runs all the while.

    Every tenth is urgent. All start, each once, of each priority the oldest first; what is new is on time.
    """
    return asyncio.run(_backlog(cluster, records, jobs, workers, within))


async def _backlog(
    cluster: Cluster, records: Path, jobs: int, workers: int, within: float
) -> tuple[OverloadFigures, list[Server]]:
    urgent_from = jobs - jobs // 10
    numbers = count(jobs)
    async with opened_store(cluster.store) as store:
        first_at = await store.time() - OUTAGE
        await _fill(cluster.store, store, range(urgent_from), first_at, priority=0)
        await _fill(cluster.store, store, range(urgent_from, jobs), first_at, priority=5)
        servers = await asyncio.to_thread(start_workers, cluster, records, workers)
        new: list[Run] = []
        deadline = asyncio.get_running_loop().time() + within
        while count_starts(records) < jobs + len(new) or not new:
            assert asyncio.get_running_loop().time() < deadline, _missing(cluster, records, new)
            left = jobs + len(new) - count_starts(records)
            if left > jobs // 100 or not new:  # what is created after the backlog would prove nothing
                soon = await store.time() + timedelta(seconds=1)
                some = [_run(next(numbers), owner, soon) for owner in (QUIET, QUIET, FLOOD)]
                await _write(store, some)
                new += some
            await asyncio.sleep(LOOK_SECONDS)
    started = _started_once(records, new, others=range(jobs))
    old = [started[number] for number in range(jobs)]
    seen = OverloadFigures(jobs=jobs, seconds=max(old) - min(old), memory=[peak_memory(server) for server in servers])
    for name, owner in (("another owner", QUIET), ("new of the same", FLOOD)):
        seen.late[name] = [started[_number(run)] - run.due_at.timestamp() for run in new if run.owner == owner]
    seen.displaced = max(_displaced(old[:urgent_from]), _displaced(old[urgent_from:]))
    last_urgent = max(old[urgent_from:])
    seen.overtaken = sum(at < last_urgent for at in old[:urgent_from])
    _judge(cluster, seen, workers=workers)
    return seen, servers


async def _fill(url: str, store: Store, numbers: range, first_at: datetime, *, priority: int) -> None:
    """Create one run through the store, and copy its row by SQL with new numbers, ids and times."""
    template = _run(numbers[0], FLOOD, first_at, priority=priority)
    await _write(store, [template])
    connection = await asyncpg.connect(url, command_timeout=600)
    try:
        columns = [
            row[0]
            for row in await connection.fetch(
                "SELECT column_name FROM information_schema.columns"
                " WHERE table_schema = current_schema() AND table_name = 'runs' AND is_generated = 'NEVER'"
            )
        ]
        made = {"params": "'{\"n\":' || number || '}'", "id": "fresh", "job_id": "fresh"}
        made |= dict.fromkeys(("due_at", "wake_at", "created_at"), "woken_at")
        chosen = ", ".join(made.get(name, name) for name in columns)
        step = OUTAGE.total_seconds() / len(numbers)
        await connection.execute("SET synchronous_commit = off")
        await connection.execute(
            f"""
            INSERT INTO runs ({", ".join(columns)})
            SELECT {chosen}
              FROM (SELECT template.*, number, woken_at,
                           (lpad(to_hex((extract(epoch FROM woken_at) * 1000)::bigint), 12, '0') || '7'
                            || substr(hash, 1, 3) || '8' || substr(hash, 4, 15))::uuid AS fresh
                      FROM runs AS template
                     CROSS JOIN generate_series({numbers[0] + 1}, {numbers[-1]}) AS number
                     CROSS JOIN LATERAL (SELECT md5(number::text) AS hash, template.due_at
                                                + make_interval(secs => {step} * (number - {numbers[0]})) AS woken_at
                                        ) AS own
                     WHERE template.id = '{template.id}'
                     ORDER BY number) AS copies
            """
        )
        await connection.execute("VACUUM ANALYZE runs")
    finally:
        await connection.close()


# --- writing and reading


def _run(number: int, owner: str, due_at: datetime, *, priority: int = 0, ordering_key: str | None = None) -> Run:
    job_id = JobId(new_id())
    spec = Spec(task="bench.once", params=f'{{"n":{number}}}', priority=priority, ordering_key=ordering_key)
    return Run(
        id=RunId(job_id),
        job_id=job_id,
        owner=owner,
        created_by=owner,
        spec=spec,
        schedule=parse_schedule("now", now=due_at),
        due_at=due_at,
        wake_at=due_at,
        gate=gate_of(spec, job_id, owner, recurring=False),
        created_at=due_at,
    )


def _number(run: Run) -> int:
    return int(run.spec.params.removeprefix('{"n":').removesuffix("}"))


async def _write(store: Store, runs: Sequence[Run]) -> None:
    for first in range(0, len(runs), 4 * BATCH):
        parts = [runs[place : place + BATCH] for place in range(first, min(first + 4 * BATCH, len(runs)), BATCH)]
        await asyncio.gather(*(acts.create(store, part) for part in parts))


def _started_once(records: Path, runs: Iterable[Run], others: Iterable[int] = ()) -> dict[int, float]:
    """Return when each started, in seconds since 1970, after checking that each started once and not early."""
    starts = list(read_starts(records))
    times = Counter(number for number, _ in starts)
    started = {number: at / 1e9 for number, at in starts}
    wanted = {_number(run): run for run in runs}
    everything = [*wanted, *others]
    lost = [number for number in everything if number not in times]
    doubled = [number for number in everything if times[number] > 1]
    assert not lost, f"{len(lost)} never started: {lost[:5]}"
    assert not doubled, f"{len(doubled)} started more than once: {doubled[:5]}"
    early = [number for number, run in wanted.items() if started[number] < run.due_at.timestamp() - EARLY]
    assert not early, f"{len(early)} started before they were due: {early[:5]}"
    return started


def _displaced(starts: Sequence[float]) -> int:
    """The largest number of younger runs that started before an older one."""
    order = sorted(range(len(starts)), key=starts.__getitem__)
    youngest, worst = 0, 0
    for place, number in enumerate(order):
        youngest = max(youngest, number)
        worst = max(worst, youngest - place)
    return worst


def peak_memory(server: Server) -> float:
    """The peak memory of a process."""
    status = Path(f"/proc/{server.pid}/status").read_text()
    [kibibytes] = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(kibibytes) * 1024.0


def _missing(cluster: Cluster, records: Path, runs: Sequence[Run]) -> str:
    recorded = {number for number, _ in read_starts(records)}
    missing = [run for run in runs if _number(run) not in recorded]
    shown = [(run.owner, run.spec.priority, run.spec.ordering_key, run.due_at) for run in missing[:5]]
    return f"{len(missing)} of {len(runs)} have not started: {shown}\n{cluster.story()}"


def _judge(cluster: Cluster, seen: OverloadFigures, *, workers: int) -> None:
    bounds = {"another owner": LATE, "new of the same": OWN_LATE}
    for name, late in seen.late.items():
        assert percentile(late, 99) < bounds[name] * cluster.patience, str(seen)
    assert seen.displaced <= workers * HELD, str(seen)
    assert seen.overtaken <= workers * HELD, str(seen)
    assert max(seen.memory) < MEMORY, str(seen)
