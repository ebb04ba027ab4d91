"""Facts of the machine, the CPU time and memory of processes, and the CPU time that the host took.

Standard library only, because the environments of the peers import it too. Reads /proc, so Linux only.
"""

import os
import platform
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
SYNCS = 200  # how often a write is made durable to learn what that costs


def facts() -> dict[str, str]:
    """The facts of the machine that matter for speed."""
    memory = int(_line("/proc/meminfo", "MemTotal:").split()[1]) / 2**20
    model = _line("/proc/cpuinfo", "model name").partition(": ")[2]
    folder = Path(tempfile.gettempdir())
    return {
        "processors": f"{os.cpu_count()} × {model or platform.machine()}",
        "memory": f"{memory:.0f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "file system": f"{_file_system(folder)}; a durable write of 8 kB takes {sync_ms(folder):.2f} ms",
        "Python": platform.python_version(),
        "SQLite": f"{sqlite3.sqlite_version}, journal_mode = wal, synchronous = full",
    }


def sync_ms(folder: Path) -> float:
    """The median time to append and sync 8 kB, in milliseconds."""
    took: list[float] = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(SYNCS):
            began = time.perf_counter()
            os.write(file.fileno(), bytes(8192))
            os.fdatasync(file.fileno())
            took.append(time.perf_counter() - began)
    return statistics.median(took) * 1000


@contextmanager
def watched() -> Iterator[dict[str, float]]:
    """Set `stolen_percent` at the end: the share of CPU time that the host gave to others."""
    seen: dict[str, float] = {}
    before = _processor_ticks()
    try:
        yield seen
    finally:
        passed = [after - ago for after, ago in zip(_processor_ticks(), before, strict=True)]
        seen["stolen_percent"] = round(100 * passed[7] / max(sum(passed), 1), 2)


def cpu_seconds(*roots: int) -> float:
    """The CPU time of processes and their descendants, including those that ended."""
    return sum(sum(map(int, fields[11:15])) for pid in tree(*roots) if (fields := _stat(pid))) / TICKS


def own_cpu_seconds(pid: int) -> float:
    """The CPU time of one process without its descendants."""
    return sum(map(int, _stat(pid)[11:13])) / TICKS


def peak_mb(*roots: int) -> float:
    """The peak memory of the largest of these processes and their descendants."""
    peaks = [_line(f"/proc/{pid}/status", "VmHWM:").split() for pid in tree(*roots)]
    return max((int(peak[1]) / 1024 for peak in peaks if peak), default=0.0)


def tree(*roots: int) -> list[int]:
    """The live processes among these and their descendants."""
    found: list[int] = []
    left = list(roots)
    while left:
        pid = left.pop()
        found.append(pid)
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            try:
                left += map(int, children.read_text().split())
            except OSError:
                continue  # it ended meanwhile
    return found


def parent_of(pid: int) -> int:
    return int(_stat(pid)[1])


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat behind the name, which may hold anything; empty when the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _processor_ticks() -> list[int]:
    """user, nice, system, idle, iowait, irq, softirq, steal of all processors; guests are part of user."""
    return [int(value) for value in _line("/proc/stat", "cpu ").split()[1:9]]


def _file_system(folder: Path) -> str:
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    held = [(Path(place), kind) for place, kind in mounts if folder.resolve().is_relative_to(place)]
    return max(held, key=lambda mount: len(mount[0].parts))[1]


def _line(file: str, start: str) -> str:
    """The first line of a file that starts so; empty when there is none."""
    try:
        lines = Path(file).read_text().splitlines()
    except OSError:
        return ""
    return next((line for line in lines if line.startswith(start)), "")
