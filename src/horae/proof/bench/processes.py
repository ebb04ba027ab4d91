"""Starts and stops the nodes of a benchmark: planner and workers as `horae serve` processes."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from horae.core.errors import HoraeError
from horae.ports.store import Store
from horae.proof.bench.start_recorder import FOLDER
from horae.proof.bench.tasks import APP, PARENT

CONCURRENCY = 1_000  # per worker; enough that tasks which do nothing never wait
READY_SECONDS = 30.0
STOP_SECONDS = 10.0
_LAST_LINES = 15  # of the log of a node that failed


class NodeFailed(HoraeError):
    """A process of the benchmark ended, or was not ready in time; the message has the end of its log."""

    def __init__(self, role: str, what: str, log: Path) -> None:
        lines = log.read_text("utf-8", "replace").splitlines()[-_LAST_LINES:]
        super().__init__("\n  ".join([f"the {role} of the benchmark {what}", *lines]))
        self.role = role


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeProcess:
    """A process and its log file."""

    role: str
    process: subprocess.Popen[bytes]
    log: Path


class NodeProcesses:
    """The processes of one benchmark."""

    def __init__(self, running: list[NodeProcess]) -> None:
        self._running = running

    def by_role(self) -> dict[str, list[int]]:
        """Return the process ids by role."""
        pids: dict[str, list[int]] = {}
        for node in self._running:
            pids.setdefault(node.role, []).append(node.process.pid)
        return pids

    def check(self) -> None:
        """Raise NodeFailed if a process has ended."""
        for node in self._running:
            if (code := node.process.poll()) is not None:
                raise NodeFailed(node.role, f"ended with exit code {code}", node.log)

    async def until_ready(self, store: Store) -> None:
        """Wait until all nodes have joined the cluster."""
        deadline = time.monotonic() + READY_SECONDS
        while len(await store.nodes()) < len(self._running):
            self.check()
            if time.monotonic() > deadline:
                last = self._running[-1]
                raise NodeFailed(last.role, f"was not ready after {READY_SECONDS:.0f} s", last.log)
            await asyncio.sleep(0.05)

    def stop(self) -> None:
        """Terminate the processes, and kill those that do not end in time."""
        for node in self._running:
            node.process.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        for node in self._running:
            try:
                node.process.wait(max(deadline - time.monotonic(), 0))
            except subprocess.TimeoutExpired:
                node.process.kill()
                node.process.wait()


@contextmanager
def started_nodes(settings: Mapping[str, str], folder: Path, *, workers: int) -> Iterator[NodeProcesses]:
    """Run a planner and some workers with these environment variables, and stop them at the end."""
    environment = os.environ | settings | {FOLDER: str(folder), PARENT: str(os.getpid())}
    running: list[NodeProcess] = []
    nodes = NodeProcesses(running)
    try:
        for place, role in enumerate(["planner", *["worker"] * workers]):
            running.append(_start(role, environment, folder / f"{place}-{role}.log"))
        yield nodes
    finally:
        nodes.stop()


def _start(role: str, environment: Mapping[str, str], log: Path) -> NodeProcess:
    command = [sys.executable, "-m", "horae", "serve", "--roles", role, "--app", APP, "--concurrency", str(CONCURRENCY)]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C goes only to the benchmark, which then stops its nodes
        )
    return NodeProcess(role=role, process=process, log=log)
