"""What a benchmark cost, by role: read before and after what is measured."""

import os
import resource
from dataclasses import dataclass

from horae.proof.bench import machine
from horae.proof.bench.processes import Nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What was used so far."""

    cpu_seconds: dict[str, float]  # by role
    machine: tuple[int, int] | None  # all CPUs, and what the host took of it


class Meter:
    """Reads the CPU time and the memory of everything that takes part: this process, the nodes, a local PostgreSQL."""

    def __init__(self, nodes: Nodes, *, postmaster: int | None) -> None:
        self._nodes = nodes
        self._postmaster = postmaster

    def read(self) -> Reading:
        own = resource.getrusage(resource.RUSAGE_SELF)
        used = {"producer": own.ru_utime + own.ru_stime}
        used |= {role: machine.cpu_seconds(pids) for role, pids in self._nodes.by_role().items()}
        if self._postmaster is not None:
            used["postgres"] = machine.family_cpu_seconds(self._postmaster)
        return Reading(cpu_seconds=used, machine=machine.cpu_times())

    def peak_rss_mb(self) -> dict[str, float | None]:
        """The most memory that a process of each role has had."""
        by_role = {"producer": [os.getpid()], **self._nodes.by_role()}
        peaks = {role: [machine.peak_rss_mb(pid) for pid in pids] for role, pids in by_role.items()}
        return {role: max((peak for peak in peaks[role] if peak is not None), default=None) for role in peaks}


def used_between(before: Reading, after: Reading) -> dict[str, float]:
    """CPU seconds by role."""
    return {role: seconds - before.cpu_seconds[role] for role, seconds in after.cpu_seconds.items()}


def stolen_percent(before: Reading, after: Reading) -> float | None:
    """The share of the CPUs that the host gave to others; None where that is not told."""
    if before.machine is None or after.machine is None or after.machine[0] == before.machine[0]:
        return None
    total, stolen = (late - early for early, late in zip(before.machine, after.machine, strict=True))
    return round(100 * stolen / total, 2)
