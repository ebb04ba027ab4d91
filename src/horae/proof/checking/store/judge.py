"""Judges a history that is completely in memory; a pure function of values."""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime

from horae.core.job_rules import job_of
from horae.core.model import Job, Trigger
from horae.ports.reader import Ledger
from horae.proof.checking.findings import Code, History, Tolerance, Violation, of_run
from horae.proof.checking.store.belonging import (
    judge_belonging,
    judge_key_of_job,
    judge_key_of_run,
    judge_revision,
)
from horae.proof.checking.store.dead_letters import judge_listing, judge_resolution, refers_to
from horae.proof.checking.store.gates import judge_gates
from horae.proof.checking.store.runs import judge_run
from horae.proof.checking.store.slots import (
    SlotJudge,
    end_was_unknown,
    is_overlap,
    skipped_without_overlap,
    was_running,
)


def violations(history: History, tolerance: Tolerance | None = None) -> list[Violation]:
    """Return every violation in the history."""
    tolerance = tolerance or Tolerance()
    found: list[Violation] = []
    for job in history.jobs:
        found += _slots(history, job, tolerance)
        found += judge_revision(job, history.trails.get(job.id))
        if history.keys is not None and job.spec.key is not None:
            found += judge_key_of_job(job, history.keys.get((job.owner, job.spec.key)))
    found += _runs(history, tolerance)
    found += judge_gates((run for run in history.runs if _is_judged(history, run.created_at)), tolerance)
    return list(dict.fromkeys(found))


def _slots(history: History, job: Job, tolerance: Tolerance) -> Iterator[Violation]:
    """Judge the slots of a job; its unscheduled runs may explain skipped slots."""
    runs = [run for run in history.runs if run.job_id == job.id]
    ledger = Ledger(
        runs=[run for run in runs if run.trigger is Trigger.SCHEDULE and run.slot is not None],
        skips=[skipped for skipped in history.skips if skipped.job_id == job.id],
        backfills=[backfill for backfill in history.backfills if backfill.job_id == job.id],
    )
    judge = SlotJudge(job, history.trails.get(job.id), now=history.now, since=history.since, tolerance=tolerance)
    ends = [history.now, *(run.due_at for run in ledger.runs), *(skipped.start for skipped in ledger.skips)]
    explained = {
        skipped_without_overlap(run)
        for run in ledger.runs
        if is_overlap(run)
        and any(
            was_running(other, run, tolerance) or end_was_unknown(other, run, history.end_events, tolerance)
            for other in runs
        )
    }
    for violation in (*judge.read(ledger, end=max(ends)), *judge.end()):
        if violation not in explained:
            yield violation


def _runs(history: History, tolerance: Tolerance) -> Iterator[Violation]:
    by_id = {run.id: run for run in history.runs}
    jobs = {job.id: job for job in (*history.jobs, *(job_of(run) for run in history.runs if run.one_shot))}
    times = Counter(run.id for run in history.runs)
    for run in history.runs:
        if run.finished_at is not None and not _is_judged(history, run.finished_at):
            continue
        if times[run.id] > 1:
            yield of_run(Code.COMMITTED_TWICE, run, f"it is stored {times[run.id]} times")
        yield from judge_run(run, history.attempts.get(run.id, ()), tolerance, since=history.since)
        yield from judge_listing(run, history.dead_letters)
        yield from judge_belonging(run, jobs.get(run.job_id))
        if history.keys is not None and run.one_shot and run.spec.key is not None:
            yield from judge_key_of_run(run, history.keys.get((run.owner, run.spec.key)))
        if (other := refers_to(run)) is not None:
            yield from judge_resolution(run, by_id.get(other), since=history.since)


def _is_judged(history: History, moment: datetime) -> bool:
    return history.since is None or moment >= history.since
