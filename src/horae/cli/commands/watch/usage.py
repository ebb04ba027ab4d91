"""`horae usage`: show how much an owner keeps, and its limits."""

from typing import Annotated, Any

from cyclopts import Parameter

from horae.cli.client import CommandClient
from horae.cli.output import NOTHING, Column, Output, print_json, print_table

COLUMNS = (
    Column(title="RESOURCE"),
    Column(title="USED", right=True),
    Column(title="LIMIT", right=True),
)
RESOURCES = {  # as the server calls them, and people do
    "waiting": "waiting jobs",
    "recurring": "recurring jobs",
    "queues": "queues",
    "stored_bytes": "stored bytes",
}


def usage(
    *,
    owner: Annotated[str | None, Parameter(help="Whose; another than your own needs the scope admin.")] = None,
    output: Output = "table",
) -> None:
    """Show how much an owner keeps, and how much it may."""
    with CommandClient() as client:
        found = client.get("/v1/usage", owner=owner)
    if output == "json":
        print_json(found)
    else:
        print_table(COLUMNS, [_row(words, found[name]) for name, words in RESOURCES.items()], empty="")


def _row(words: str, resource: dict[str, Any]) -> list[str]:
    limit = resource["limit"]
    return [words, f"{resource['used']:,}", NOTHING if limit is None else f"{limit:,}"]
