"""A live server for each module, and commands against it in this process."""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from horae.cli.app import run
from tests.cli.test_cli import CommandResult, RunCommand
from tests.live import Live, live_horae


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live_horae(tmp_path_factory.mktemp("cli"), "dev", "--no-demo") as live:
        yield live


@pytest.fixture
def command(server: Live, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> RunCommand:
    """A command against the server; keywords are variables of its environment."""
    monkeypatch.setenv("HORAE_URL", server.url)
    monkeypatch.chdir(server.folder)

    def command(*words: str, **extra: str) -> CommandResult:
        with monkeypatch.context() as patch:
            patch.delenv("COLUMNS", raising=False)  # so that tables come whole
            for name, value in extra.items():
                patch.setenv(name, value)
            code = run(words)
        printed = capsys.readouterr()
        return CommandResult(returncode=code, stdout=printed.out, stderr=printed.err)

    return command


@pytest.fixture
def json_of(command: RunCommand) -> Callable[..., Any]:
    """What a command prints as JSON."""

    def json_of(*words: str) -> Any:
        result = command(*words, "-o", "json")
        assert result.stdout, result.stderr
        return json.loads(result.stdout)

    return json_of


def until(true: Callable[[], bool], what: str) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
