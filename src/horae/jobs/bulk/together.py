"""Changes many jobs at once: recurring ones side by side, one-shots by one write."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from horae.core.changes import Change
from horae.core.decisions.results import Settled
from horae.core.errors import HoraeError, Unavailable
from horae.core.model import Job, JobId
from horae.jobs.optimistic import TRIES
from horae.metrics import Metrics
from horae.ports.store import Store

AT_ONCE = 4  # acts on recurring jobs in progress; each takes several reads, and stores group their commits

T = TypeVar("T")
R = TypeVar("R")

Propose = Callable[[Job], Change | Settled | None]  # of a one-shot; None: it is as wanted. Raises HoraeError.
Act = Callable[[JobId], Awaitable[Job]]  # on one job; raises HoraeError


async def side_by_side(items: Sequence[T], act: Callable[[T], Awaitable[R]]) -> list[R]:
    """Return the results of an act on each item, a few at a time."""
    results: list[R] = []
    for start in range(0, len(items), AT_ONCE):
        results += await asyncio.gather(*map(act, items[start : start + AT_ONCE]))
    return results


async def count_changed(jobs: Sequence[Job], act: Act) -> int:
    """Act on recurring jobs one by one, a few at a time, and return for how many the act succeeded."""

    async def succeeded(job: Job) -> bool:
        try:
            await act(job.id)
        except Unavailable:
            raise
        except HoraeError:  # it ended, or is not permitted any more
            return False
        return True

    return sum(await side_by_side([job for job in jobs if job.recurring], succeeded))


async def change_one_shots(store: Store, metrics: Metrics, jobs: Sequence[Job], propose: Propose) -> int:
    """Change the one-shots among jobs, and return how many are as wanted; those that others keep changing are not."""
    done, left = 0, [job for job in jobs if not job.recurring]
    for _ in range(TRIES):
        written = await _write(store, metrics, _proposals(left, propose))
        done += sum(written.values())
        again = [job_id for job_id, is_done in written.items() if not is_done]
        if not again:
            break
        left = [*(await store.jobs(again)).values()]
    return done


Proposals = dict[JobId, Change | Settled | None]


def _proposals(jobs: Sequence[Job], propose: Propose) -> Proposals:
    """Return what to write for each one-shot; those that cannot be changed are left out."""
    proposals: Proposals = {}
    for job in jobs:
        with suppress(HoraeError):
            proposals[job.id] = propose(job)
    return proposals


async def _write(store: Store, metrics: Metrics, proposals: Proposals) -> dict[JobId, bool]:
    """Write proposals, and return which one-shots are as wanted; the others changed meanwhile."""
    changes = {job_id: one for job_id, one in proposals.items() if isinstance(one, Change)}
    ends = {job_id: one for job_id, one in proposals.items() if isinstance(one, Settled)}
    outcomes = dict.fromkeys(proposals, True)
    if changes:
        refusals = await store.apply([*changes.values()])
        outcomes |= {job_id: refusal is None for job_id, refusal in zip(changes, refusals, strict=True)}
    if ends:
        outcomes |= dict(zip(ends, await store.settle([*ends.values()]), strict=True))
        metrics.ended(settled.run for job_id, settled in ends.items() if outcomes[job_id])
    return outcomes
