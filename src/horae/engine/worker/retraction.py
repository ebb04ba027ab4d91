"""Takes back held runs of paused jobs that have not started, so that their slots are open again."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum

from horae.core.effects import OVER, retract_held, retractable
from horae.core.model import JobId, JobStatus, Run, RunId
from horae.core.records import QueueSettings
from horae.ports.store import Store

TRIES = 3  # how often a job is read again that changes meanwhile
_FAR = datetime.max.replace(tzinfo=UTC)


class Retraction(StrEnum):
    """What became of a held run that was to be taken back."""

    TAKEN_BACK = "taken_back"  # it is gone, and its slot is open again
    GOES_ON = "goes_on"  # its job is active again, the run is already due, or a later slot has its run
    OVER = "over"  # its job is over


async def retract(store: Store, runs: Sequence[Run], *, now: datetime) -> list[Retraction]:
    """Take back those of the runs whose jobs are paused and that are not due yet."""
    by_job: defaultdict[JobId, list[Run]] = defaultdict(list)
    for run in runs:
        by_job[run.job_id].append(run)
    answers: dict[RunId, Retraction] = {}
    for job_id, held in by_job.items():
        answers |= await _retract_of(store, job_id, held, now)
    return [answers[run.id] for run in runs]


async def _retract_of(store: Store, job_id: JobId, held: Sequence[Run], now: datetime) -> dict[RunId, Retraction]:
    taken: Sequence[Run] = ()
    for _ in range(TRIES):
        job = (await store.jobs([job_id])).get(job_id)
        if job is None or job.status in OVER or not job.recurring:  # a one-shot is stopped only when it is deleted
            return {run.id: Retraction.OVER for run in held}
        if job.status is not JobStatus.PAUSED:
            break
        stored = await store.runs([run.id for run in held])
        same = [found for run in held if (found := stored.get(run.id)) is not None and found.fence == run.fence]
        slots = [run.slot for run in same if run.slot is not None]
        if not slots:
            break
        ledger = await store.ledger(job_id, start=min(slots), end=_FAR, limit=1000)
        taken = retractable(same, ledger.runs, now)
        if not taken:
            break
        settings = await store.records(QueueSettings, key=job.spec.queue)
        limited = any(each.concurrency is not None for each in settings)
        [refusal] = await store.apply([retract_held(job, taken, now=now, limited=limited)])
        if refusal is None:
            break
        taken = ()
    back = {run.id for run in taken}
    return {run.id: Retraction.TAKEN_BACK if run.id in back else Retraction.GOES_ON for run in held}
