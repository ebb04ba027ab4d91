"""What a person sees of `horae dev` in a terminal, and what a machine reads of it."""

import json
import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.live import HORAE, environment, free_port, live_horae

READY_SECONDS = 30.0


@dataclass(slots=True, kw_only=True)
class Terminal:
    """A terminal in which a command runs."""

    screen: int
    process: subprocess.Popen[bytes]
    shown: str = field(default="")

    def read_until(self, wanted: str) -> str:
        """Wait for a text and return everything that was shown so far."""
        deadline = time.monotonic() + READY_SECONDS
        while wanted not in self.shown:
            assert time.monotonic() < deadline, f"{wanted!r} was not shown:\n{self.shown}"
            self._read()
        return self.shown

    def read_to_the_end(self) -> str:
        """Return everything that is shown until the command ends."""
        deadline = time.monotonic() + READY_SECONDS
        while self._read():
            assert time.monotonic() < deadline, f"the command does not end:\n{self.shown}"
        return self.shown

    def wait_until_loaded(self, library: str) -> None:
        """Wait until the command is in the middle of its imports, of which this is one."""
        deadline = time.monotonic() + READY_SECONDS
        while library not in Path(f"/proc/{self.process.pid}/maps").read_text():
            assert time.monotonic() < deadline, f"{library} was not imported"
            time.sleep(0.002)

    def _read(self) -> bool:
        """Read what is shown, or nothing after a moment; False when nobody has the terminal open any more."""
        if not select.select([self.screen], [], [], 1)[0]:
            return True
        try:
            piece = os.read(self.screen, 4096)
        except OSError:  # how Linux reports that
            return False
        self.shown += piece.decode().replace("\r\n", "\n")
        return bool(piece)


@contextmanager
def terminal(folder: Path, *words: str, **extra: str) -> Iterator[Terminal]:
    """`horae WORDS` in a terminal without colours."""
    screen, inside = pty.openpty()
    environ = environment() | {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "100"} | extra
    with closing(os.fdopen(screen, "rb", buffering=0)):
        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background may ignore Ctrl-C
        try:
            process = subprocess.Popen(
                [HORAE, *words], cwd=folder, env=environ, stdin=inside, stdout=inside, stderr=inside
            )
        finally:
            signal.signal(signal.SIGINT, before)
            os.close(inside)
        try:
            yield Terminal(screen=screen, process=process)
        finally:
            process.kill()
            process.wait()


def test_dev_greets_a_person_with_address_docs_a_command_that_works_and_how_to_stop(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with terminal(tmp_path, "dev", "--port", url.rpartition(":")[2]) as shown:
        lines = shown.read_until("Ctrl-C").splitlines()
        fields = {label: value for label, _, value in (line.partition("  ") for line in lines) if value}
        assert fields.keys() == {"Address", "API docs", "Try it", "Stop"}
        assert fields["Address"].strip() == url
        assert fields["API docs"].strip() == f"{url}/docs"
        assert "event=" not in shown.shown
        command = fields["Try it"].partition("(")[0]
        whole = environment()
        whole.pop("COLUMNS", None)  # xdist sets it, and a table of 80 columns may cut the name
        tried = subprocess.run(command, shell=True, cwd=tmp_path, env=whole, capture_output=True, text=True)
        assert tried.returncode == 0, tried.stderr
        assert "hello" in tried.stdout


def test_ctrl_c_ends_dev_with_one_line(tmp_path: Path) -> None:
    with terminal(tmp_path, "dev", "--port", str(free_port())) as shown:
        before = shown.read_until("Ctrl-C\n")
        shown.process.send_signal(signal.SIGINT)
        after = shown.read_to_the_end().removeprefix(before).strip()
        assert after == "Stopping; jobs and history are kept. Press Ctrl-C again to end at once."
        assert shown.process.wait(READY_SECONDS) == 0


def test_ctrl_c_while_a_command_starts_shows_no_traceback(tmp_path: Path) -> None:
    with terminal(tmp_path, "dev", "--port", str(free_port())) as shown:
        shown.wait_until_loaded("uvloop")
        shown.process.send_signal(signal.SIGINT)
        assert "Traceback" not in shown.read_to_the_end()
        assert shown.process.wait(READY_SECONDS) in (0, 130, -signal.SIGINT)


def test_a_port_in_use_is_explained_and_nothing_is_started(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    with live_horae(first, "dev") as live:
        port = live.url.rpartition(":")[2]
        result = subprocess.run(
            [HORAE, "dev", "--port", port], cwd=second, env=environment(), capture_output=True, text=True, timeout=30
        )
    assert result.returncode == 2
    assert result.stderr == (
        f"error: port {port} is in use, perhaps by another Horae; stop that one,"
        " or choose another port with --port or HORAE_PORT\n"
    )
    assert list(second.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "extra", "lines"),
    [
        pytest.param(("dev",), {"HORAE_LOG": "json"}, '"event": "ready"', id="json"),
        pytest.param(("serve",), {}, "ready", id="serve"),
    ],
)
def test_log_lines_stay_where_they_are_asked_for(
    tmp_path: Path, words: tuple[str, ...], extra: dict[str, str], lines: str
) -> None:
    with terminal(tmp_path, *words, "--port", str(free_port()), **extra) as shown:
        assert "API docs" not in shown.read_until(lines)


def test_a_log_file_gets_lines_for_machines(tmp_path: Path) -> None:
    with live_horae(tmp_path, "dev") as live:
        pass
    assert live.process.returncode == 0
    events = [json.loads(line)["event"] for line in (tmp_path / "horae.log").read_text().splitlines()]
    assert events == ["listening", "ready", "stopping"]
