"""`horae jobs prune`: make the store hold exactly the schedules that an application declares."""

import asyncio
from typing import Annotated

from cyclopts import Parameter

from horae.cli.arguments import Flag, StoreUrl
from horae.cli.output import Column, Output, print_json, print_note, print_table, status

COLUMNS = (Column(title="KEY", least=16), Column(title="OUTCOME"), Column(title="JOB"), Column(title="WHY", least=20))


def prune(
    *,
    app: Annotated[str, Parameter(help="Your tasks, as MODULE:APP.")],
    store: StoreUrl = None,
    dry_run: Annotated[bool, Flag, Parameter(help="Only show what would be done.")] = False,
    output: Output = "table",
) -> int:
    """Cancel the schedules that --app no longer declares in its code; works on the store, not over REST.

    The schedules that it does declare are applied, even if a newer version of the code has declared others: this makes
    a rollback permanent. The exit code is 1 if a schedule was refused.
    """
    from horae.config import load_settings
    from horae.runtime.applications import prune_schedules  # late: it imports everything

    verdicts = asyncio.run(prune_schedules(app, load_settings({"store": store}), dry_run=dry_run))
    if output == "json":
        items = [{"key": v.key, "outcome": v.outcome, "job_id": v.job_id, "detail": v.detail or None} for v in verdicts]
        print_json({"items": items, "dry_run": dry_run})
    else:
        rows = [(v.key, status(v.outcome), v.job_id or "", v.detail) for v in verdicts]
        print_table(COLUMNS, rows, empty="the application declares no schedule, and never has")
        if dry_run:
            print_note("nothing was changed; run it without --dry-run to apply this")
    return 1 if any(v.outcome == "refused" for v in verdicts) else 0
