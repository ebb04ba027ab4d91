"""A live server that the tests of a worker process share, and commands against it in this process."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from horae.cli.app import run
from tests.cli.commands import CommandResult, JsonOf, RunCommand, answer_of
from tests.live import Live, live_horae


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """One for all, because to start one takes longer than most tests: each test uses names and queues of its own."""
    with live_horae(tmp_path_factory.mktemp("cli"), "dev", "--no-demo") as live:
        yield live


@pytest.fixture
def command(server: Live, alone: RunCommand, monkeypatch: pytest.MonkeyPatch) -> RunCommand:
    """A command against the server; keywords are variables of its environment."""
    monkeypatch.setenv("HORAE_URL", server.url)
    monkeypatch.chdir(server.folder)
    return alone


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> RunCommand:
    """A command without a server, in this process: to start one for each takes most of the time."""
    for name in [name for name in os.environ if name.startswith("HORAE_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)

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
def json_of(command: RunCommand) -> JsonOf:
    """What a command prints as JSON."""
    return lambda *words: answer_of(command(*words, "-o", "json"))
