"""Measures the CPU time and memory of a benchmark by role, and what it asks of services that bill by requests."""

import os
import resource
from dataclasses import dataclass
from pathlib import Path

from horae.proof.bench import machine
from horae.proof.bench.processes import NodeProcesses
from horae.proof.bench.requests import ServiceUsage, read_usage


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageReading:
    """CPU time used so far."""

    cpu_seconds: dict[str, float]  # by role
    asked: ServiceUsage = ServiceUsage()
    machine: tuple[int, int] | None  # ticks of all CPUs, and how many of them the host took; None if unknown


class Meter:
    """Reads the CPU time and memory of this process, the nodes and a local PostgreSQL."""

    def __init__(self, nodes: NodeProcesses, folder: Path, *, postmaster: int | None) -> None:
        self._nodes = nodes
        self._folder = folder  # in which the nodes write what they ask
        self._postmaster = postmaster

    def read(self) -> UsageReading:
        own = resource.getrusage(resource.RUSAGE_SELF)
        used = {"producer": own.ru_utime + own.ru_stime}
        used |= {role: machine.cpu_seconds(pids) for role, pids in self._nodes.by_role().items()}
        if self._postmaster is not None:
            used["postgres"] = machine.family_cpu_seconds(self._postmaster)
        return UsageReading(cpu_seconds=used, asked=read_usage(self._folder), machine=machine.cpu_times())

    def peak_rss_mb(self) -> dict[str, float | None]:
        """Return the peak memory of the largest process of each role."""
        by_role = {"producer": [os.getpid()], **self._nodes.by_role()}
        peaks = {role: [machine.peak_rss_mb(pid) for pid in pids] for role, pids in by_role.items()}
        return {role: max((peak for peak in peaks[role] if peak is not None), default=None) for role in peaks}


def cpu_seconds_between(before: UsageReading, after: UsageReading) -> dict[str, float]:
    """Return the CPU seconds between two readings, by role."""
    return {role: seconds - before.cpu_seconds[role] for role, seconds in after.cpu_seconds.items()}


def stolen_percent(before: UsageReading, after: UsageReading) -> float | None:
    """Return the share of the CPUs that the host gave to others; None if unknown."""
    if before.machine is None or after.machine is None or after.machine[0] == before.machine[0]:
        return None
    total, stolen = (late - early for early, late in zip(before.machine, after.machine, strict=True))
    return round(100 * stolen / total, 2)
