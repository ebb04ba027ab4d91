"""Holds claimed runs until they start: each waits for its instant, and then perhaps for a free slot."""

import itertools
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Iterator
from datetime import datetime

from horae.core.model import Run, RunId

Scheduled = tuple[datetime, int, int, Run]  # wake_at, -priority, order of arrival
Line = deque[tuple[datetime, Run]]  # since when each waits for a slot


class HeldRuns:
    """Claimed runs by their instants; a run that was dropped is filtered out when its turn comes."""

    def __init__(self) -> None:
        self._runs: dict[RunId, Run] = {}
        self._scheduled: list[Scheduled] = []  # sorted
        self._order = itertools.count()
        self._lines: dict[int, dict[str, dict[str, Line]]] = {}  # overdue runs by priority, owner and queue
        self.overdue = 0  # upper bound of the runs that wait for a slot: dropped ones are counted until their turn

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs.values())

    def __contains__(self, run: Run) -> bool:
        return self._runs.get(run.id) is run

    def get(self, run_id: RunId) -> Run | None:
        """Return the held run with this id."""
        return self._runs.get(run_id)

    def keep(self, run: Run) -> None:
        """Hold a run until its instant."""
        self._runs[run.id] = run
        scheduled, entry = self._scheduled, (run.wake_at, -run.spec.priority, next(self._order), run)
        if not scheduled or scheduled[-1] < entry:  # claims mostly bring runs in this order
            scheduled.append(entry)
        else:
            insort(scheduled, entry)

    def keep_overdue(self, run: Run, now: datetime) -> None:
        """Hold a run whose instant has come until a slot is free.

        Within a priority the owners take turns, and within an owner the queues, so that a flood delays nobody else.
        """
        spec = run.spec
        queues = self._lines.setdefault(spec.priority, {}).setdefault(run.owner, {})
        if spec.queue not in queues:
            queues[spec.queue] = deque()
        queues[spec.queue].append((now, run))
        self.overdue += 1

    def drop(self, run: Run) -> None:
        """Hold a run no longer, if it is held."""
        self._runs.pop(run.id, None)

    def count_until(self, moment: datetime) -> int:
        """Return how many runs are held whose instants come by then, or have come."""
        if not self._scheduled or self._scheduled[-1][0] <= moment:
            return len(self._runs)  # the usual case
        later = len(self._scheduled) - bisect_right(self._scheduled, moment, key=_wake_at)
        return max(len(self._runs) - later, 0)

    def next_at(self) -> datetime | None:
        """Return the next instant at which a run is due."""
        return self._scheduled[0][0] if self._scheduled else None

    def due(self, now: datetime, limit: int) -> list[Run]:
        """Return the next runs whose instant has come; they are held until they are dropped."""
        end = bisect_right(self._scheduled, now, hi=min(limit, len(self._scheduled)), key=_wake_at)
        entries = self._scheduled[:end]
        del self._scheduled[:end]
        runs = self._runs
        return [run for _, _, _, run in entries if runs.get(run.id) is run]

    def take_overdue(self, limit: int) -> list[Run]:
        """Return the runs that get the next free slots; they are held until they are dropped."""
        taken: list[Run] = []
        while self._lines and len(taken) < limit:
            priority = max(self._lines)
            owners = self._lines[priority]
            owner = next(iter(owners))
            queues = owners.pop(owner)
            queue = next(iter(queues))
            line = queues.pop(queue)
            alone = not owners and not queues  # no other owner or queue takes turns with it
            turn = min(limit - len(taken), len(line)) if alone else 1
            taken += [line.popleft()[1] for _ in range(turn)]
            self.overdue -= turn
            if line:
                queues[queue] = line  # behind the other queues of the owner
            if queues:
                owners[owner] = queues
            elif not owners:
                del self._lines[priority]
        return [run for run in taken if run in self]

    def take_overdue_since(self, instant: datetime) -> list[Run]:
        """Return the runs that have waited for a slot since then or longer; they are held until they are dropped."""
        late: list[Run] = []
        for priority, owners in list(self._lines.items()):
            for owner, queues in list(owners.items()):
                for queue, line in list(queues.items()):
                    while line and line[0][0] <= instant:
                        late.append(line.popleft()[1])
                    if not line:
                        del queues[queue]
                if not queues:
                    del owners[owner]
            if not owners:
                del self._lines[priority]
        self.overdue -= len(late)
        return [run for run in late if run in self]

    def clear(self) -> None:
        """Hold nothing any more."""
        self._runs.clear()
        self._scheduled.clear()
        self._lines.clear()
        self.overdue = 0


def _wake_at(entry: Scheduled) -> datetime:
    return entry[0]
