"""I12: calls with one idempotency key are one call."""

from collections import defaultdict
from collections.abc import Iterator

from horae.proof.checking.findings import Code, Violation
from horae.proof.checking.history.recorded import Call, Recording
from horae.proof.checking.history.recording import Action
from horae.proof.checking.wording import found

CREATING = (Action.CREATE, Action.TRIGGER, Action.BACKFILL, Action.REQUEUE)


def judge_repeats(recording: Recording) -> Iterator[Violation]:
    groups: defaultdict[tuple[str, str], list[Call]] = defaultdict(list)
    for call in recording.calls:
        if call.invoke.idempotency_key is not None and call.invoke.action in CREATING:
            groups[call.invoke.owner, call.invoke.idempotency_key].append(call)
    for (owner, key), calls in groups.items():
        yield from _judge(f"idempotency key {key!r} of {owner}", calls, recording)


def _judge(which: str, calls: list[Call], recording: Recording) -> Iterator[Violation]:
    answered = [call for call in calls if call.ok]
    made = sorted({call.ok.job or call.ok.run or "" for call in answered if call.ok})
    if len(made) > 1:
        yield found(Code.IDEMPOTENCY_BROKEN, made[1], f"the {which} made {' and '.join(made)}")
    bodies = [call.invoke.definition for call in answered]
    if any(body != bodies[0] for body in bodies[1:]):
        yield found(Code.IDEMPOTENCY_BROKEN, made[0], f"the {which} was taken with different bodies")
    labels = {call.invoke.definition.label for call in calls if call.invoke.definition is not None}
    for label in labels:
        asked = recording.asked[label]
        jobs = {run.job for run in asked.runs} | {job.job for job in recording.jobs.values() if job.label == label}
        if len(jobs) > 1:
            detail = f"the {which} made {len(jobs)} jobs: {', '.join(sorted(jobs))}"
            yield found(Code.IDEMPOTENCY_BROKEN, min(jobs), detail)
