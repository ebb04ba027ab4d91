"""A fleet under load while one thing after the other goes wrong, and the judgement of what it did."""

import asyncio
import random
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from horae.checking.final import read_final
from horae.checking.recording import Effect, FinalJob, FinalRun, FinalSkip, Happening, Line, Recorder, Setup
from horae.checking.recording import Fault as FaultLine
from horae.stores.postgres import PostgresStore
from tests.system import effects, faults
from tests.system.clients import Clients
from tests.system.faults import Fault, clock
from tests.system.fleet import Fleet, open_fleet
from tests.system.rest import run_of
from tests.system.waiting import let_pass

ROLES = ("api", "planner", "planner", "worker", "worker")
EARLIEST = 0.001  # seconds before its time that count as early
QUIET_SECONDS = 90.0
PATIENCE_SECONDS = 600.0  # beyond the time that was given, for faults that did not take effect
LINES_PER_SECOND = 25  # that one process may log in its worst second
LINES_PER_MINUTE = 240  # and in its worst minute
LIVE = ("scheduled", "claimed", "running", "retrying")


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
    tell: Callable[[str], None] = lambda line: None,
    **settings: str,
) -> Verdict:
    """Every kind of fault so many times, then any of them until the time is over."""
    luck = random.Random(seed)
    verdict = Verdict()
    with open_fleet(folder, ROLES, **settings) as fleet, Recorder(folder / "history.jsonl") as recorder:
        chosen = [kind(fleet, luck) for kind in kinds]
        recorder.write(Setup(at=clock(), planned=[fault.name for fault in chosen]))
        jobs = _create_recurring(fleet, recurring)
        started_at, deadline = clock(), time.monotonic() + seconds
        with Clients(fleet.cluster, recorder, seed=seed, per_second=per_second) as clients:
            fleet.answered_at = lambda: clients.answered_at
            for fault in _in_turn(chosen, times, luck):
                if time.monotonic() > deadline and all(len(fault.fired) >= times for fault in chosen):
                    break
                assert time.monotonic() < deadline + PATIENCE_SECONDS, f"no end: {_counts(chosen)}"
                began = clock()
                took_effect = fault.strike()
                target = fault.fired[-1].target if took_effect else "nothing"
                tell(f"{began - started_at:6.1f} s  {fault.name}: {target}, {clock() - began:.1f} s")
                let_pass(luck.uniform(0.2, 1.5))
            let_pass(max(deadline - time.monotonic(), 0))
        for fault in chosen:
            verdict.fired[fault.name] = len(fault.fired)
            for firing in fault.fired:
                recorder.write(FaultLine(at=firing.at, fault=firing.fault, target=firing.target, until=firing.until))
            if isinstance(fault, faults.KillWorker):
                verdict.worker_recovery += fault.recoveries
            if isinstance(fault, faults.StoreRestart):
                verdict.store_recovery += fault.recoveries
        verdict.accepted, verdict.unknown = len(clients.accepted), len(clients.unknown)
        paused_at = _pause(fleet, jobs)
        final = _final(fleet)
        notes = fleet.cluster.effects.all()
        recorder.write(*map(_effect, notes))
        recorder.write(*final)
        _judge(verdict, clients, notes, final, jobs, paused_at)
        _listen(verdict, fleet)
        for member in fleet.members:
            if not member.server.alive:
                verdict.wrong.append(f"{member.name} ended by itself:\n{member.server.tail()}")
    return verdict


def _in_turn(chosen: Sequence[Fault], times: int, luck: random.Random) -> Iterator[Fault]:
    while True:
        behind = [fault for fault in chosen if len(fault.fired) < times] or list(chosen)
        yield from luck.sample(behind, len(behind))


def _counts(chosen: Sequence[Fault]) -> dict[str, int]:
    return {fault.name: len(fault.fired) for fault in chosen}


def _create_recurring(fleet: Fleet, count: int) -> dict[str, str]:
    """Jobs of every second; label → job."""
    labels = [f"cron-{place}" for place in range(count)]
    body = {"task": "effects.work", "schedule": "* * * * * *", "overlap": "allow"}
    jobs = fleet.cluster.rest.create_many([body | {"params": {"label": label}} for label in labels])
    return dict(zip(labels, jobs, strict=True))


def _pause(fleet: Fleet, jobs: dict[str, str]) -> dict[str, float]:
    paused_at = {}
    for job in jobs.values():
        fleet.cluster.rest.post(f"/v1/jobs/{job}/pause")
        paused_at[job] = clock()
    return paused_at


def _final(fleet: Fleet) -> list[Line]:
    """The final state, once nothing is under way any more."""
    deadline = time.monotonic() + QUIET_SECONDS
    while True:
        lines = asyncio.run(_read(fleet.postgres.url))
        live = [line for line in lines if isinstance(line, FinalRun) and line.status in LIVE]
        if not live or time.monotonic() > deadline:
            return lines
        let_pass(1)


async def _read(url: str) -> list[Line]:
    store = PostgresStore(url)
    await store.open()
    try:
        return [line async for line in read_final(store, now=datetime.now(UTC), at=clock())]
    finally:
        await store.close()


def _effect(note: effects.Effect) -> Effect:
    return Effect(
        at=note.at,
        event=Happening(note.event),
        run=note.run,
        job=note.job,
        attempt=note.attempt,
        fence=note.fence,
        due=note.due,
        label=note.label,
        pid=note.pid,
    )


# --- the judgement


def _judge(
    verdict: Verdict,
    clients: Clients,
    notes: Sequence[effects.Effect],
    final: Sequence[Line],
    jobs: dict[str, str],
    paused_at: dict[str, float],
) -> None:
    by_run: dict[str, list[effects.Effect]] = defaultdict(list)
    for note in notes:
        by_run[note.run].append(note)
    runs = [line for line in final if isinstance(line, FinalRun)]
    found = {run.run: run for run in runs}
    wrong = verdict.wrong
    if len(found) != len(runs):
        wrong.append(f"{len(runs) - len(found)} runs are there twice")
    for label, job in clients.accepted.items():
        run = found.get(run_of(job))
        if run is None:
            wrong.append(f"lost: {label} {job} was accepted and is nowhere")
        elif run.label != label:
            wrong.append(f"{run.run} is {run.label}, accepted as {label}")
    known = set(clients.accepted) | clients.unknown | set(jobs)
    once = Counter(run.label for run in runs if run.trigger != "schedule" and run.label not in jobs)
    wrong += [f"{label} was created {count} times" for label, count in once.items() if count > 1]
    for run in runs:
        _judge_run(verdict, run, by_run.get(run.run, []))
        if run.label not in known:
            wrong.append(f"nobody asked for {run.run} ({run.label})")
    wrong += [f"{run} was started and is nowhere" for run in by_run.keys() - found.keys()]
    _judge_slots(verdict, runs, final, jobs, paused_at)


def _judge_run(verdict: Verdict, run: FinalRun, notes: Sequence[effects.Effect]) -> None:
    story = f"{run} handlers: {[(n.event, n.fence, n.pid, round(n.at, 3)) for n in notes]}"
    starts = [note for note in notes if note.event == "START"]
    early = [note for note in starts if note.at < run.due_at - EARLIEST]
    if early:
        verdict.wrong.append(f"early by {max(run.due_at - note.at for note in early) * 1000:.1f} ms: {story}")
    if run.status == "skipped":
        if starts:
            verdict.wrong.append(f"skipped, and started: {story}")
        return
    successes = [attempt for attempt in run.attempts if attempt.outcome == "succeeded"]
    if run.status != "succeeded" or len(successes) != 1:
        verdict.wrong.append(f"not succeeded once: {story}")
        return
    if not any(note.event == "END" and note.fence == successes[0].fence for note in notes):
        verdict.wrong.append(f"succeeded, and no handler of that claim came to its end: {story}")
    outcomes = Counter(attempt.outcome for attempt in run.attempts)
    if run.attempt != 1 or outcomes.keys() - {"succeeded", "lost", "released"}:
        verdict.wrong.append(f"an attempt was used up: {story}")
    verdict.lost_workers += bool(outcomes["lost"])
    verdict.released += bool(outcomes["released"])


def _judge_slots(
    verdict: Verdict,
    runs: Sequence[FinalRun],
    final: Sequence[Line],
    jobs: dict[str, str],
    paused_at: dict[str, float],
) -> None:
    slots: dict[str, Counter[float]] = {job: Counter() for job in jobs.values()}
    for run in runs:
        if run.job in slots and run.slot is not None:
            slots[run.job][run.slot] += 1
            if run.status == "skipped":
                verdict.skipped[run.reason or "no reason"] += 1
    for skip in final:
        if isinstance(skip, FinalSkip):
            assert skip.end - skip.start == skip.count - 1, skip
            for place in range(skip.count):
                slots[skip.job][skip.start + place] += 1
            if skip.reason != "paused":
                verdict.skipped[skip.reason] += skip.count
    for line in final:
        if isinstance(line, FinalJob) and line.job in slots:
            first, last = int(line.created_at) + 1, int(paused_at[line.job]) - 1
            wanted = set(map(float, range(first, last + 1)))
            verdict.slots += len(wanted)
            if missing := sorted(wanted - slots[line.job].keys()):
                verdict.wrong.append(f"{len(missing)} slots of {line.job} are unaccounted for: {missing[:5]}")
            if doubled := [slot for slot, count in slots[line.job].items() if count > 1]:
                verdict.wrong.append(f"{len(doubled)} slots of {line.job} are told twice: {doubled[:5]}")


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
