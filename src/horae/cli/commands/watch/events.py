"""`horae events`: print what happened, and follow what happens."""

from datetime import datetime
from typing import Annotated

import msgspec
from cyclopts import Parameter

from horae.cli.arguments import Flag, Owner
from horae.cli.client import CommandClient, Document
from horae.cli.following import error_words
from horae.cli.output import Output, console, day_time, print_cells, print_json_line
from horae.cli.times import Since, past
from horae.client import Event

DEFAULT_SINCE = "1h"
WIDE = 120  # columns from which on there is room for ids


def events(
    *,
    follow: Annotated[
        bool, Flag, Parameter(name=["--follow", "-f"], help="Go on with what happens, until Ctrl-C.")
    ] = False,
    since: Since = None,
    types: Annotated[str | None, Parameter(help="Only these types, such as run.failed,job.*.")] = None,
    job: Annotated[str | None, Parameter(help="Only those of this job: its id, key or name.")] = None,
    owner: Owner = None,
    output: Output = "table",
) -> None:
    """Print the events of the last hour, or --since a time of the last day; with --follow those to come.

    JSON is one event a line.
    """
    wide = console().width >= WIDE
    begin = None if follow and since is None else datetime.fromisoformat(past(since or DEFAULT_SINCE, "--since"))
    with CommandClient() as client:
        which: Document = {
            "types": [] if types is None else types.split(","),
            "job_id": None if job is None else client.job_id(job, owner),
            "owner": owner,
        }
        for event in client.events(**which, since=begin, follow=follow):
            if output == "json":
                print_json_line(msgspec.to_builtins(event))
            else:
                _print(event, wide=wide)


def _print(event: Event, *, wide: bool) -> None:
    """Print when and what happened, to which job, and what there is to say about it."""
    about = event.run or event.job
    named = "" if about is None else about.name or about.key or about.task
    at = day_time(event.at)
    if wide:
        subject = event.run_id or event.job_id or ""
        print_cells((len(at), 13, 24, 36), [at, event.type, named, subject, _said(event)])
    else:
        print_cells((len(at), 13, 20), [at, event.type, named, _said(event)])


def _said(event: Event) -> str:
    run = event.run
    if run is None:
        return "" if event.job is None else event.job.description
    if run.error is not None:
        return error_words({"type": run.error.type, "message": run.error.message})
    if event.type == "run.progress" and run.progress is not None:
        return f"{run.progress:.0%}"
    return run.reason or ""
