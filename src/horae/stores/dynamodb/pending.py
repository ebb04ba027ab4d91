"""The runs of the last firing, kept in their job until it fires again: a firing is one write of the job, then its runs.

Whoever reads the job's live runs and misses one of these writes it, by the same condition as the planner that fired
them. So a crash in between loses no run, and nobody ever sees a job without the runs that it has fired.
"""

from collections.abc import Iterable, Sequence
from struct import Struct

from horae.core.decisions.release import gate_of
from horae.core.model import Job, Run, RunId
from horae.stores.dynamodb.items import Item, binary, bytes_of, job_of_item, micros, moment, time_of, time_of_micros

PENDING, PENDING_SINCE = "pend", "pc"  # attributes of a job
_ENTRY = Struct(">16sQQQ")  # id, slot, due_at, wake_at


def pending_of(runs: Sequence[Run]) -> Item:
    """The attributes of a job that has just fired these runs."""
    data = b"".join(
        _ENTRY.pack(bytes.fromhex(run.id), micros(run.slot or run.due_at), micros(run.due_at), micros(run.wake_at))
        for run in runs
    )
    return {PENDING: binary(data), PENDING_SINCE: moment(runs[0].created_at)}


def can_be_pending(runs: Sequence[Run], job: Job) -> bool:
    """Whether runs can be made again from their job and what `pending_of` keeps of them."""
    return bool(runs) and all(made == run for made, run in zip(_made(job, pending_of(runs)), runs, strict=True))


def missing_runs(item: Item, there: Iterable[str]) -> list[Run]:
    """The runs of the last firing of a job of which there are no rows."""
    if PENDING not in item:
        return []
    known = set(there)
    return [run for run in _made(job_of_item(item), item) if run.id not in known]


def _made(job: Job, item: Item) -> list[Run]:
    created_at = time_of(item[PENDING_SINCE])
    gate = gate_of(job.spec, job.id, job.owner, recurring=True)
    return [
        Run(
            id=RunId(ident.hex()),
            job_id=job.id,
            owner=job.owner,
            created_by=job.created_by,
            spec=job.spec,
            slot=time_of_micros(slot),
            due_at=time_of_micros(due_at),
            wake_at=time_of_micros(wake_at),
            gate=gate,
            revision=job.revision,
            created_at=created_at,
        )
        for ident, slot, due_at, wake_at in _ENTRY.iter_unpack(bytes_of(item[PENDING]))
    ]
