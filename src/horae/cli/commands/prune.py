"""`horae jobs prune`: make the store hold the schedules that an application declares, and no others of it."""

import asyncio
from typing import Annotated

from cyclopts import Parameter

from horae.cli.arguments import Flag
from horae.cli.output import Column, Output, print_json, print_note, print_table, status

COLUMNS = (Column(title="KEY", least=16), Column(title="OUTCOME"), Column(title="JOB"), Column(title="WHY", least=20))


def prune(
    *,
    app: Annotated[str, Parameter(help="Your tasks, as MODULE:APP.")],
    store: Annotated[str | None, Parameter(help="The store's address (HORAE_STORE).")] = None,
    dry_run: Annotated[bool, Flag, Parameter(help="Only tell what would be done.")] = False,
    output: Output = "table",
) -> int:
    """Cancel the schedules that --app once declared in code and no longer does; works on the store, not over REST.

    What it still declares holds from now on, also where another version of the code was newer: so a rollback is made to
    stay. The exit code is 1 when a schedule was refused.
    """
    from horae.config import load_settings
    from horae.runtime.launch import prune_schedules  # late: it imports everything

    verdicts = asyncio.run(prune_schedules(app, load_settings({"store": store}), dry_run=dry_run))
    if output == "json":
        told = [{"key": v.key, "outcome": v.outcome, "job_id": v.job_id, "detail": v.detail or None} for v in verdicts]
        print_json({"items": told, "dry_run": dry_run})
    else:
        rows = [(v.key, status(v.outcome), v.job_id or "", v.detail) for v in verdicts]
        print_table(COLUMNS, rows, empty="the application declares no schedule, and never did")
        if dry_run:
            print_note("nothing was changed; leave --dry-run away to do it")
    return 1 if any(v.outcome == "refused" for v in verdicts) else 0
