"""`horae jobs backfill`: run slots of the past, and see how far it is."""

import time
from datetime import UTC, datetime
from typing import Annotated, Any

from cyclopts import Parameter

from horae.cli.arguments import Flag
from horae.cli.client import Client, Document
from horae.cli.output import Output, print_fields, print_json, print_note
from horae.cli.progress import progress_bar

FINAL = ("succeeded", "failed", "cancelled", "skipped")
POLL_SECONDS = 1.0


def backfill(
    job: Annotated[str, Parameter(help="Its id (job_…), or its key or name if only one job has that.")],
    /,
    *,
    start: Annotated[str, Parameter(help="The first slot's timestamp, or one before it.")],
    end: Annotated[str, Parameter(help="The last slot's timestamp, or one after it; not in the future.")],
    follow: Annotated[bool, Flag, Parameter(name=["--follow", "-f"], help="Wait until every run has ended.")] = False,
    output: Output = "table",
) -> int:
    """Run the slots of a job from --start to --end once more. With --follow the exit code is 1 if a run failed."""
    with Client() as client:
        begun: Document = client.create(f"/v1/jobs/{client.job_id(job)}/backfill", {"start": start, "end": end})
        if not follow:
            return _tell(begun, None, output)
        try:
            return _tell(begun, _followed(client, begun), output)
        except KeyboardInterrupt:
            print_note("the backfill goes on")
            raise


def _followed(client: Client, begun: Document) -> dict[str, int]:
    """How many runs ended in which way, once all have."""
    ended: dict[str, str] = {}
    with progress_bar("backfilling") as advance:
        while len(ended) < begun["runs"]:
            ended |= {run["id"]: run["status"] for run in _runs(client, begun) if run["status"] in FINAL}
            advance(len(ended), begun["runs"])
            if len(ended) < begun["runs"]:
                time.sleep(POLL_SECONDS)
    statuses = list(ended.values())
    return {status: statuses.count(status) for status in FINAL if status in statuses}


def _runs(client: Client, begun: Document) -> list[Any]:
    """The runs of this backfill that exist by now: those of its job that are younger, which their ids tell."""
    found: list[Any] = []
    cursor: str | None = None
    while True:
        page = client.get(
            "/v1/runs", job_id=begun["job_id"], start_time=_asked_at(begun).isoformat(), limit=1000, cursor=cursor
        )
        found += [run for run in page["items"] if run["trigger"] == "backfill" and _number(run) > _number(begun)]
        cursor = page["next_cursor"]
        if cursor is None:
            return found


def _asked_at(begun: Document) -> datetime:
    """When it began: an id begins with its milliseconds."""
    return datetime.fromtimestamp(int(_number(begun)[:12], 16) / 1000, UTC)


def _number(thing: Document) -> str:
    return str(thing["id"]).rpartition("_")[2]


def _tell(begun: Document, ended: dict[str, int] | None, output: str) -> int:
    if output == "json":
        print_json(begun if ended is None else {**begun, "ended": ended})
    else:
        told = None if ended is None else ", ".join(f"{count} {status}" for status, count in ended.items()) or "none"
        print_fields({"backfill": begun["id"], "runs": str(begun["runs"]), "ended": told})
    return 1 if ended is not None and ended.get("failed") else 0
