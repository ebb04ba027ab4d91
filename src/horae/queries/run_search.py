"""Lists runs by conditions that no index answers: they are checked on the runs that a filter of the store finds."""

from horae.core.model import Run, Trigger
from horae.core.values import Value
from horae.ports.reader import Listing, Reader, RunFilter

MAX_LOOK = 10_000  # runs that one page reads at most; a page may be empty, and its cursor continues the search
CHUNK = 500


class RunSearch(Value, frozen=True, kw_only=True):
    """Conditions on runs beside a filter; None means any."""

    trigger: Trigger | None = None

    def admits(self, run: Run) -> bool:
        """Whether the run meets every condition."""
        return self.trigger in (None, run.trigger)


ANY_RUN = RunSearch()


async def search_runs(
    reader: Reader, which: RunFilter, search: RunSearch, *, cursor: str | None, limit: int
) -> Listing[Run]:
    """Return a page of runs, the latest `due_at` first."""
    if search == ANY_RUN:
        return await reader.list_runs(which, cursor=cursor, limit=limit)
    found: list[Run] = []
    for _ in range(MAX_LOOK // CHUNK):
        looked = await reader.list_runs(which, cursor=cursor, limit=CHUNK)
        admitted = [place for place, run in enumerate(looked.items, 1) if search.admits(run)][: limit - len(found)]
        found += [looked.items[place - 1] for place in admitted]
        if len(found) == limit and admitted[-1] < len(looked.items):
            # Only the store knows the cursor after a run: that of the page that ends with it.
            looked = await reader.list_runs(which, cursor=cursor, limit=admitted[-1])
        cursor = looked.cursor
        if cursor is None or len(found) == limit:
            break
    return Listing(items=found, cursor=cursor)
