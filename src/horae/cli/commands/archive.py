"""`horae archive`: list what is archived, show an archived run, and restore runs."""

from datetime import date
from typing import Annotated

from cyclopts import App, Parameter

from horae.cli.client import CommandClient
from horae.cli.commands.runs import RunName
from horae.cli.commands.runs import show as show_run
from horae.cli.output import Column, Output, print_json, print_result, print_table
from horae.core.errors import Malformed

app = App(name="archive", help="List the days in the archive, show an archived run, restore runs.")

COLUMNS = (
    Column(title="DAY"),
    Column(title="RUNS", right=True),
    Column(title="MB", right=True),
    Column(title="PARTS", right=True),
)


@app.command(sort_key=0)
def ls(
    *,
    limit: Annotated[int, Parameter(help="How many days, the latest first.")] = 31,
    output: Output = "table",
) -> None:
    """List the days that are archived; needs the scope admin."""
    with CommandClient() as client:
        page = client.get("/v1/archive", limit=limit)
    if output == "json":
        print_json(page)
        return
    rows = [
        [day["day"], f"{day['runs']:,}", f"{day['bytes'] / 1_000_000:,.1f}", f"{day['parts']:,}"]
        for day in page["items"]
    ]
    print_table(COLUMNS, rows, empty="nothing is archived yet")


@app.command(sort_key=1)
def show(run: RunName, /, *, output: Output = "table") -> None:
    """Show a run, whether the store or the archive has it."""
    show_run(run, output=output)


@app.command(sort_key=2)
def restore(
    *runs: Annotated[str, Parameter(help="Ids of runs (run_…).")],
    day: Annotated[str | None, Parameter(help="Restore all runs that ended on this day (UTC): 2026-01-31.")] = None,
    output: Output = "table",
) -> None:
    """Restore runs into the history of the store, where they stay as long as history is kept."""
    if bool(runs) == (day is not None):
        raise Malformed("give either the ids of runs or --day")
    which = _date(day) if day is not None else None
    with CommandClient() as client:
        done = client.archive.restore(which or [client.run_id(run) for run in runs])
    document = {"restored": done.restored, "missing": done.missing}
    restored = f"{done.restored:,} {'run' if done.restored == 1 else 'runs'}"
    print_result(document, {"restored": restored, "missing": ", ".join(done.missing) or None}, output)


def _date(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as exc:
        raise Malformed(f"{text!r} is no day; write it like 2026-01-31") from exc
