"""What the work cost the machine, as Linux tells it: CPU time, memory, and what the host took away.

Elsewhere nothing is known, and nothing is told.
"""

import os
from collections.abc import Iterable
from pathlib import Path

PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")  # of which CPU times are counted in a second
_PARENT, _USER, _SYSTEM, _CHILDREN_USER, _CHILDREN_SYSTEM = 1, 11, 12, 13, 14  # fields after the name of a process
_STEAL = 7  # among the times of the CPUs
_GUEST = 8  # from here on times are told a second time


def cpu_seconds(pids: Iterable[int]) -> float:
    """What processes have used so far; one that is gone counts nothing."""
    return sum(int(fields[_USER]) + int(fields[_SYSTEM]) for fields in map(_stat, pids) if fields) / _TICKS


def family_cpu_seconds(parent: int) -> float:
    """What a process, its children, and those of its children that have ended have used so far."""
    fields = _stat(parent)
    ended = (int(fields[_CHILDREN_USER]) + int(fields[_CHILDREN_SYSTEM])) / _TICKS if fields else 0.0
    return ended + cpu_seconds([parent, *_children(parent)])


def parent_of(pid: int, *, named: str) -> int | None:
    """The parent of a process, if that is here and has such a name."""
    fields = _stat(pid)
    if not fields or _name(pid) != named or _name(int(fields[_PARENT])) != named:
        return None
    return int(fields[_PARENT])


def peak_rss_mb(pid: int) -> float | None:
    """The most memory that a process has had, in megabytes."""
    return _status_mb(pid, "VmHWM:")


def cpu_times() -> tuple[int, int] | None:
    """What all CPUs have counted so far, and how much of it the host took for others."""
    try:
        times = [int(time) for time in (PROC / "stat").read_text().splitlines()[0].split()[1:]]
    except OSError:
        return None
    return sum(times[:_GUEST]), times[_STEAL]


def _children(parent: int) -> list[int]:
    pids = [int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit()]
    return [pid for pid in pids if (fields := _stat(pid)) and int(fields[_PARENT]) == parent]


def _stat(pid: int) -> list[str]:
    """What the kernel keeps of a process, after its name, which may hold blanks; nothing when it is gone."""
    return _read(pid, "stat").rpartition(") ")[2].split()


def _name(pid: int) -> str:
    return _read(pid, "comm").strip()


def _status_mb(pid: int, field: str) -> float | None:
    kilobytes = [line.split()[1] for line in _read(pid, "status").splitlines() if line.startswith(field)]
    return round(int(kilobytes[0]) / 1024, 1) if kilobytes else None


def _read(pid: int, file: str) -> str:
    try:
        return (PROC / str(pid) / file).read_text()
    except OSError:
        return ""
