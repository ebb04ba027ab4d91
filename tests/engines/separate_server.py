"""A server of one test's own, which it may stop, freeze and start again on the same port."""

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType

from tests.engines.shared_server import Recipe, plain_environment, wait_for
from tests.live import free_port


class SeparateServer:
    """One server process with a folder and a port; it ends with the block."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "SeparateServer":
        self._scratch = tempfile.TemporaryDirectory(prefix=f"horae-{self.recipe.name}-", ignore_cleanup_errors=True)
        self.folder = Path(self._scratch.name)
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self._scratch.cleanup()

    @property
    def url(self) -> str:
        """Its address, which stays the same."""
        return f"{self.recipe.scheme}://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process that runs now."""
        assert self._process is not None, f"{self.recipe.name} does not run"
        return self._process.pid

    def start(self) -> None:
        """Start it and wait until it answers."""
        assert self._process is None, f"{self.recipe.name} runs already"
        with open(self.folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                self.recipe.command(self.folder, self.port),
                cwd=self.folder,
                env=plain_environment() | dict(self.recipe.environment(self.folder, self.port)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        wait_for(lambda: self.recipe.answers(self.port), self.recipe.name, self.folder / "log")

    def kill(self) -> None:
        """Kill it with everything that it keeps in memory."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        """Kill it and start it again, empty."""
        self.kill()
        self.start()

    def freeze(self) -> None:
        """Let it answer nothing until it is thawed; its connections stay."""
        os.killpg(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        os.killpg(self.pid, signal.SIGCONT)

    def tell_redis(self, command: str) -> bytes:
        """Send a command of Redis's protocol; return its answer."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as link:
            link.sendall(command.encode() + b"\r\n")
            return link.recv(4096)
