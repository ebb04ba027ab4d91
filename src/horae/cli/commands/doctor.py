"""`horae doctor`: show every setting with its source, and check the set-up."""

import asyncio
from typing import TYPE_CHECKING

from rich.text import Text

from horae.cli.arguments import StoreUrl
from horae.cli.output import Column, Output, print_json, print_table, print_text

if TYPE_CHECKING:
    from horae.config import Settings
    from horae.runtime.doctor import Finding

SETTINGS = (Column(title="SETTING"), Column(title="VALUE", least=12), Column(title="FROM", rank=1))
FINDINGS = (Column(title="CHECK"), Column(title="", least=4), Column(title="FINDING", least=20))
MARKS = {"ok": ("ok", "green"), "warning": ("look", "yellow"), "bad": ("bad", "red")}


def doctor(
    *,
    store: StoreUrl = None,
    output: Output = "table",
) -> int:
    """Show each setting and where it came from, and check the store, the nodes, the queues and the server.

    Nothing is changed. The exit code is 1 if something is bad: also if no worker is alive, or if the server has another
    store than these settings name. Warnings do not count.
    """
    from horae.config import load_settings, shown_settings

    settings = load_settings({"store": store})
    findings = asyncio.run(_findings(settings))
    if output == "json":
        settings_shown = [
            {"setting": one.variable, "value": one.value, "source": one.source} for one in shown_settings(settings)
        ]
        found = [{"check": one.subject, "level": one.level, "detail": one.detail} for one in findings]
        print_json({"settings": settings_shown, "findings": found})
    else:
        rows = [(one.variable, one.value, one.source) for one in shown_settings(settings)]
        print_table(SETTINGS, rows, empty="")
        print_text()
        print_table(FINDINGS, map(_row, findings), empty="")
    return 1 if any(one.level == "bad" for one in findings) else 0


async def _findings(settings: "Settings") -> list["Finding"]:
    from horae.runtime.doctor import examine, examine_server  # late: it imports the adapters

    found = [finding async for finding in examine(settings)]
    return [*found, await examine_server(settings)]


def _row(finding: "Finding") -> tuple[str, Text, str]:
    word, style = MARKS[finding.level]
    return finding.subject, Text(word, style=style), finding.detail
