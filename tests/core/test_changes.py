"""Whether a change is admitted: every guard holds, and what the changes before it in a batch wrote counts."""

from datetime import UTC, datetime, timedelta

import pytest

from horae.core.changes import (
    Absent,
    BackfillUnchanged,
    Change,
    Found,
    Guard,
    JobMoved,
    JobNotCancelled,
    JobUnchanged,
    KeyFree,
    LetterOpen,
    NodeUnchanged,
    QueueUnchanged,
    RequestNew,
    RunLive,
    RunUnchanged,
    StopRequested,
)
from horae.core.model import JobId, JobStatus, NodeId, Reason, RunId, State
from horae.core.records import IdempotencyRecord, KeyHolder, QueueSettings

NOW = datetime(2026, 3, 1, tzinfo=UTC)
JOB, RUN, NODE = JobId("a" * 32), RunId("b" * 32), NodeId("c" * 32)
JOB_AS_IT_IS = JobUnchanged(JOB, 1, NOW, JobStatus.SCHEDULED)
RUN_AS_IT_IS = RunUnchanged(RUN, State.CLAIMED, 1, 1, None)
HOLDER = KeyHolder(owner="ada", key="k", job_id=JOB)
RECORD = IdempotencyRecord(owner="ada", key="r", fingerprint="f", answer="a", created_at=NOW)


def found() -> Found:
    return Found(
        jobs={JOB: JOB_AS_IT_IS},
        runs={RUN: RUN_AS_IT_IS},
        letters={RunId("d" * 32)},
        backfills={"e" * 32: NOW},
        records={HOLDER.place: HOLDER, RECORD.place: RECORD},
        queues={"mail": QueueSettings(queue="mail", concurrency=3)},
        nodes={NODE: NOW},
        cancelled={JobId("f" * 32)},
    )


HOLDS: list[Guard] = [
    JOB_AS_IT_IS,
    RUN_AS_IT_IS,
    RunLive(RUN),
    Absent(JobId("0" * 32)),
    LetterOpen(RunId("d" * 32)),
    BackfillUnchanged("e" * 32, NOW),
    KeyFree(HOLDER),
    KeyFree(KeyHolder(owner="bob", key="k", job_id=JOB)),
    RequestNew(IdempotencyRecord(owner="ada", key="new", fingerprint="f", answer="a", created_at=NOW)),
    QueueUnchanged(QueueSettings(queue="mail", concurrency=3)),
    QueueUnchanged(QueueSettings(queue="other")),
    NodeUnchanged(NODE, NOW),
    JobNotCancelled(JOB),
]
FAILS: list[Guard] = [
    JobUnchanged(JOB, 2, NOW, JobStatus.SCHEDULED),
    JobUnchanged(JOB, 1, None, JobStatus.SCHEDULED),
    JobUnchanged(JOB, 1, NOW, JobStatus.PAUSED),
    JobUnchanged(JobId("0" * 32), 1, NOW, JobStatus.SCHEDULED),
    RunUnchanged(RUN, State.RUNNING, 1, 1, None),
    RunUnchanged(RUN, State.CLAIMED, 2, 1, None),
    RunUnchanged(RUN, State.CLAIMED, 1, 2, None),
    RunUnchanged(RUN, State.CLAIMED, 1, 1, Reason.CANCELLED),
    RunLive(RunId("0" * 32)),
    Absent(JOB),
    Absent(RUN),
    LetterOpen(RUN),
    BackfillUnchanged("e" * 32, NOW + timedelta(seconds=1)),
    KeyFree(KeyHolder(owner="ada", key="k", job_id=JobId("0" * 32))),
    RequestNew(RECORD),
    QueueUnchanged(QueueSettings(queue="mail")),
    NodeUnchanged(NODE, NOW - timedelta(seconds=1)),
    JobNotCancelled(JobId("f" * 32)),
]


@pytest.mark.parametrize("guard", HOLDS, ids=str)
def test_a_guard_that_holds_admits_the_change(guard: Guard) -> None:
    assert found().admit(Change(guards=(guard,))) is None


@pytest.mark.parametrize("guard", FAILS, ids=str)
def test_a_guard_that_does_not_hold_is_told(guard: Guard) -> None:
    refusal = found().admit(Change(guards=(RunLive(RUN), guard)))
    assert refusal is not None
    assert refusal.guard == guard


def test_a_refusal_says_who_holds_the_key_and_what_was_answered() -> None:
    state = found()
    taken = state.admit(Change(guards=(KeyFree(KeyHolder(owner="ada", key="k", job_id=JobId("0" * 32))),)))
    again = state.admit(Change(guards=(RequestNew(RECORD),)))
    assert (taken and taken.found, again and again.found) == (HOLDER, RECORD)


def test_of_two_changes_of_one_job_in_a_batch_the_first_wins() -> None:
    state = found()
    moved = Change(guards=(JOB_AS_IT_IS,), puts=(JobMoved(JOB, None, None, JobStatus.FINISHED),))
    assert state.admit(moved) is None
    assert state.admit(moved) is not None


def test_what_a_refused_change_would_have_written_does_not_count() -> None:
    state = found()
    new = KeyHolder(owner="ada", key="new", job_id=JOB)
    refused = Change(guards=(KeyFree(new), Absent(JobId("1" * 32)), RunLive(RunId("0" * 32))), puts=(new,))
    assert state.admit(refused) is not None
    other = KeyHolder(owner="ada", key="new", job_id=JobId("2" * 32))
    assert state.admit(Change(guards=(KeyFree(other), Absent(JobId("1" * 32))), puts=(other,))) is None


def test_a_stop_of_an_earlier_change_is_seen_by_a_later_one() -> None:
    state = found()
    assert state.admit(Change(guards=(RUN_AS_IT_IS,), puts=(StopRequested(RUN, Reason.PAUSED),))) is None
    assert state.admit(Change(guards=(RUN_AS_IT_IS,), puts=(StopRequested(RUN, Reason.CANCELLED),))) is not None
