"""`horae jobs backfill`: run the past slots of a job, and follow the progress."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated

from cyclopts import Parameter

from horae.cli.arguments import Flag, JobName
from horae.cli.client import CommandClient, Document
from horae.cli.commands.runs import FINAL
from horae.cli.output import Output, print_note, print_result
from horae.cli.progress import progress_bar
from horae.client import Run

POLL_SECONDS = 1.0


def backfill(
    job: JobName,
    /,
    *,
    start: Annotated[str, Parameter(help="Run the slots from this timestamp on.")],
    end: Annotated[str, Parameter(help="Run the slots up to this timestamp, which is not in the future.")],
    follow: Annotated[bool, Flag, Parameter(name=["--follow", "-f"], help="Wait until every run has ended.")] = False,
    output: Output = "table",
) -> int:
    """Run the slots of a job from --start to --end again. With --follow the exit code is 1 if a run failed."""
    with CommandClient() as client:
        started: Document = client.create(f"/v1/jobs/{client.job_id(job)}/backfill", {"start": start, "end": end})
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
    with progress_bar("backfilling") as advance:
        while len(ended) < started["runs"]:
            ended |= {run.id: run.status for run in _runs(client, started) if run.ended}
            advance(len(ended), started["runs"])
            if len(ended) < started["runs"]:
                time.sleep(POLL_SECONDS)
    statuses = list(ended.values())
    return {status: statuses.count(status) for status in FINAL if status in statuses}


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
