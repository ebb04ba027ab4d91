"""The pages of the documentation, and the fenced blocks in them.

What stands behind the language of a block, in parentheses, says what to do with it:

    sh, python, sql, js           run, in the order of the page; a Python block may `await`
    sh (another terminal)         each line is a command that stays until the end of the page
    text                          what the block before it printed; … stands for anything
    json (POST /v1/jobs)          sent as a body, and not refused
    json (answer)                 part of what the server answered last, or of what was printed; "…" is anything
    python (tasks.py)             a file of that name, for the blocks that follow
    ini (not run: why)            nothing here can run it; counted in `test_snippets.py`
"""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
FENCE = re.compile(r"```(?P<language>\w*)(?: \((?P<note>[^)]+)\))?")
PICTURES = ("", "mermaid")  # drawn with characters, and nothing to run


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block: where it stands, its language, the note behind it, and its text."""

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
        """Whether somebody runs it; a file is run by a later block."""
        return self.language not in PICTURES and not (self.note or "").startswith(("not run", "first terminal"))


def blocks_of(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    found: list[Block] = []
    opened: tuple[int, str, str | None] | None = None
    lines: list[str] = []
    for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
        if opened is None and line.startswith("```"):
            fence = FENCE.fullmatch(line)
            assert fence is not None, f"{name_of(page)}:{number}: a fence that nobody understands: {line}"
            opened, lines = (number, fence["language"], fence["note"]), []
        elif opened is not None and line == "```":
            start, language, note = opened
            text = "".join(f"{each}\n" for each in lines)
            found.append(Block(page=name_of(page), line=start, language=language, note=note, text=text))
            opened = None
        else:
            lines.append(line)
    assert opened is None, f"{name_of(page)}:{opened}: a fence that is never closed"
    return found


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))
