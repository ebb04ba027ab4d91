"""Runs a fleet under load while one fault after another is injected, and judges the recorded history."""

import asyncio
import math
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from horae.proof.checking import Recorder, Recording, judge_recording, read_lines
from horae.proof.checking.history.records import FinalRun, FinalSkip, InjectedFault, Line, Setup
from tests.system import faults
from tests.system.clients import Clients
from tests.system.faults import Fault, clock
from tests.system.fleet import AnyFleet, open_fleet
from tests.system.history_lines import effect_line, final_lines
from tests.system.rest import run_of
from tests.system.waiting import let_pass

LIVE = ("scheduled", "queued", "running", "retrying", "cancelling")
ROLES = ("api", "planner", "planner", "worker", "worker")
QUIET_SECONDS = 90.0
PATIENCE_SECONDS = 600.0  # beyond the given time, for faults that did not take effect
CLOCK_ERROR = 0.05  # seconds between the clock of the store and that of the test
LINES_PER_SECOND = 25  # of log per process, at most
LINES_PER_MINUTE = 240


@dataclass
class CampaignResult:
    """The figures of a campaign, and everything that was wrong."""

    accepted: int = 0
    unknown: int = 0
    slots: int = 0
    skipped: Counter[str] = field(default_factory=Counter)  # skipped slots by reason
    lost_workers: int = 0  # runs that were restarted because their worker died
    released: int = 0
    fired: Counter[str] = field(default_factory=Counter)
    points: Counter[str] = field(default_factory=Counter)  # where nodes died and connections were cut
    occurrences: Counter[str] = field(default_factory=Counter)  # how often each required event occurred
    worker_recovery: list[float] = field(default_factory=list)
    store_recovery: list[float] = field(default_factory=list)
    loudest_second: int = 0  # lines in a log
    loudest_minute: int = 0
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        kinds = ", ".join(f"{name} {count}" for name, count in sorted(self.fired.items()))
        return (
            f"{self.accepted} accepted, {self.unknown} unknown, {self.slots} slots ({dict(self.skipped)} skipped),"
            f" {self.lost_workers} lost a worker, {self.released} released;"
            f" recovery after a worker's end {_worst(self.worker_recovery)}, after the store's"
            f" {_worst(self.store_recovery)}; loudest log {self.loudest_second} lines in a second,"
            f" {self.loudest_minute} in a minute; faults: {kinds}; {len(self.wrong)} wrong"
        )


def run_campaign(
    folder: Path,
    *,
    seconds: float,
    seed: int,
    per_second: float,
    recurring: int,
    kinds: Sequence[Callable[[Any, random.Random], Fault]] = faults.KINDS,
    roles: Sequence[str] = ROLES,
    times: int | Callable[[Fault], int] = 3,
    opened: Callable[..., AbstractContextManager[AnyFleet]] = open_fleet,
    report: Callable[[str], None] = lambda line: None,
    patience: float = PATIENCE_SECONDS,
    **settings: str,
) -> CampaignResult:
    """Inject every kind of fault `times` times (or as often as that says), then any of them until the time is over."""
    rng = random.Random(seed)
    result = CampaignResult()
    history = folder / "history.jsonl"
    with opened(folder, roles, **settings) as fleet, Recorder(history) as recorder:
        chosen = [kind(fleet, rng) for kind in kinds]
        wanted = {fault: times if isinstance(times, int) else times(fault) for fault in chosen}
        recorder.write(Setup(at=clock(), planned=[fault.name for fault in chosen]))
        clients = Clients(fleet.cluster, recorder, seed=seed, per_second=per_second)
        fleet.answered_at = lambda: clients.answered_at
        clients.create_recurring(recurring)
        _inject_faults(wanted, clients, rng, seconds=seconds, patience=patience, report=report)
        clients.pause_recurring()
        final = _final(fleet)
        recorder.write(*_fault_lines(chosen), *map(effect_line, fleet.cluster.effects.all()), *final)
        _measure(result, chosen, clients, final)
        _judge_outcomes(result, clients, [line for line in final if isinstance(line, FinalRun)])
        _judge_slots(result, clients, final)
        judged = judge_recording(_recorded(history))
        result.wrong += [f"{v.code} {v.subject}: {v.detail}" for v in judged.violations]
        result.occurrences.update(
            {occurrence.value: times for occurrence, times in judged.coverage.occurrences.items()}
        )
        result.wrong += fleet.check_noticing(next(iter(clients.recurring)))
        _check_logs(result, fleet)
        for member in fleet.members:
            if not member.server.alive:
                result.wrong.append(f"{member.name} ended by itself:\n{member.server.tail()}")
    return result


def _inject_faults(
    wanted: Mapping[Fault, int],
    clients: AbstractContextManager[object],
    rng: random.Random,
    *,
    seconds: float,
    patience: float,
    report: Callable[[str], None],
) -> None:
    started_at = clock()
    with clients:
        for fault in _balanced(wanted, rng):
            began = clock()
            if began > started_at + seconds and not _behind(wanted):
                break
            counts = {fault.name: len(fault.fired) for fault in wanted}
            assert began < started_at + seconds + patience, f"no end: {counts}"
            target = fault.fired[-1].target if fault.strike() else "nothing"
            report(f"{began - started_at:6.1f} s  {fault.name}: {target}, {clock() - began:.1f} s")
            let_pass(rng.uniform(0.2, 1.5))


def _balanced(wanted: Mapping[Fault, int], rng: random.Random) -> Iterator[Fault]:
    while True:
        behind = _behind(wanted) or list(wanted)
        yield from rng.sample(behind, len(behind))


def _behind(wanted: Mapping[Fault, int]) -> list[Fault]:
    return [fault for fault, times in wanted.items() if len(fault.fired) < times]


def _final(fleet: AnyFleet) -> list[Line]:
    """Read the final state when no run is live, or after a while."""
    deadline = time.monotonic() + QUIET_SECONDS
    while _is_busy(fleet) and time.monotonic() < deadline:
        let_pass(0.5)
    return asyncio.run(final_lines(fleet.cluster.store))


def _is_busy(fleet: AnyFleet) -> bool:
    """Whether a run is live."""
    return any(fleet.cluster.rest.get("/v1/runs", status=status, limit=1)["items"] for status in LIVE)


def _fault_lines(chosen: Sequence[Fault]) -> Iterator[InjectedFault]:
    for fault in chosen:
        for firing in fault.fired:
            yield InjectedFault(at=firing.at, fault=firing.fault, target=firing.target, until=firing.until)


def _recorded(history: Path) -> Recording:
    return Recording(read_lines(history))


# --- judging


def _measure(result: CampaignResult, chosen: Sequence[Fault], clients: Clients, final: Sequence[Line]) -> None:
    result.accepted, result.unknown = len(clients.accepted), len(clients.unknown)
    for fault in chosen:
        result.fired[fault.name] = len(fault.fired)
        if isinstance(fault, faults.Kill | faults.Cut):
            result.points.update(f"{fault.name}, {firing.target.partition(' ')[2]}" for firing in fault.fired)
        result.worker_recovery += fault.worker_recoveries
        result.store_recovery += fault.store_recoveries
    for line in final:
        if isinstance(line, FinalRun) and line.slot is not None:
            result.slots += 1
            if line.status == "skipped":
                result.skipped[line.reason or "no reason"] += 1
        elif isinstance(line, FinalSkip) and line.reason != "paused":
            result.slots += line.count
            result.skipped[line.reason] += line.count


def _judge_outcomes(result: CampaignResult, clients: Clients, runs: Sequence[FinalRun]) -> None:
    """Check what holds here beyond the guarantees: no handler fails, so no run fails and no retry is used."""
    found = {run.run: run for run in runs}
    for label, job in clients.accepted.items():
        if run_of(job) not in found:
            result.wrong.append(f"lost: {label} was accepted as {job} and is missing")
    for run in runs:
        outcomes = Counter(attempt.outcome for attempt in run.attempts)
        result.lost_workers += bool(outcomes["lost"])
        result.released += bool(outcomes["released"])
        if run.status != "succeeded" and run.slot is None:
            result.wrong.append(f"not succeeded: {run}")
        elif run.attempt > 1 or outcomes.keys() - {"succeeded", "lost", "released"}:
            result.wrong.append(f"a retry was used up: {run}")


def _judge_slots(result: CampaignResult, clients: Clients, final: Sequence[Line]) -> None:
    """Check that every second of a recurring job is accounted for once; the judges leave out the last ones."""
    counts: Counter[tuple[str, float]] = Counter()
    for line in final:
        if isinstance(line, FinalRun) and line.slot is not None:
            counts[line.job, line.slot] += 1
        elif isinstance(line, FinalSkip):
            counts.update((line.job, second) for second in range(math.ceil(line.start), math.floor(line.end) + 1))
    for job, (accepted_at, paused_at) in clients.recurring.items():
        for second in range(math.ceil(accepted_at + CLOCK_ERROR), math.floor(paused_at - CLOCK_ERROR) + 1):
            if counts[job, second] != 1:
                result.wrong.append(f"the slot {second} of {job} is accounted for {counts[job, second]} times")


TIMESTAMP = re.compile(r'"timestamp": "(\S+)Z"')


def _check_logs(result: CampaignResult, fleet: AnyFleet) -> None:
    """Check how much the processes logged; a clock that jumps only moves lines to other seconds."""
    for server in fleet.cluster.servers:
        output = server.output()
        if "Traceback" in output:
            result.wrong.append(f"{server.name} shows a traceback:\n{output[output.index('Traceback') :][:3000]}")
        counts = Counter(match[1][:19] for match in TIMESTAMP.finditer(output))
        if output and not counts:
            result.wrong.append(f"{server.name} logged no line with a time:\n{output[:3000]}")
        minutes: Counter[str] = Counter()
        for second, count in counts.items():
            minutes[second[:16]] += count
        result.loudest_second = max(result.loudest_second, *counts.values(), 0)
        result.loudest_minute = max(result.loudest_minute, *minutes.values(), 0)
    if result.loudest_second > LINES_PER_SECOND or result.loudest_minute > LINES_PER_MINUTE:
        result.wrong.append("a log was flooded")


def _worst(seconds: Sequence[float]) -> str:
    return f"≤ {max(seconds):.1f} s ({len(seconds)} times)" if seconds else "not measured"
