"""`horae jobs backfill`: run the past slots of a job, and follow the progress."""

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Annotated

from cyclopts import Parameter

from horae.cli.arguments import Flag, JobName, Owner
from horae.cli.client import CommandClient, Document
from horae.cli.following import FINAL, Steps
from horae.cli.output import Output, print_note, print_result
from horae.cli.progress import progress_bar
from horae.cli.times import past
from horae.client import Run

POLL_SECONDS = 1.0
MOST = 5  # failed runs whose errors are told


def backfill(
    job: JobName,
    /,
    *,
    start: Annotated[str, Parameter(help="Run the slots from this time on: 2d (ago), 2026-01-05, a timestamp.")],
    end: Annotated[str, Parameter(help="Run the slots up to this time, which is not in the future; now is one.")],
    follow: Annotated[bool, Flag, Parameter(name=["--follow", "-f"], help="Wait until every run has ended.")] = False,
    owner: Owner = None,
    output: Output = "table",
) -> int:
    """Run the slots of a job from --start to --end again. With --follow the exit code is 1 if a run failed."""
    slots = {"start": past(start, "--start"), "end": past(end, "--end")}
    with CommandClient() as client:
        started: Document = client.create(f"/v1/jobs/{client.job_id(job, owner)}/backfill", slots)
        if not follow:
            return _report(started, None, output)
        try:
            return _report(started, _follow(client, started), output)
        except KeyboardInterrupt:
            print_note("the backfill continues on the server")
            raise


def _follow(client: CommandClient, started: Document) -> dict[str, int]:
    """Wait until all runs have ended, and return how many ended in which status."""
    ended: dict[str, str] = {}
    steps = Steps(client)
    with progress_bar("backfilling") as advance:
        while len(ended) < started["runs"]:
            runs = list(_runs(client, started))
            just_ended = [run for run in runs if run.ended and run.id not in ended]
            _tell_failures(just_ended, told=list(ended.values()).count("failed"))
            ended |= {run.id: run.status for run in just_ended}
            advance(len(ended), started["runs"])
            if len(ended) < started["runs"]:
                if not just_ended and (waiting := [run for run in runs if not run.ended and run.status != "running"]):
                    steps.explain(waiting[-1].id)  # the one that is due first
                time.sleep(POLL_SECONDS)
    statuses = list(ended.values())
    return {status: statuses.count(status) for status in FINAL if status in statuses}


def _tell_failures(runs: Sequence[Run], *, told: int) -> None:
    """Print the errors of the first few runs that failed."""
    failed = [run for run in runs if run.status == "failed" and run.error is not None]
    for run in failed[: max(MOST - told, 0)]:
        assert run.error is not None
        print_note(f"{run.id} failed: {run.error.type}: {run.error.message}")


def _runs(client: CommandClient, started: Document) -> Iterator[Run]:
    """Yield the runs of this backfill so far: backfilled runs of its job whose ids are younger than its own."""
    for run in client.runs.list(job_id=started["job_id"], start_time=_started_at(started), limit=1000):
        if run.trigger == "backfill" and _number(run.id) > _number(started["id"]):
            yield run


def _started_at(started: Document) -> datetime:
    """Return when the backfill started; an id begins with its milliseconds."""
    return datetime.fromtimestamp(int(_number(started["id"])[:12], 16) / 1000, UTC)


def _number(name: str) -> str:
    return name.rpartition("_")[2]


def _report(started: Document, ended: dict[str, int] | None, output: str) -> int:
    document = started if ended is None else {**started, "ended": ended}
    counts = None if ended is None else ", ".join(f"{count} {status}" for status, count in ended.items()) or "none"
    print_result(document, {"backfill": started["id"], "runs": str(started["runs"]), "ended": counts}, output)
    return 1 if ended is not None and ended.get("failed") else 0
