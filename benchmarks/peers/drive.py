"""Runs the work of `horae bench` on one peer and prints figures with the same names, in the environment of the peer.

    python -m benchmarks.peers.drive PEER MODE [--jobs N] [--rate N] [--seconds S]

Modes: `now` (producer and workers together until the store is empty), `enqueue` (no workers), `timed` (due times
spread evenly) and `herd` (all due at one instant). `BENCH_STORE` is the address of the store.
"""

import argparse
import asyncio
import itertools
import json
import os
import pkgutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.machine import cpu_seconds, peak_mb, tree
from benchmarks.peers import recording
from benchmarks.peers.queue import Queue

QUEUES = {
    "pgqueuer": "benchmarks.peers.pgqueuer_queue:PgQueuerQueue",
    "celery": "benchmarks.peers.celery_queue:CeleryQueue",
}
BATCH = 1000
MOST_WAITING = 20_000  # as many as `horae bench` lets wait, so that creating and running go on side by side
START_SECONDS = 60.0
STOP_SECONDS = 5.0
SECOND_WORKER_SECONDS = 3.0  # that a worker may take longer to come up than the first
LIMIT_SECONDS = 90.0  # a peer that has not finished by then is judged by what it did
LEAD_SECONDS = 3.0  # between the last creation and the first due time, at least
PROBES = 500  # jobs that tell how long it takes to create one
EARLY_SECONDS = 0.001

Figures = dict[str, Any]


def main() -> None:
    options = _options()
    with tempfile.TemporaryDirectory(prefix="horae-bench-") as folder:
        records = Path(folder, "records")
        records.mkdir()
        os.environ["BENCH_RECORDS"] = str(records)
        figures = asyncio.run(_drive(options, Path(folder, "log")))
    sys.stdout.write(json.dumps(figures) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("peer", choices=QUEUES)
    parser.add_argument("mode", choices=["now", "enqueue", "timed", "herd"])
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--rate", type=int, default=100)
    parser.add_argument("--seconds", type=int, default=20)
    return parser.parse_args()


async def _drive(options: argparse.Namespace, log: Path) -> Figures:
    async with pkgutil.resolve_name(QUEUES[options.peer])() as queue:
        if options.mode == "enqueue":
            return await _enqueue(queue, options.jobs)
        with _workers(queue.workers, log) as pids:
            await _until_ready(queue, log)
            if options.mode == "now":
                return await _measured(queue, pids, _now(queue, options.jobs))
            spread = options.rate if options.mode == "timed" else 0
            jobs = options.rate * options.seconds if spread else options.jobs
            return {"mode": options.mode, **await _measured(queue, pids, _timed(queue, jobs, spread))}


async def _measured(queue: Queue, pids: Sequence[int], work: Awaitable[Figures]) -> Figures:
    """The figures of the work, and the CPU time of producer, workers and server."""
    server = await queue.server()
    roots = [os.getpid(), *([server] if server else [])]  # the workers are our own descendants
    before = cpu_seconds(*roots)
    figures = await work
    return {
        **figures,
        "cpu_s_per_1000": round((cpu_seconds(*roots) - before) / max(figures["completed"], 1) * 1000, 4),
        "peak_rss_mb": round(peak_mb(*pids), 1),
    }


# --- the work


async def _enqueue(queue: Queue, jobs: int) -> Figures:
    began = time.perf_counter()
    for numbers in _batches(range(jobs)):
        await queue.enqueue(numbers)
    return {"mode": "enqueue", "submitted": jobs, "submitted_per_s": round(jobs / (time.perf_counter() - began))}


async def _now(queue: Queue, jobs: int) -> Figures:
    before = recording.count()
    began = time.time()
    for numbers in _batches(range(jobs)):
        await _until(partial(_has_room, numbers[-1], before), LIMIT_SECONDS)
        await queue.enqueue(numbers)
    await _until(lambda: recording.count() - before >= jobs, LIMIT_SECONDS)
    while await queue.waiting() and time.time() < began + LIMIT_SECONDS:
        await asyncio.sleep(0.01)
    seconds = time.time() - began
    noted = Counter(number for number, _ in recording.starts() if number >= 0)
    return {
        "mode": "now",
        "submitted": jobs,
        "completed": len(noted),
        "completed_per_s": round(len(noted) / seconds),
        "lost": jobs - len(noted),
        "duplicated": noted.total() - len(noted),
    }


def _has_room(last: int, before: int) -> bool:
    return last - (recording.count() - before) < MOST_WAITING


async def _timed(queue: Queue, jobs: int, rate: int) -> Figures:
    """Schedule `rate` jobs per second, or all at one instant if it is 0; what does not start in time is lost."""
    lead = LEAD_SECONDS + 2 * jobs * await _seconds_to_create_one(queue)
    before = recording.count()
    first = time.time() + lead
    due = [(number, first + (number / rate if rate else 0)) for number in range(jobs)]
    for pairs in _batches(due):
        await queue.schedule(pairs)
    if time.time() > first:
        raise RuntimeError("the jobs could not be created before they were due")
    await _until(lambda: recording.count() - before >= jobs, due[-1][1] + LIMIT_SECONDS / 3 - time.time())
    return judge(dict(due), recording.starts(), rate)


async def _seconds_to_create_one(queue: Queue) -> float:
    """Measure the time to create one job, and wait until the created ones have run."""
    before = recording.count()
    began = time.perf_counter()
    await queue.enqueue(range(-PROBES, 0))
    seconds = time.perf_counter() - began
    await _until(lambda: recording.count() - before >= PROBES, LIMIT_SECONDS)
    return seconds / PROBES


def judge(due: dict[int, float], records: Sequence[tuple[int, float]], rate: int) -> Figures:
    """Compute the lateness of recorded starts; with a rate of 0 all were due at once."""
    starts: dict[int, float] = {}
    noted = sorted(((number, at) for number, at in records if number in due), key=lambda start: start[1])
    for number, at in noted:
        starts.setdefault(number, at)
    late = sorted(at - due[number] for number, at in starts.items())
    lasted = max(starts.values()) - min(due.values())
    return {
        "offered_per_s": rate or len(due),
        "completed_per_s": round(len(starts) / lasted),
        "submitted": len(due),
        "completed": len(starts),
        "lost": len(due) - len(starts),
        "duplicated": len(noted) - len(starts),
        "early": sum(delay < -EARLY_SECONDS for delay in late),
        "lateness_ms": {
            **{f"p{percent}": round(late[len(late) * percent // 100] * 1000, 2) for percent in (50, 95, 99)},
            "max": round(late[-1] * 1000, 2),
        },
    }


def _batches(items: Sequence[Any]) -> Iterator[list[Any]]:
    rest = iter(items)
    while batch := list(itertools.islice(rest, BATCH)):
        yield batch


# --- the workers


@contextmanager
def _workers(commands: Sequence[Sequence[str]], log: Path) -> Iterator[list[int]]:
    """Run the worker processes of the peer."""
    programs = Path(sys.executable).parent
    with log.open("wb") as output:
        started = [
            subprocess.Popen([programs / program, *more], stdin=subprocess.DEVNULL, stdout=output, stderr=output)
            for program, *more in commands
        ]
        try:
            yield [process.pid for process in started]
        finally:
            for process in started:
                process.terminate()
            for process in started:
                _await_end(process)


def _await_end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        for pid in reversed(tree(process.pid)):  # nothing of what they hold is needed again
            os.kill(pid, signal.SIGKILL)
        process.wait()


async def _until_ready(queue: Queue, log: Path) -> None:
    """Send jobs with negative numbers until each of the two workers has run one."""
    deadline = time.time() + START_SECONDS
    for number in itertools.count(1):
        await queue.enqueue([-number])
        await asyncio.sleep(0.05)
        if recording.processes() == 2:
            break
        first = min((at for _, at in recording.starts()), default=time.time())
        if time.time() > first + SECOND_WORKER_SECONDS:
            break  # one is quick enough for both
        if time.time() > deadline:
            raise RuntimeError(f"the workers did not start:\n{log.read_text()}")
    await _until(lambda: recording.count() >= number, SECOND_WORKER_SECONDS)


async def _until(true: Callable[[], bool], seconds: float) -> None:
    """Wait for a condition, at most for some time; what is missing then shows in the figures."""
    deadline = time.time() + seconds
    while not true() and time.time() < deadline:
        await asyncio.sleep(0.01)


if __name__ == "__main__":
    main()
