"""Reads CPU time, memory and stolen CPU time of processes from Linux' /proc; elsewhere they are unknown."""

import os
from collections.abc import Iterable
from pathlib import Path

PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")  # ticks of CPU time per second
_PARENT, _USER, _SYSTEM, _CHILDREN_USER, _CHILDREN_SYSTEM = 1, 11, 12, 13, 14  # fields after the name of a process
_STEAL = 7  # among the times of the CPUs
_GUEST = 8  # from here on, times are already part of earlier ones


def cpu_seconds(pids: Iterable[int]) -> float:
    """Return the CPU seconds that processes have used so far; one that has ended counts 0."""
    return sum(int(fields[_USER]) + int(fields[_SYSTEM]) for fields in map(_stat, pids) if fields) / _TICKS


def family_cpu_seconds(parent: int) -> float:
    """Return the CPU seconds of a process and its children, including those that have ended."""
    fields = _stat(parent)
    ended = (int(fields[_CHILDREN_USER]) + int(fields[_CHILDREN_SYSTEM])) / _TICKS if fields else 0.0
    return ended + cpu_seconds([parent, *_children(parent)])


def parent_of(pid: int, *, named: str) -> int | None:
    """Return the parent of a process; None unless both run on this machine and have this name."""
    fields = _stat(pid)
    if not fields or _name(pid) != named or _name(int(fields[_PARENT])) != named:
        return None
    return int(fields[_PARENT])


def peak_rss_mb(pid: int) -> float | None:
    """Return the peak memory of a process in megabytes."""
    return _status_mb(pid, "VmHWM:")


def cpu_times() -> tuple[int, int] | None:
    """Return the ticks of all CPUs so far, and how many of them the host gave to others; None if unknown."""
    try:
        times = [int(time) for time in (PROC / "stat").read_text().splitlines()[0].split()[1:]]
    except OSError:
        return None
    return sum(times[:_GUEST]), times[_STEAL]


def _children(parent: int) -> list[int]:
    pids = [int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit()]
    return [pid for pid in pids if (fields := _stat(pid)) and int(fields[_PARENT]) == parent]


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the process name, which may contain blanks; empty if it has ended."""
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
