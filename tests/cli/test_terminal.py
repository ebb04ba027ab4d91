"""Nothing that others wrote controls the terminal of whoever reads it."""

import ast
import io
import json
import unicodedata
from pathlib import Path

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

import horae.cli
from horae import log_setup
from horae.cli import output
from horae.cli.app import run
from horae.core.errors import Fault, Invalid
from horae.core.wording.printable import printable, printable_json

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31mred\x9b0m\u202eabc\u2066\x7f\r\x08"
COLUMNS = (output.Column(title="NAME"), output.Column(title="ERROR"))


def is_harmless(text: str) -> bool:
    bidi = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
    return all(
        char in "\n\t" or (unicodedata.category(char) != "Cc" and unicodedata.bidirectional(char) not in bidi)
        for char in text
    )


@given(st.text(st.characters(codec=None)))
def test_what_is_printable_has_no_controls_and_is_told_apart(text: str) -> None:
    assert is_harmless(printable(text))
    printable(text).encode()
    whole = json.dumps({"value": text}, ensure_ascii=False)
    assert is_harmless(printable_json(whole))
    assert json.loads(printable_json(whole)) == {"value": text}


def test_common_text_is_shown_as_it_is() -> None:
    text = "Grüße, 日本語 👍\n\tعربي"
    assert printable(text) == printable_json(text) == text
    assert printable("\x1b[31m\x9b\u202e") == r"\x1b[31m\x9b\u202e"


@pytest.mark.parametrize("columns", ["80", None])
def test_no_way_to_print_lets_controls_through(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str | None
) -> None:
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    output.print_table(COLUMNS, [(EVIL, Text(EVIL, style="red")), ("a\nb", "c\td")], empty=EVIL)
    output.print_table(COLUMNS, [], empty="none")
    output.print_fields({"name": EVIL, "status": output.status(EVIL), EVIL: "x"})
    output.print_lines([EVIL])
    output.print_text(EVIL)
    output.print_note(EVIL)
    output.print_json({EVIL: [EVIL]})
    monkeypatch.setattr("sys.stdin", io.StringIO("yes\n"))
    assert output.confirmed(EVIL)
    output.print_json_line({EVIL: [EVIL]})
    output.print_cells((40,), [EVIL, EVIL])
    output.print_error(Invalid(EVIL, faults=[Fault(EVIL, EVIL), Fault("/x", EVIL)]))
    with pytest.raises(SystemExit):
        run([EVIL])
    printed = capsys.readouterr()
    assert is_harmless(printed.out + printed.err)
    assert r"\x1b]0;owned\x07" in printed.out
    assert r"\x1b]0;owned\x07" in printed.err


def test_no_value_poses_as_another_line(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(COLUMNS, [("job\nfake  succeeded", "boom")], empty="")
    output.print_fields({"error": "boom\nstatus  succeeded"})
    output.print_error(Invalid("boom\nerror: something else"))
    output.print_note("boom\nnote")
    printed = capsys.readouterr()
    assert printed.out.splitlines()[1:] == ["job fake succeeded  boom", "error  boom", "       status  succeeded"]
    assert printed.err.splitlines() == ["error: boom", "  error: something else", "boom", "  note"]


def test_commands_print_only_by_these_functions() -> None:
    allowed = {"output.py", "banner.py"}
    found = [
        f"{path.name}:{node.lineno}"
        for path in Path(horae.cli.__path__[0]).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
        if path.name not in allowed
    ]
    assert found == []


@pytest.mark.parametrize("form", ["text", "json"])
def test_log_lines_have_no_controls_either(monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    stderr = io.StringIO()
    monkeypatch.setenv("HORAE_LOG", form)
    monkeypatch.setattr("sys.stderr", stderr)
    before = structlog.get_config()
    try:
        log_setup.configure_logs()
        structlog.get_logger("test").warning("task_failed", error=EVIL, task="demo\x1b[2J")
    finally:
        structlog.configure(**before)
    assert is_harmless(stderr.getvalue())
    assert "demo" in stderr.getvalue()
