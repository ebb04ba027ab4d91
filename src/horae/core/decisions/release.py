"""Gates and release: which runs exclude each other, and whether a run may start now."""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

from horae.core.lifecycle import FINAL
from horae.core.model import JobId, OnFailure, Overlap, Run, RunId, Spec, State, Trigger
from horae.core.values import Value

_JOB_GATE = "job:"


def gate_of(spec: Spec, job_id: JobId, owner: str, *, recurring: bool) -> str | None:
    """Return the gate of a run; runs with the same gate start one after another.

    An ordering key comes first: all runs of a job share it, so their overlap is decided in the same gate.
    """
    if spec.ordering_key is not None:
        return key_gate(owner, spec.ordering_key)
    if recurring and spec.policy.overlap is not Overlap.ALLOW:
        return f"{_JOB_GATE}{job_id}"
    return None


def key_gate(owner: str, ordering_key: str) -> str:
    """Return the gate of an ordering key; no two pairs of owner and key share one.

    The owner `a` with the key `b:c` is not `a:b` with the key `c`: an owner with a colon is told by its length. Every
    other gate has the form of earlier releases, so that runs which wait since then keep their order with new ones.
    """
    return f"key#{len(owner)}:{owner}:{ordering_key}" if ":" in owner else f"key:{owner}:{ordering_key}"


def is_key_gate(gate: str) -> bool:
    """Whether a gate is that of an ordering key, and not that of one recurring job."""
    return not gate.startswith(_JOB_GATE)


class Verdict(StrEnum):
    """What happens to a run at the time of its release."""

    START = "start"
    WAIT = "wait"  # behind another run of its gate
    OVERLAP = "overlap"
    TOO_LATE = "too_late"


class Rival(Value, frozen=True, kw_only=True):
    """A run ahead in the same gate that is not finished, or failed and blocks what comes after it."""

    id: RunId
    job_id: JobId
    started_at: datetime | None  # its first start, also while it waits for a retry
    failed: bool = False  # a dead letter with `on_failure: block`: it blocks, but does not run


def release(run: Run, rivals: Sequence[Rival], now: datetime) -> Verdict:
    """Decide whether a run may start now, given the unfinished runs ahead of it in its gate.

    A slot overlaps if another run of its job had already started at the time of the slot. After an outage (no worker, a
    restart) late runs only wait for each other, so they do not overlap but run one after another. A run that once
    started in time, and was given back, is never skipped.
    """
    first_start = run.attempt == 0 and run.first_started_at is None
    within = run.spec.policy.start_within
    if within is not None and first_start and run.trigger is not Trigger.REQUEUE and now > run.due_at + within:
        return Verdict.TOO_LATE
    if not rivals:
        return Verdict.START
    if first_start and run.trigger is Trigger.SCHEDULE and _overlaps(run, rivals):
        return Verdict.OVERLAP
    return Verdict.WAIT


def overlap_is_open(run: Run, rivals: Sequence[Rival]) -> bool:
    """Whether a waiting run may still turn out to overlap, because the start of a rival is not known yet."""
    if run.attempt > 0 or run.trigger is not Trigger.SCHEDULE or run.spec.policy.overlap is Overlap.ALLOW:
        return False
    return any(rival.job_id == run.job_id and rival.started_at is None and not rival.failed for rival in rivals)


def blocks_key(run: Run) -> bool:
    """Whether a failed run blocks its ordering key until it is requeued or discarded."""
    failed = run.state is State.FAILED and run.resolution is None
    return failed and run.spec.ordering_key is not None and run.spec.policy.on_failure is OnFailure.BLOCK


def makes_way(run: Run) -> bool:
    """Whether the runs behind this one in its gate may come next: it ended, and does not block them."""
    return run.state in FINAL and not blocks_key(run)


def _overlaps(run: Run, rivals: Sequence[Rival]) -> bool:
    same_job = [rival for rival in rivals if rival.job_id == run.job_id and not rival.failed]
    going = any(rival.started_at is not None and rival.started_at <= run.due_at for rival in same_job)
    match run.spec.policy.overlap:
        case Overlap.ALLOW:
            return False
        case Overlap.SKIP:
            return going
        case Overlap.BUFFER_ONE:
            return going and any(rival.started_at is None for rival in same_job)
