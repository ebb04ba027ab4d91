"""The documentation is true: links lead somewhere, the diagram is the code's, and the README's tour runs as printed."""

import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import cast

import httpx2
import pytest
from starlette.routing import Route

from horae.api.app import create_app
from horae.api.context import Services
from horae.cli.app import build
from horae.config import Settings
from horae.core.lifecycle import diagram
from tests.live import Live, live_horae

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```(\w+)(?: \(([^)\n]+)\))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DEV_URL = "http://127.0.0.1:8765"


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block: its language, the note behind it, and its text."""

    language: str
    note: str | None
    text: str


def blocks(page: Path) -> list[Block]:
    return [Block(language=found[1], note=found[2], text=found[3]) for found in FENCE.finditer(page.read_text("utf-8"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
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
    [drawn] = [block.text for block in blocks(ROOT / "docs/concepts.md") if block.language == "mermaid"]
    assert drawn.rstrip() == diagram()


def test_every_command_and_option_is_documented() -> None:
    page = (ROOT / "docs/cli.md").read_text("utf-8")
    for command, options in _commands():
        line = next((line for line in page.splitlines() if f"`horae {command} " in line), "")
        assert line, f"horae {command} is not in docs/cli.md"
        assert [option for option in options if f"{option}" not in page] == []


def _commands() -> Iterator[tuple[str, list[str]]]:
    app = build()
    for name in (name for name in app if not name.startswith("-")):
        group = app[name]
        inner = [item for item in group if not item.startswith("-")]
        for words, command in [(f"{name} {item}", group[item]) for item in inner] or [(name, group)]:
            arguments = command.assemble_argument_collection(parse_docstring=False)
            yield words, [option for item in arguments for option in item.names if option.startswith("--")]


def test_every_setting_is_documented() -> None:
    page = (ROOT / "docs/operations.md").read_text("utf-8")
    names = [f"HORAE_{setting.name.upper()}" for setting in fields(Settings) if setting.name != "sources"]
    assert [name for name in names if name not in page] == []


def test_the_documented_routes_are_those_of_the_api() -> None:
    documented = set(re.findall(r"`(GET|POST|PUT|PATCH|DELETE) ([^\s`?]+)", (ROOT / "docs/rest.md").read_text("utf-8")))
    routes = [route for route in create_app(cast(Services, None)).routes if isinstance(route, Route)]
    offered = {(method, route.path) for route in routes for method in route.methods or () if method != "HEAD"}
    assert documented == offered - {("GET", "/")}


# --- the tour -------------------------------------------------------------------------------------------------------


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    with live_horae(tmp_path, "dev") as live:
        yield live


def test_the_tour_of_the_readme_runs_as_printed(live: Live) -> None:
    tour = blocks(ROOT / "README.md")
    assert [block.language for block in tour if block.note is None] == [
        "sh",
        "text",
        "sh",
        "sh",
        "text",
        "sh",
        "text",
        "python",
        "sh",
        "text",
    ]
    printed = ""
    with ExitStack() as terminals:
        for block in tour:
            match block.language, block.note:
                case "sh", None:
                    printed = _typed(block.text, live)
                case "text", None:
                    _compare(block.text, printed)
                case "python", None:
                    (live.folder / "tasks.py").write_text(block.text)
                case "sh", "third terminal":
                    terminals.enter_context(_another_terminal(block.text, live))


def _typed(commands: str, live: Live) -> str:
    """What the commands print, on both streams, as a user sees it."""
    script = f"set -euo pipefail\n{commands.replace(DEV_URL, live.url)}"
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=live.folder,
        env=live.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, f"{commands}\n{done.stdout}"
    return done.stdout


def _compare(expected: str, printed: str) -> None:
    """Each expected line is printed, in this order; `…` stands for anything."""
    lines = iter(printed.splitlines())
    for line in expected.splitlines():
        pattern = ".*".join(map(re.escape, line.split("…")))
        assert any(re.fullmatch(pattern, candidate) for candidate in lines), f"no line {line!r} in order in:\n{printed}"


@contextmanager
def _another_terminal(command: str, live: Live) -> Iterator[None]:
    """A command that stays, here a worker, until the tasks of `tasks.py` are known."""
    process = subprocess.Popen(["bash", "-c", f"exec {command}"], cwd=live.folder, env=live.environment)
    try:
        deadline = time.monotonic() + 20
        while "tasks.greet" not in {task["name"] for task in httpx2.get(f"{live.url}/v1/tasks").json()["items"]}:
            assert process.poll() is None, f"{command} ended by itself"
            assert time.monotonic() < deadline, "the worker did not register its task"
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(20)
