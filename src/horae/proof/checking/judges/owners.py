"""I13: everything belongs to who asked for it, and nobody else is shown it."""

from collections.abc import Iterator

from horae.proof.checking.findings import Code, Violation
from horae.proof.checking.history.recorded import Recording
from horae.proof.checking.history.recording import Action
from horae.proof.checking.wording import found


def judge_owners(recording: Recording) -> Iterator[Violation]:
    owner_of = {run.run: run.owner for run in recording.finals} | {
        job.job: job.owner for job in recording.jobs.values()
    }
    for asked in recording.asked.values():
        for run in asked.runs:
            if run.owner != asked.owner:
                yield found(Code.FOREIGN, run.run, f"{asked.owner} asked for it, and it belongs to {run.owner}")
        if asked.job is not None and asked.job.owner != asked.owner:
            detail = f"{asked.owner} asked for it, and it belongs to {asked.job.owner}"
            yield found(Code.FOREIGN, asked.job.job, detail)
        owner_of |= {call.job: asked.owner for call in asked.creates if call.job is not None}
    for call in recording.calls:
        if not call.ok:
            continue
        caller = call.invoke.owner
        if call.ok.owner is not None and call.ok.owner != caller:
            yield found(Code.FOREIGN, call.run or call.job or call.invoke.call, f"{caller} was shown {call.ok.owner}'s")
        elif call.invoke.action is not Action.CREATE:
            subject = call.invoke.run or call.invoke.job or ""
            if owner_of.get(subject, caller) != caller:
                did = f"the {call.invoke.action} of {caller} was answered"
                yield found(Code.FOREIGN, subject, f"{did}, though it belongs to {owner_of[subject]}")
