"""Reads whole lists of jobs and runs from a store, page by page."""

from collections.abc import AsyncIterator, Sequence

from horae.core.model import Job, Run
from horae.ports.reader import JobFilter, Reader, RunFilter

PAGE = 500  # runs or jobs per read


async def recurring_jobs(store: Reader) -> AsyncIterator[Job]:
    """Yield every recurring job."""
    cursor: str | None = None
    while True:
        page = await store.list_jobs(JobFilter(), cursor=cursor, limit=PAGE)
        for job in page.items:
            if job.recurring:
                yield job
        if (cursor := page.cursor) is None:
            return


async def run_pages(store: Reader, which: RunFilter, *, limit: int = PAGE) -> AsyncIterator[Sequence[Run]]:
    """Yield every run that passes the filter, in pages; latest due time first."""
    cursor: str | None = None
    while True:
        page = await store.list_runs(which, cursor=cursor, limit=limit)
        yield page.items
        if (cursor := page.cursor) is None:
            return


async def all_runs(store: Reader, which: RunFilter) -> AsyncIterator[Run]:
    """Yield every run that passes the filter; latest due time first."""
    async for page in run_pages(store, which):
        for run in page:
            yield run
