"""The form and the least level of log lines."""

import io
import json
import sys
from collections.abc import Iterator

import pytest
import structlog

from horae.config import load_settings
from horae.core.errors import Misconfigured
from horae.log_setup import configure_logs
from tests.runtime.test_applications import NO_FILE


class Terminal(io.StringIO):
    """A stderr that people read."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def unconfigured_afterwards() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def said(monkeypatch: pytest.MonkeyPatch, level: str = "info", form: str = "", *, terminal: bool = False) -> str:
    """Return what stderr gets of two lines."""
    stderr = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    configure_logs(form, level)
    log = structlog.get_logger()
    log.debug("low", n=1)
    log.warning("high", n=2)
    return stderr.getvalue()


def test_lines_are_json_where_nobody_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    line = json.loads(said(monkeypatch))
    assert (line["event"], line["level"], line["n"]) == ("high", "warning", 2)


def test_text_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "level=warning event=high n=2" in said(monkeypatch, form="text")


@pytest.mark.parametrize(("form", "is_json"), [("", False), ("text", False), ("json", True)])
def test_a_terminal_shows_text_unless_json_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, form: str, is_json: bool
) -> None:
    assert said(monkeypatch, form=form, terminal=True).startswith("{") == is_json


@pytest.mark.parametrize(("level", "events"), [("debug", 2), ("info", 1), ("warning", 1), ("error", 0)])
def test_the_level_is_a_setting(monkeypatch: pytest.MonkeyPatch, level: str, events: int) -> None:
    assert len(said(monkeypatch, level).splitlines()) == events


def test_log_settings_are_read_and_checked() -> None:
    settings = load_settings(environ={"HORAE_LOG": "JSON", "HORAE_LOG_LEVEL": "Warning"}, file=NO_FILE)
    assert (settings.log, settings.log_level) == ("json", "warning")
    for name, value in (("HORAE_LOG", "xml"), ("HORAE_LOG_LEVEL", "loud")):
        with pytest.raises(Misconfigured, match=f"{name} = '{value}'"):
            load_settings(environ={name: value}, file=NO_FILE)
