"""The runs that a worker holds and has not started: each waits for its instant, and then perhaps for a free slot."""

import itertools
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Iterator
from datetime import datetime

from horae.core.model import Run, RunId

Entry = tuple[datetime, int, int, Run]  # wake_at, -priority, order of arrival
Line = deque[tuple[datetime, Run]]  # since when each waits


class HeldRuns:
    """Claimed runs, by the instant of each; one that is taken out is found gone when its turn comes."""

    def __init__(self) -> None:
        self._runs: dict[RunId, Run] = {}
        self._timers: list[Entry] = []  # in their order
        self._order = itertools.count()
        self._lines: dict[int, dict[str, dict[str, Line]]] = {}  # of overdue runs, by priority, queue and owner
        self.overdue = 0  # at most so many wait for a free slot

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs.values())

    def __contains__(self, run: Run) -> bool:
        return self._runs.get(run.id) is run

    def get(self, run_id: RunId) -> Run | None:
        return self._runs.get(run_id)

    def keep(self, run: Run) -> None:
        """It waits for its instant."""
        self._runs[run.id] = run
        timers, timer = self._timers, (run.wake_at, -run.spec.priority, next(self._order), run)
        if not timers or timers[-1] < timer:  # claims bring them in their order, mostly
            timers.append(timer)
        else:
            insort(timers, timer)

    def keep_overdue(self, run: Run, now: datetime) -> None:
        """Its instant has come, but no slot is free.

        Within a priority the queues take turns, and within a queue the owners: a flood does not hold up the others.
        """
        spec = run.spec
        owners = self._lines.setdefault(spec.priority, {}).setdefault(spec.queue, {})
        if run.owner not in owners:
            owners[run.owner] = deque()
        owners[run.owner].append((now, run))
        self.overdue += 1

    def drop(self, run: Run) -> None:
        """Take it out, if it is still here."""
        self._runs.pop(run.id, None)

    def next_at(self) -> datetime | None:
        """When to look for what is due."""
        return self._timers[0][0] if self._timers else None

    def due(self, now: datetime, limit: int) -> list[Run]:
        """The next runs whose instant has come, at most so many; they stay here until they are taken out."""
        end = bisect_right(self._timers, now, hi=min(limit, len(self._timers)), key=_wake_at)
        timers = self._timers[:end]
        del self._timers[:end]
        runs = self._runs
        return [run for _, _, _, run in timers if runs.get(run.id) is run]

    def take_overdue(self, limit: int) -> list[Run]:
        """The runs that are to have the next free slots; they stay here until they are taken out."""
        taken: list[Run] = []
        while self._lines and len(taken) < limit:
            priority = max(self._lines)
            queues = self._lines[priority]
            queue = next(iter(queues))
            owners = queues.pop(queue)
            owner = next(iter(owners))
            line = owners.pop(owner)
            alone = not queues and not owners  # and so has all of them
            turn = min(limit - len(taken), len(line)) if alone else 1
            taken += [line.popleft()[1] for _ in range(turn)]
            self.overdue -= turn
            if line:
                owners[owner] = line  # behind the others
            if owners:
                queues[queue] = owners
            elif not queues:
                del self._lines[priority]
        return [run for run in taken if run in self]

    def overdue_since(self, instant: datetime) -> list[Run]:
        """Those that have waited for a slot since then or longer; the caller takes them out."""
        late: list[Run] = []
        for priority, queues in list(self._lines.items()):
            for queue, owners in list(queues.items()):
                for owner, line in list(owners.items()):
                    while line and line[0][0] <= instant:
                        late.append(line.popleft()[1])
                    if not line:
                        del owners[owner]
                if not owners:
                    del queues[queue]
            if not queues:
                del self._lines[priority]
        self.overdue -= len(late)
        return [run for run in late if run in self]

    def clear(self) -> None:
        """Forget everything."""
        self._runs.clear()
        self._timers.clear()
        self._lines.clear()
        self.overdue = 0


def _wake_at(timer: Entry) -> datetime:
    return timer[0]
