"""I12: calls with the same idempotency key take effect once."""

from collections import defaultdict
from collections.abc import Iterator

from horae.proof.checking.findings import Code, Violation, found
from horae.proof.checking.history.recording import RecordedCall, Recording
from horae.proof.checking.history.records import Action

CREATING = (Action.CREATE, Action.TRIGGER, Action.BACKFILL, Action.REQUEUE)


def judge_idempotency(recording: Recording) -> Iterator[Violation]:
    groups: defaultdict[tuple[str, str], list[RecordedCall]] = defaultdict(list)
    for call in recording.calls:
        if call.invoke.idempotency_key is not None and call.invoke.action in CREATING:
            groups[call.invoke.owner, call.invoke.idempotency_key].append(call)
    for (owner, key), calls in groups.items():
        yield from _judge(f"idempotency key {key!r} of {owner}", calls, recording)


def _judge(which: str, calls: list[RecordedCall], recording: Recording) -> Iterator[Violation]:
    answered = [call for call in calls if call.ok]
    made = sorted({call.ok.job or call.ok.run or "" for call in answered if call.ok})
    if len(made) > 1:
        yield found(Code.IDEMPOTENCY_BROKEN, made[1], f"the {which} created {' and '.join(made)}")
    bodies = [call.invoke.definition for call in answered]
    if any(body != bodies[0] for body in bodies[1:]):
        yield found(Code.IDEMPOTENCY_BROKEN, made[0], f"the {which} was accepted with different bodies")
    labels = {call.invoke.definition.label for call in calls if call.invoke.definition is not None}
    for label in labels:
        requested = recording.requested[label]
        jobs = {run.job for run in requested.runs} | {job.job for job in recording.jobs.values() if job.label == label}
        if len(jobs) > 1:
            detail = f"the {which} created {len(jobs)} jobs: {', '.join(sorted(jobs))}"
            yield found(Code.IDEMPOTENCY_BROKEN, min(jobs), detail)
