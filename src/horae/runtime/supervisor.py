"""Runs several processes of the same roles on one machine: restarts those that die, and stops all together."""

import multiprocessing
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from types import FrameType

import structlog

from horae.runtime.stop_signals import END_AT_ONCE, handlers_set

log = structlog.get_logger(__name__)

RESTART_SECONDS = (0.5, 10.0)  # the first and the longest wait before a dead process is restarted
STEADY_SECONDS = 30.0  # a process that lived so long did not fail to start
GRACE_SECONDS = 10.0  # after the drain, before a process that does not end is killed


class Supervisor:
    """Runs `target` in a number of processes until a signal stops it."""

    def __init__(self, target: Callable[[], int], processes: int, *, drain_seconds: float) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._target = target
        self._drain_seconds = drain_seconds
        self._stopping = threading.Event()
        self._interrupted = False  # by a Ctrl-C
        self._children: list[BaseProcess] = []
        self._started: dict[int, float] = {}
        self._waits = [RESTART_SECONDS[0]] * processes

    def run(self) -> int:
        """Block until SIGINT or SIGTERM, stop all processes, and return the worst of their exit codes."""
        with handlers_set(self._on_signal):
            self._children = [self._start() for _ in self._waits]
            while not self._stopping.wait(0.2):
                for place, child in enumerate(self._children):
                    if child.exitcode is not None:
                        self._children[place] = self._replace(place, child)
            return self._stop()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._interrupted and number == signal.SIGINT:
            self._end_at_once()
        self._interrupted = self._interrupted or number == signal.SIGINT
        self._stopping.set()

    def _end_at_once(self) -> None:
        """Kill every process, and end as the system ends a process on Ctrl-C."""
        for child in self._children:
            child.kill()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGINT)

    def _start(self) -> BaseProcess:
        child = self._context.Process(target=_child, args=(self._target, os.getpid()))
        child.start()
        assert child.pid is not None
        self._started[child.pid] = time.monotonic()
        return child

    def _replace(self, place: int, dead: BaseProcess) -> BaseProcess:
        first, longest = RESTART_SECONDS
        assert dead.pid is not None
        lived = time.monotonic() - self._started.pop(dead.pid)
        wait = first if lived > STEADY_SECONDS else self._waits[place]
        self._waits[place] = min(wait * 2, longest)
        wait *= random.uniform(0.5, 1)  # so that processes that died together are not restarted together
        log.warning("process_died", pid=dead.pid, exit_code=dead.exitcode, restarts_in_seconds=round(wait, 1))
        self._stopping.wait(wait)
        return self._start()

    def _stop(self) -> int:
        if self._interrupted:
            log.info("stopping", hint=END_AT_ONCE)
        for child in self._children:
            child.terminate()
        deadline = time.monotonic() + self._drain_seconds + GRACE_SECONDS
        for child in self._children:
            child.join(max(deadline - time.monotonic(), 0))
            if child.exitcode is None:
                log.warning("process_killed", pid=child.pid)
                child.kill()
                child.join()
        return max((abs(child.exitcode or 0) for child in self._children), default=0)


def _child(target: Callable[[], int], parent: int) -> None:
    """Run `target` in a child process, which stops when its parent dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C reaches the whole group; the parent passes it on
    threading.Thread(target=stop_with_parent, args=(parent,), name="horae-parent", daemon=True).start()
    raise SystemExit(target())


def stop_with_parent(parent: int) -> None:
    """Send SIGTERM to this process when its parent is gone; runs in a thread of its own."""
    while os.getppid() == parent:
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGTERM)
