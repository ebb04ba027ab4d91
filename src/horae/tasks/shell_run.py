"""`shell.run`: runs a program with a clean environment, in a process group that ends with the task."""

import asyncio
import errno
import os
import signal
from collections.abc import Mapping
from typing import Annotated, TypedDict

from msgspec import Meta

from horae.core.errors import Fatal
from horae.run import Run, RunLog
from horae.tasks.errors import TaskFailure
from horae.tasks.process_groups import CHUNK, ProcessGroup
from horae.tasks.tools import Tools

MAX_LINE = 8192  # bytes; longer lines are broken in the log
TAIL = 4096  # bytes from the end of the output, kept in the result
LAST_LINES = 5
_INHERITED = {"PATH": os.defpath, "HOME": "/", "LANG": "C.UTF-8", "TZ": "UTC"}  # with defaults
_EOF_SECONDS = 0.5  # after the exit, only a process that left the group can keep the output open
_UNTHROTTLED = 1_000_000  # bytes that are read without a pause
_PAUSE = 0.01  # seconds per chunk after that, while output is searched for secrets and logged
_PAUSE_FULL = 0.001  # seconds per chunk once the log is full: the pipe slows the program to about 16 MB/s
_SHORTAGE = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE})  # temporary, so retried


class NotStarted(TaskFailure):
    """The machine has no resources for another process now."""


class ExitCode(TaskFailure):
    """The program ended with an exit code other than 0."""


class Shell(TypedDict):
    """The result of `shell.run`."""

    exit_code: int
    output: str


class Output:
    """Collects the output of a program: logs its lines and keeps its end."""

    def __init__(self, log: RunLog) -> None:
        self._log = log
        self._tail = b""
        self._partial = b""
        self._taken = 0
        self.full = False

    @property
    def pause(self) -> float:
        """How many seconds to wait after a chunk, which slows the program down."""
        if self.full:
            return _PAUSE_FULL
        return 0 if self._taken <= _UNTHROTTLED else _PAUSE

    def take(self, data: bytes) -> None:
        """Add a chunk of output."""
        self._taken += len(data)
        self._tail = (self._tail + data)[-TAIL:]
        if self.full:
            return
        lines, newline, rest = (self._partial + data).rpartition(b"\n")
        if len(rest) > MAX_LINE:
            lines, newline, rest = lines + newline + rest, b"\n", b""
        self._partial = rest
        if newline:
            self._write(lines)

    def finish(self) -> None:
        """Log a last line without a newline."""
        if self._partial and not self.full:
            self._write(self._partial)

    @property
    def text(self) -> str:
        """The end of the output."""
        return self._tail.decode("utf-8", "replace").replace("\0", "")

    def _write(self, lines: bytes) -> None:
        self.full = not self._log.output(lines.decode("utf-8", "replace"))


async def shell_run(
    run: Run,
    tools: Tools,
    command: Annotated[
        list[str], Meta(min_length=1, description="the program and its arguments; no shell is involved")
    ],
    env: Annotated[
        dict[str, str] | None, Meta(description="variables besides PATH, HOME, LANG, TZ and HORAE_…")
    ] = None,
    cwd: Annotated[str | None, Meta(description="the directory to run in")] = None,
    stdin: Annotated[str | None, Meta(description="text for the standard input")] = None,
) -> Shell:
    """Run a program; its output goes to the log, and an exit code other than 0 is a failure."""
    if not tools.allow_shell:
        raise Fatal("this worker does not allow shell.run; start it with HORAE_ALLOW_SHELL=1")
    output = Output(run.log)
    group = await _spawn(tools, command, _environment(run, env or {}), cwd)
    reading = asyncio.create_task(_read(group, output))
    try:
        group.write((stdin or "").encode())
        group.close_input()
        exit_code = await group.wait()
        group.signal(signal.SIGKILL)  # its remaining children
        await asyncio.wait([reading], timeout=_EOF_SECONDS)
    except asyncio.CancelledError:
        await _terminate(group, tools.grace)
        raise
    finally:
        reading.cancel()
        group.end()
        output.finish()
    if exit_code != 0:
        raise ExitCode(_exit_message(exit_code, output.text))
    return Shell(exit_code=exit_code, output=output.text)


async def _spawn(tools: Tools, command: list[str], env: Mapping[str, str], cwd: str | None) -> ProcessGroup:
    try:
        return await tools.processes.spawn(command, env=env, cwd=cwd, merge_errors=True)
    except (OSError, ValueError) as exc:
        if isinstance(exc, OSError) and exc.errno in _SHORTAGE:
            raise NotStarted(f"cannot run {command[0]!r} now: {exc.strerror}") from exc
        raise Fatal(f"cannot run {command[0]!r}: {_reason(exc, cwd)}") from exc


def _reason(exc: Exception, cwd: str | None) -> str:
    if cwd is not None and not os.path.isdir(cwd):
        return f"there is no directory {cwd!r} on this worker"
    return str(getattr(exc, "strerror", None) or exc)


async def _read(group: ProcessGroup, output: Output) -> None:
    while data := await group.output.read(CHUNK):
        output.take(data)
        await asyncio.sleep(output.pause)


async def _terminate(group: ProcessGroup, grace: float) -> None:
    """Send SIGTERM and wait up to `grace` seconds; the caller kills what is left."""
    group.signal(signal.SIGTERM)
    waiting = asyncio.ensure_future(group.wait())
    try:
        await asyncio.wait([waiting], timeout=grace)
    finally:
        waiting.cancel()


def _environment(run: Run, given: Mapping[str, str]) -> dict[str, str]:
    return {
        **{name: os.environ.get(name, default) for name, default in _INHERITED.items()},
        **given,
        "HORAE_RUN_ID": run.id,
        "HORAE_JOB_ID": run.job_id,
        "HORAE_ATTEMPT": str(run.attempt),
        "HORAE_DUE_AT": run.due_at.isoformat().replace("+00:00", "Z"),
        "HORAE_FENCE": str(run.fence),
    }


def _exit_message(exit_code: int, output: str) -> str:
    how = f"exit code {exit_code}" if exit_code >= 0 else f"killed by signal {-exit_code}"
    last = "\n".join(output.rstrip().splitlines()[-LAST_LINES:])
    return f"{how}: {last}" if last else how
