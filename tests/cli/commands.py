"""Commands as users type them, in a process of their own, and what they print."""

import json
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.live import HORAE, environment


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """What a command printed, and its exit code."""

    returncode: int
    stdout: str
    stderr: str


RunCommand = Callable[..., CommandResult]
JsonOf = Callable[..., Any]


def horae(*words: str, **extra: str) -> subprocess.CompletedProcess[str]:
    """One command as a user types it, in a process of its own."""
    return subprocess.run([HORAE, *words], env=environment() | extra, capture_output=True, text=True, timeout=60)


def until(true: Callable[[], bool], what: str) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def given_dead_letters(json_of: JsonOf, queue: str, count: int) -> list[str]:
    """Failed runs in a queue of their own; their ids."""
    for _ in range(count):
        json_of("jobs", "create", "demo.fail", "--max-retries", "0", "--queue", queue)

    def letters() -> list[str]:
        return [letter["id"] for letter in json_of("dlq", "ls", "--queue", queue)["items"]]

    until(lambda: len(letters()) == count, "they have not failed yet")
    return letters()


def answer_of(result: CommandResult) -> Any:
    """What a command printed as JSON."""
    assert result.stdout, result.stderr
    return json.loads(result.stdout)
