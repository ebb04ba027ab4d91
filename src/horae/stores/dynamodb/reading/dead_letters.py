"""Dead letters, grouped by their errors and counted."""

from collections import defaultdict

from horae.core.model import JobError, Run
from horae.ports.reader import ErrorGroup, RunFilter
from horae.stores.common.listing import EARLIEST
from horae.stores.dynamodb.reading.merge import merged
from horae.stores.dynamodb.reading.rows import RowReader, from_time
from horae.stores.dynamodb.reading.run_lists import RunLists

MOST = 10_000  # dead letters that are counted or grouped


class DeadLetterLists:
    """Answers what is not a list of dead letters."""

    def __init__(self, rows: RowReader, run_lists: RunLists) -> None:
        self._rows = rows
        self._run_lists = run_lists

    async def groups(self, which: RunFilter) -> list[ErrorGroup]:
        """Group the latest; see `Reader.dead_letter_groups`."""
        found = await self._run_lists.page(which, cursor=None, limit=MOST, look=MOST)
        by_error: defaultdict[tuple[str, JobError], list[Run]] = defaultdict(list)
        for run in found.items:  # the newest first
            if run.error is not None:
                by_error[run.spec.task, run.error].append(run)
        groups = [
            ErrorGroup(
                error=error,
                count=len(runs),
                oldest_at=runs[-1].due_at,
                newest_at=runs[0].due_at,
                task=task,
                example=runs[0].id,
            )
            for (task, error), runs in by_error.items()
        ]
        return sorted(groups, key=lambda group: (-group.count, -group.newest_at.timestamp(), group.task))

    async def count(self) -> int:
        """Count those of all owners, without reading their rows."""
        parts = await self._rows.sub_shards(None)
        count = 0
        async for _ in merged(self._rows.db, self._rows.by_due("dead", parts, from_time(EARLIEST), "~"), expect=MOST):
            count += 1
            if count == MOST:
                break
        return count
