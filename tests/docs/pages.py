"""The pages of the documentation, and the fenced blocks in them.

The note in parentheses after the language of a block says how to run it:

    sh, python, sql, js           run, in the order of the page; a Python block may `await`
    sh (another terminal)         each line is a command that keeps running until the end of the page
    sh (first terminal)           starts Horae, which the test has done already; not run
    text                          the output of the block before it; … stands for anything
    json (POST /v1/jobs)          sent as a body, and accepted
    json (answer)                 part of the last response or output; "…" is anything
    python (tasks.py)             written to a file of that name, for the blocks that follow
    nginx (not run: why)          cannot be run in a test; counted in `test_snippets.py`
"""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
FENCE = re.compile(r"```(?P<language>\w*)(?: \((?P<note>[^)]+)\))?")
PICTURES = ("", "mermaid")  # diagrams; nothing to run


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block with its page and line, its language, the note after it, and its text."""

    page: str
    line: int
    language: str
    note: str | None
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def is_file(self) -> bool:
        return self.note is not None and re.fullmatch(r"[\w./-]+\.\w+", self.note) is not None

    @property
    def is_run(self) -> bool:
        """Whether a test runs it; a file is used by a later block."""
        return self.language not in PICTURES and not (self.note or "").startswith(("not run", "first terminal"))


def blocks_of(page: Path) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    found: list[Block] = []
    opened: tuple[int, str, str | None] | None = None
    lines: list[str] = []
    for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
        if opened is None and line.startswith("```"):
            fence = FENCE.fullmatch(line)
            assert fence is not None, f"{name_of(page)}:{number}: unknown kind of fence: {line}"
            opened, lines = (number, fence["language"], fence["note"]), []
        elif opened is not None and line == "```":
            start, language, note = opened
            text = "".join(f"{each}\n" for each in lines)
            found.append(Block(page=name_of(page), line=start, language=language, note=note, text=text))
            opened = None
        else:
            lines.append(line)
    assert opened is None, f"{name_of(page)}:{opened}: this fence is never closed"
    return found


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))
