"""Links of the documentation work, its diagram, ports and settings match the code, and the README's tour runs.

`tests/docs` runs the snippets of all other pages.
"""

import inspect
import re
import time
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

import pytest

from horae.config import Settings
from horae.core.lifecycle import diagram
from horae.ports.blobs import Blobs
from horae.ports.database import Database
from horae.ports.events import EventLog
from horae.ports.queue import Queue
from horae.ports.reader import Reader
from horae.ports.store import Store
from tests.docs.pages import PAGES, ROOT, blocks_of, name_of
from tests.docs.stage import opened_stage

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
TOUR_SECONDS = 300.0  # what the README promises


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    targets = [link for link in LINK.findall(page.read_text("utf-8")) if "://" not in link]
    for target in targets:
        path, _, anchor = target.partition("#")
        place = page if not path else (page.parent / path)
        assert place.exists(), target
        assert not anchor or anchor in _anchors(place), target


def _anchors(page: Path) -> list[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles]


def test_the_diagram_of_a_runs_life_is_drawn_from_the_code() -> None:
    [drawn] = [block.text for block in blocks_of(ROOT / "docs/internals/concepts.md") if block.language == "mermaid"]
    assert drawn.rstrip() == diagram()


def test_every_setting_is_documented() -> None:
    page = (ROOT / "docs/reference/configuration.md").read_text("utf-8")
    names = [f"HORAE_{setting.name.upper()}" for setting in fields(Settings) if setting.name != "sources"]
    assert [name for name in names if name not in page] == []


PORTS: Mapping[str, type] = {port.__name__: port for port in (Store, Reader, EventLog, Database, Queue, Blobs)}
MOST_VERBS = 40  # of a store with all that belongs to it but blobs: what a new adapter has to implement


def _verbs_of(port: type) -> list[str]:
    return [name for name, member in vars(port).items() if inspect.isfunction(member) and not name.startswith("_")]


@pytest.mark.parametrize("name", PORTS)
def test_every_verb_of_a_port_is_documented_in_its_order(name: str) -> None:
    page = (ROOT / "docs/internals/architecture.md").read_text("utf-8")
    section = page.partition("\n## The ports\n")[2].partition("\n## ")[0]
    [table] = re.findall(rf"^\| `{name}` \|.*\n\|---\|---\|\n((?:\|.*\n)+)", section, re.MULTILINE)
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == _verbs_of(PORTS[name])


def test_a_store_has_few_verbs() -> None:
    assert sum(len(_verbs_of(port)) for name, port in PORTS.items() if name not in ("Queue", "Blobs")) <= MOST_VERBS


def test_the_tour_of_the_readme_runs_as_printed(tmp_path: Path) -> None:
    """From nothing to a typed task, a schedule in code, a result and a passing test, within five minutes."""
    began = time.monotonic()
    with opened_stage(tmp_path) as stage:
        for block in blocks_of(ROOT / "README.md"):
            stage.play(block)
    assert time.monotonic() - began < TOUR_SECONDS
