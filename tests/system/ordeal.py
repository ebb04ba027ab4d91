"""A fleet under load while one thing after the other goes wrong, and the judgement of what it did."""

import asyncio
import math
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg

from horae.proof.checking import Recorder, Recording, judge_recording, read_lines
from horae.proof.checking.history.records import FinalRun, FinalSkip, InjectedFault, Line, Setup
from tests.system import faults
from tests.system.clients import Clients
from tests.system.faults import Fault, clock
from tests.system.fleet import Fleet, open_fleet
from tests.system.recorded import effect_line, final_lines
from tests.system.rest import run_of
from tests.system.waiting import let_pass

ROLES = ("api", "planner", "planner", "worker", "worker")
QUIET_SECONDS = 90.0
PATIENCE_SECONDS = 600.0  # beyond the time that was given, for faults that did not take effect
CLOCK_ERROR = 0.05  # seconds between the clock of the store and that of the test
LINES_PER_SECOND = 25  # that one process may log in its worst second
LINES_PER_MINUTE = 240  # and in its worst minute


@dataclass
class Verdict:
    """What was seen, and what was wrong with it."""

    accepted: int = 0
    unknown: int = 0
    slots: int = 0
    skipped: Counter[str] = field(default_factory=Counter)  # slots by the reason for which they did not run
    lost_workers: int = 0  # runs that were started again because their worker was gone
    released: int = 0
    fired: Counter[str] = field(default_factory=Counter)
    points: Counter[str] = field(default_factory=Counter)  # where nodes died and connections were cut
    occurrences: Counter[str] = field(default_factory=Counter)  # how often what has to be survived occurred
    worker_recovery: list[float] = field(default_factory=list)
    store_recovery: list[float] = field(default_factory=list)
    loudest_second: int = 0  # lines in a log
    loudest_minute: int = 0
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        kinds = ", ".join(f"{name} {count}" for name, count in sorted(self.fired.items()))
        return (
            f"{self.accepted} accepted, {self.unknown} unknown, {self.slots} slots ({dict(self.skipped)} skipped),"
            f" {self.lost_workers} lost a worker, {self.released} given back;"
            f" recovery after a worker's end {_worst(self.worker_recovery)}, after the store's"
            f" {_worst(self.store_recovery)}; loudest log {self.loudest_second} lines in a second,"
            f" {self.loudest_minute} in a minute; faults: {kinds}; {len(self.wrong)} wrong"
        )


def undergo(
    folder: Path,
    *,
    seconds: float,
    seed: int,
    per_second: float,
    recurring: int,
    kinds: Sequence[Callable[[Fleet, random.Random], Fault]] = faults.KINDS,
    times: int = 3,
    opened: Callable[..., AbstractContextManager[Fleet]] = open_fleet,
    tell: Callable[[str], None] = lambda line: None,
    **settings: str,
) -> Verdict:
    """Every kind of fault so many times, then any of them until the time is over."""
    luck = random.Random(seed)
    verdict = Verdict()
    history = folder / "history.jsonl"
    with opened(folder, ROLES, **settings) as fleet, Recorder(history) as recorder:
        chosen = [kind(fleet, luck) for kind in kinds]
        recorder.write(Setup(at=clock(), planned=[fault.name for fault in chosen]))
        clients = Clients(fleet.cluster, recorder, seed=seed, per_second=per_second)
        fleet.answered_at = lambda: clients.answered_at
        clients.create_recurring(recurring)
        _strike(chosen, clients, luck, seconds=seconds, times=times, tell=tell)
        clients.pause_recurring()
        final = _final(fleet)
        recorder.write(*_broken(chosen), *map(effect_line, fleet.cluster.effects.all()), *final)
        _measure(verdict, chosen, clients, final)
        _judge_outcomes(verdict, clients, [line for line in final if isinstance(line, FinalRun)])
        _judge_slots(verdict, clients, final)
        judged = judge_recording(_recorded(history))
        verdict.wrong += [f"{v.code} {v.subject}: {v.detail}" for v in judged.violations]
        verdict.occurrences.update(
            {occurrence.value: times for occurrence, times in judged.coverage.occurrences.items()}
        )
        _listen(verdict, fleet)
        for member in fleet.members:
            if not member.server.alive:
                verdict.wrong.append(f"{member.name} ended by itself:\n{member.server.tail()}")
    return verdict


def _strike(
    chosen: Sequence[Fault],
    clients: AbstractContextManager[object],
    luck: random.Random,
    *,
    seconds: float,
    times: int,
    tell: Callable[[str], None],
) -> None:
    started_at = clock()
    with clients:
        for fault in _in_turn(chosen, times, luck):
            began = clock()
            if began > started_at + seconds and all(len(fault.fired) >= times for fault in chosen):
                break
            counts = {fault.name: len(fault.fired) for fault in chosen}
            assert began < started_at + seconds + PATIENCE_SECONDS, f"no end: {counts}"
            target = fault.fired[-1].target if fault.strike() else "nothing"
            tell(f"{began - started_at:6.1f} s  {fault.name}: {target}, {clock() - began:.1f} s")
            let_pass(luck.uniform(0.2, 1.5))


def _in_turn(chosen: Sequence[Fault], times: int, luck: random.Random) -> Iterator[Fault]:
    while True:
        behind = [fault for fault in chosen if len(fault.fired) < times] or list(chosen)
        yield from luck.sample(behind, len(behind))


def _final(fleet: Fleet) -> list[Line]:
    """The final state, once nothing is under way any more, or should long have ended."""
    deadline = time.monotonic() + QUIET_SECONDS
    while asyncio.run(_live_runs(fleet.postgres.url)) and time.monotonic() < deadline:
        let_pass(0.5)
    return asyncio.run(final_lines(fleet.postgres.url))


async def _live_runs(url: str) -> int:
    connection = await asyncpg.connect(url)
    try:
        return int(await connection.fetchval("SELECT count(*) FROM runs"))
    finally:
        await connection.close()


def _broken(chosen: Sequence[Fault]) -> Iterator[InjectedFault]:
    for fault in chosen:
        for firing in fault.fired:
            yield InjectedFault(at=firing.at, fault=firing.fault, target=firing.target, until=firing.until)


def _recorded(history: Path) -> Recording:
    return Recording(read_lines(history))


# --- the judgement


def _measure(verdict: Verdict, chosen: Sequence[Fault], clients: Clients, final: Sequence[Line]) -> None:
    verdict.accepted, verdict.unknown = len(clients.accepted), len(clients.unknown)
    for fault in chosen:
        verdict.fired[fault.name] = len(fault.fired)
        if isinstance(fault, faults.Kill | faults.Cut):
            verdict.points.update(f"{fault.name}, {firing.target.partition(' ')[2]}" for firing in fault.fired)
        if isinstance(fault, faults.KillWorker):
            verdict.worker_recovery += fault.recoveries
        if isinstance(fault, faults.StoreOutage):
            verdict.store_recovery += fault.recoveries
    for line in final:
        if isinstance(line, FinalRun) and line.slot is not None:
            verdict.slots += 1
            if line.status == "skipped":
                verdict.skipped[line.reason or "no reason"] += 1
        elif isinstance(line, FinalSkip) and line.reason != "paused":
            verdict.slots += line.count
            verdict.skipped[line.reason] += line.count


def _judge_outcomes(verdict: Verdict, clients: Clients, runs: Sequence[FinalRun]) -> None:
    """What holds here beyond the promises: no handler fails, so nothing may fail, and no retry be used up."""
    found = {run.run: run for run in runs}
    for label, job in clients.accepted.items():
        if run_of(job) not in found:
            verdict.wrong.append(f"lost: {label} was accepted as {job} and is nowhere")
    for run in runs:
        outcomes = Counter(attempt.outcome for attempt in run.attempts)
        verdict.lost_workers += bool(outcomes["lost"])
        verdict.released += bool(outcomes["released"])
        if run.status != "succeeded" and run.slot is None:
            verdict.wrong.append(f"not succeeded: {run}")
        elif run.attempt > 1 or outcomes.keys() - {"succeeded", "lost", "released"}:
            verdict.wrong.append(f"a retry was used up: {run}")


def _judge_slots(verdict: Verdict, clients: Clients, final: Sequence[Line]) -> None:
    """Every second of a recurring job is told once, to the last: at the end of a history the judges still wait."""
    told: Counter[tuple[str, float]] = Counter()
    for line in final:
        if isinstance(line, FinalRun) and line.slot is not None:
            told[line.job, line.slot] += 1
        elif isinstance(line, FinalSkip):
            told.update((line.job, second) for second in range(math.ceil(line.start), math.floor(line.end) + 1))
    for job, (accepted_at, paused_at) in clients.recurring.items():
        for second in range(math.ceil(accepted_at + CLOCK_ERROR), math.floor(paused_at - CLOCK_ERROR) + 1):
            if told[job, second] != 1:
                verdict.wrong.append(f"the slot {second} of {job} is told {told[job, second]} times")


TIMESTAMP = re.compile(r"timestamp=(\S+)Z ")


def _listen(verdict: Verdict, fleet: Fleet) -> None:
    """How much the processes said; a clock that jumps moves lines to other seconds, but makes no more of them."""
    for server in fleet.cluster.servers:
        output = server.output()
        if "Traceback" in output:
            verdict.wrong.append(f"{server.name} shows a traceback:\n{output[output.index('Traceback') :][:3000]}")
        told = Counter(match[1][:19] for match in TIMESTAMP.finditer(output))
        minutes: Counter[str] = Counter()
        for second, count in told.items():
            minutes[second[:16]] += count
        verdict.loudest_second = max(verdict.loudest_second, *told.values(), 0)
        verdict.loudest_minute = max(verdict.loudest_minute, *minutes.values(), 0)
    if verdict.loudest_second > LINES_PER_SECOND or verdict.loudest_minute > LINES_PER_MINUTE:
        verdict.wrong.append("a log was flooded")


def _worst(seconds: Sequence[float]) -> str:
    return f"≤ {max(seconds):.1f} s ({len(seconds)} times)" if seconds else "not measured"
