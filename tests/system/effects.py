"""Reads the effect log, in which handlers record their own starts and ends; tests believe it, not the product."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One line of the effect log; times are seconds since 1970."""

    event: str  # START, END or STOPPED
    run: str
    job: str
    attempt: int
    fence: int
    due: float
    at: float
    pid: int
    label: str

    @property
    def lateness(self) -> float:
        return self.at - self.due


class Effects:
    """The effect log, read as it grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read = 0
        self._known: list[Effect] = []

    def all(self) -> list[Effect]:
        """All lines so far, in the order of the file."""
        if self.path.exists():
            with self.path.open("rb") as file:
                file.seek(self._read)
                data = file.read()
            whole, newline, _ = data.rpartition(b"\n")
            self._read += len(whole) + len(newline)
            self._known += (Effect(**json.loads(line)) for line in whole.splitlines())
        return list(self._known)

    def of(self, job: str | None = None, *, run: str | None = None, event: str | None = None) -> list[Effect]:
        """The lines of one job or run, of one kind."""
        return list(self._chosen(job, run, event))

    def starts(self, job: str | None = None, *, run: str | None = None) -> list[Effect]:
        return self.of(job, run=run, event="START")

    def ends(self, job: str | None = None, *, run: str | None = None) -> list[Effect]:
        return self.of(job, run=run, event="END")

    def running_by_process(self, jobs: set[str]) -> dict[int, set[str]]:
        """Process id → runs of these jobs that have started in it and not ended."""
        open_runs: dict[tuple[str, int], int] = {}
        for effect in self.all():
            if effect.job in jobs:
                if effect.event == "START":
                    open_runs[effect.run, effect.fence] = effect.pid
                else:
                    open_runs.pop((effect.run, effect.fence), None)
        by_process: dict[int, set[str]] = {}
        for (run, _), pid in open_runs.items():
            by_process.setdefault(pid, set()).add(run)
        return by_process

    def story(self, run: str) -> str:
        """The lines of a run, for error messages."""
        notes = self.of(run=run)
        return "; ".join(f"{e.event} attempt {e.attempt} fence {e.fence} pid {e.pid} at {e.at:.3f}" for e in notes)

    def doubled(self, job: str) -> dict[float, int]:
        """Due times of a job for which several runs started."""
        runs = {(effect.due, effect.run) for effect in self.starts(job)}
        counts = Counter(due for due, _ in runs)
        return {due: count for due, count in counts.items() if count > 1}

    def _chosen(self, job: str | None, run: str | None, event: str | None) -> Iterator[Effect]:
        for effect in self.all():
            if job in (None, effect.job) and run in (None, effect.run) and event in (None, effect.event):
                yield effect
