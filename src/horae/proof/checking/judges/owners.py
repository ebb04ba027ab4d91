"""I13: jobs and runs belong to the owner who requested them, and no other owner is shown them."""

from collections.abc import Iterator

from horae.proof.checking.findings import Code, Violation, found
from horae.proof.checking.history.recording import Recording
from horae.proof.checking.history.records import Action


def judge_owners(recording: Recording) -> Iterator[Violation]:
    owner_of = {run.run: run.owner for run in recording.final_runs} | {
        job.job: job.owner for job in recording.jobs.values()
    }
    for requested in recording.requested.values():
        for run in requested.runs:
            if run.owner != requested.owner:
                yield found(Code.FOREIGN, run.run, f"{requested.owner} requested it, but it belongs to {run.owner}")
        if requested.job is not None and requested.job.owner != requested.owner:
            detail = f"{requested.owner} requested it, but it belongs to {requested.job.owner}"
            yield found(Code.FOREIGN, requested.job.job, detail)
        owner_of |= {call.job: requested.owner for call in requested.create_calls if call.job is not None}
    for call in recording.calls:
        if not call.ok:
            continue
        caller = call.invoke.owner
        if call.ok.owner is not None and call.ok.owner != caller:
            subject = call.run or call.job or call.invoke.call
            yield found(Code.FOREIGN, subject, f"{caller} was shown data of {call.ok.owner}")
        elif call.invoke.action is not Action.CREATE:
            subject = call.invoke.run or call.invoke.job or ""
            if owner_of.get(subject, caller) != caller:
                detail = f"the {call.invoke.action} by {caller} succeeded, but it belongs to {owner_of[subject]}"
                yield found(Code.FOREIGN, subject, detail)
