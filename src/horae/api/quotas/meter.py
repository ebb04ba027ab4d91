"""Measures how much owners keep, without a write or a query for each job.

What an owner keeps is counted page by page, in the background and only for owners that add something; what this node
accepts meanwhile is added in memory. What other nodes accept is seen by the next count.
"""

import asyncio
from typing import NamedTuple

import structlog

from horae.api.http.problems import OverQuota
from horae.api.quotas.account import Account, Figure, Sums
from horae.core.decisions.quotas import Amount, Limits, excess
from horae.core.errors import HoraeError
from horae.ports.clock import Clock
from horae.ports.reader import Reader

log = structlog.get_logger(__name__)

PAGE = 2_000  # rows
REST = 4  # times as long as it worked does a count rest after a page
WAIT_SECONDS = 0.5  # that a request waits for a count, at most
MAX_ACCOUNTS = 10_000


class Age(NamedTuple):
    """How long a count serves: for some seconds, and for some times as long as it took, so that none is costly."""

    seconds: float
    times: float


USUAL = Age(60, 10)
RECENT = Age(5, 2)  # where a limit would be passed, or somebody asks


class UsageMeter:
    """Knows about how much each owner keeps, and reserves room for what requests add."""

    def __init__(self, store: Reader, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._accounts: dict[str, Account] = {}
        self._turn = asyncio.Semaphore(1)  # one page at a time, whoever it is about

    async def reserve(self, owner: str, limits: Limits, wanted: Amount) -> Account:
        """Reserve room for what a request may add; raises OverQuota. The caller settles with the account."""
        account = await self.measured(owner, USUAL, stored_bytes=limits.stored_bytes > 0)
        passed = excess(limits, account, wanted)
        if passed is not None:
            figure = account.bytes if passed.resource == "stored_bytes" else account.jobs
            await _wait([self._count(account, figure, RECENT)])
            passed = excess(limits, account, wanted)
        if passed is not None:
            raise OverQuota(str(passed))
        account.reserve(wanted)
        return account

    async def measured(self, owner: str, age: Age, *, stored_bytes: bool = True) -> Account:
        """Return what an owner keeps; counts that are older begin again, and the first ones are waited for."""
        account = self._account(owner)
        figures = (account.jobs, account.bytes) if stored_bytes else (account.jobs,)
        first = [figure for figure in figures if figure.counted_at is None]
        counts = [self._count(account, figure, age) for figure in figures]
        if first and any(self._clock.elapsed() - figure.tried_at < WAIT_SECONDS for figure in first):
            await _wait(counts)
        return account

    async def close(self) -> None:
        """Stop all counts."""
        counts = [
            figure.counting
            for account in self._accounts.values()
            for figure in (account.jobs, account.bytes)
            if figure.counting is not None
        ]
        for count in counts:
            count.cancel()
        await asyncio.gather(*counts, return_exceptions=True)

    def _account(self, owner: str) -> Account:
        account = self._accounts.pop(owner, None) or Account(owner)
        if len(self._accounts) >= MAX_ACCOUNTS:
            oldest = next((name for name, other in self._accounts.items() if other.idle), None)
            if oldest is not None:
                del self._accounts[oldest]
        self._accounts[owner] = account  # at the end: the last that is forgotten
        return account

    def _count(self, account: Account, figure: Figure, age: Age) -> "asyncio.Task[None] | None":
        """Return the count in progress, or begin one if the last is older; None if it is not."""
        if figure.counting is None:
            elapsed = self._clock.elapsed()
            if elapsed - figure.tried_at < max(age.seconds, age.times * figure.seconds):
                return None
            figure.begin(self._clock.now(), elapsed)
            figure.counting = asyncio.create_task(self._run(account.owner, figure), name="horae-usage")
        return figure.counting

    async def _run(self, owner: str, figure: Figure) -> None:
        began = self._clock.elapsed()
        sums, queues = Sums(), set[str]()
        try:
            for part in figure.parts:
                cursor: str | None = None
                while True:
                    async with self._turn:
                        page_began = self._clock.elapsed()
                        page = await self._store.kept_by(owner, part, cursor=cursor, limit=PAGE)
                        worked = self._clock.elapsed() - page_began
                    sums.add(page.amount)
                    queues |= page.amount.queues
                    if (cursor := page.cursor) is None:
                        break
                    await asyncio.sleep(REST * worked)
            figure.end(sums, queues, seconds=self._clock.elapsed() - began)
        except HoraeError as exc:
            log.warning("usage_not_counted", owner=owner, error=str(exc))
        finally:
            figure.counting = None


async def _wait(counts: "list[asyncio.Task[None] | None]") -> None:
    """Wait for counts, for a moment."""
    if running := [count for count in counts if count is not None]:
        await asyncio.wait(running, timeout=WAIT_SECONDS)
