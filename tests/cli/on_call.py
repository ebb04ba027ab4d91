"""An evening on call, by the command line alone: a shop whose receipts fail, and what its operator types.

`test_on_call.py` plays it, and `docs/make_on_call.py` writes its screens into docs/operations/on-call.md.
"""

import json
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from pathlib import Path
from typing import Any

from horae.client import Client
from tests.docs.pages import ROOT
from tests.live import Live, environment, live_horae

PAGE = ROOT / "docs/operations/on-call.md"
COLUMNS = 80
FAILING, WAITING = 7, 1000
PART = re.compile(r"(<!-- screen: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)

SHOP = """
from horae import Horae, Run

app = Horae()
TEMPLATES = ("newsletter", "receipt")


@app.task("mail.receipt", queue="mail", max_retries=0)
async def receipt(run: Run, order: int, template: str) -> str:
    run.log.info("receipt of order %s, template %s", order, template)
    if template not in TEMPLATES:
        raise LookupError(f"there is no template {template!r}")
    return f"sent the receipt of order {order}"


@app.task("mail.newsletter", queue="mail")
async def newsletter(to: str) -> None: ...
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What the operator types; names in braces stand for what is known by then."""

    name: str
    types: str


EVENING = (
    Step(name="failed", types="horae runs ls --status failed"),
    Step(name="groups", types="horae dlq ls --group"),
    Step(name="letter", types="horae dlq show {letter}"),
    Step(name="log", types="horae runs logs {letter} | grep INFO"),
    Step(name="pause", types="horae queues pause mail"),
    Step(name="why", types="horae runs why {waiting}"),
    Step(name="count", types="horae jobs cancel --label campaign=spring --dry-run"),
    Step(name="cancel", types="horae jobs cancel --label campaign=spring --yes"),
    Step(name="resume", types="horae queues resume mail"),
    Step(name="mend", types="horae runs retry {letter} \\\n  --param template=receipt --follow"),
    Step(
        name="alike",
        types="horae dlq requeue --task mail.receipt --error LookupError \\\n  --param template=receipt --yes",
    ),
    Step(name="after", types="horae dlq ls --group"),
    Step(name="top", types="horae top --once"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """What the operator typed, and saw."""

    name: str
    typed: str
    shown: str
    code: int

    @property
    def text(self) -> str:
        return f"$ {self.typed}\n{self.shown}"


@contextmanager
def shop(folder: Path, **settings: str) -> Iterator[Live]:
    """A node of the shop, after receipts failed and with a campaign to come."""
    (folder / "shop.py").write_text(SHOP)
    subprocess.run(
        ["horae", "db", "migrate"], cwd=folder, env=environment() | settings, check=True, capture_output=True
    )
    with live_horae(folder, "serve", "--app", "shop:app", **settings) as live:
        (folder / "jobs.ndjson").write_text("".join(f"{json.dumps(job)}\n" for job in _jobs()))
        assert typed(live, "horae jobs create --file jobs.ndjson").returncode == 0
        _wait_for(lambda: sum(group["count"] for group in asked(live, "/v1/dead-letters", group="error")) == FAILING)
        yield live


def _jobs() -> Iterator[dict[str, Any]]:
    """Receipts that will fail, and a campaign for later."""
    for number in range(FAILING):
        yield {"task": "mail.receipt", "params": {"order": 4000 + number, "template": "reciept"}}
    later = (datetime.now(UTC) + timedelta(hours=2)).isoformat()
    for number in range(WAITING):
        params = {"to": f"reader-{number}@example.com"}
        yield {"task": "mail.newsletter", "schedule": later, "params": params, "labels": {"campaign": "spring"}}


def play(live: Live) -> dict[str, Screen]:
    """Type the commands of the evening one after another, and return their screens by name."""
    known = {
        "letter": asked(live, "/v1/dead-letters", limit=1)[0]["id"],
        "waiting": asked(live, "/v1/runs", status="scheduled", limit=1)[0]["id"],
    }
    screens: dict[str, Screen] = {}
    for step in EVENING:
        line = step.types.format(**known)
        done = typed(live, line)
        screens[step.name] = Screen(name=step.name, typed=line, shown=done.stdout, code=done.returncode)
    return screens


def typed(live: Live, line: str) -> "subprocess.CompletedProcess[str]":
    """A line in a terminal of 80 columns; both streams come out in one."""
    seen: Mapping[str, str] = live.environment | {"COLUMNS": str(COLUMNS), "TZ": "UTC"}
    return subprocess.run(
        ["bash", "-c", line],
        cwd=live.folder,
        env=seen,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
    )


def asked(live: Live, path: str, **query: Any) -> Any:
    """The items of a list; without a command, because nobody types it on this evening."""
    with Client(live.url) as client:
        return client.request("GET", path, query=query)["items"]


def _wait_for(true: Any) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline, "the receipts have not failed within 30 s"
        time.sleep(0.1)


# --- the page


def filled(page: str, screens: Mapping[str, Screen]) -> str:
    """Return the page with the screens of this evening."""
    return PART.sub(lambda part: f"{part[1]}\n```\n{screens[part[2]].text.rstrip()}\n```\n\n{part[3]}", page)


def agree(page: str, again: str) -> bool:
    """Whether two pages differ only in what differs from evening to evening, and in whether a last column had room."""
    pairs = list(zip_longest(_comparable(page).splitlines(), _comparable(again).splitlines(), fillvalue="\0"))
    return all(one.startswith(other) or other.startswith(one) for one, other in pairs)


def _comparable(text: str) -> str:
    """Return a page without ids, times, texts that were cut, and the widths of columns."""
    for pattern, instead in (
        (r"(?<=  )(?:\S| (?! ))*…", "CUT"),
        (r"\b(run|job|node)_[0-9a-f]{8,32}\b", r"\1_ID"),
        (r"\b[0-9a-f]{32}\b", "ID"),
        (r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?(\.\d+)?(Z|\+00:00)?", "TIME"),
        (r"\b[A-Z][a-z]{2} \d\d [A-Z][a-z]{2} \d\d:\d\d\b", "TIME"),
        (r"\b\d\d:\d\d:\d\d(\.\d+)?\b", "TIME"),
        (r"\b(in )?\d+(\.\d+)? (ms|s|min|h)( ago)?\b|\bnow\b", "SPAN"),
        (r"http://127\.0\.0\.1:\d+", "ADDRESS"),
        (r"(?m)^runs  .*$", "RATES"),  # of `horae top`
        (r"(?m)^run_ID (queued|running|waits: .*)\n", ""),  # as quick as it was looked at
        (r"[ \t]+", " "),
    ):
        text = re.sub(pattern, instead, text)
    return text
