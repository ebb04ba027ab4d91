"""`shell.run`: a program with a clean environment, as a process group that is gone when the task is."""

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
TAIL = 4096  # bytes of the output that are kept in the result
LAST_LINES = 5
_INHERITED = {"PATH": os.defpath, "HOME": "/", "LANG": "C.UTF-8", "TZ": "UTC"}  # with what holds where they are not set
_EOF_SECONDS = 0.5  # only a process that left the group can hold the output open after the program has ended
_FLOOD = 0.001  # seconds of rest per chunk once the log is full: the pipe holds the program back, at about 16 MB/s
_FREE = 1_000_000  # bytes that are read without a rest
_CHAFF = 0.01  # seconds of rest per chunk beyond that, while it is looked through and little of it is worth keeping


_SHORTAGE = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE})  # of what there may be again later


class NotStarted(TaskFailure):
    """The machine had no room for another program."""


class ExitCode(TaskFailure):
    """The program ended with another code than 0."""


class Shell(TypedDict):
    """The result of `shell.run`."""

    exit_code: int
    output: str


class Output:
    """What a program prints: lines for the log, and the last of it."""

    def __init__(self, log: RunLog) -> None:
        self._log = log
        self._tail = b""
        self._partial = b""
        self._taken = 0
        self.full = False

    @property
    def rest(self) -> float:
        """For how many seconds the program is held back after a chunk."""
        if self.full:
            return _FLOOD
        return 0 if self._taken <= _FREE else _CHAFF

    def take(self, data: bytes) -> None:
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
    command: Annotated[list[str], Meta(min_length=1, description="the program and its arguments; no shell reads them")],
    env: Annotated[dict[str, str] | None, Meta(description="variables beside PATH, HOME, LANG, TZ and HORAE_…")] = None,
    cwd: Annotated[str | None, Meta(description="the directory to run in")] = None,
    stdin: Annotated[str | None, Meta(description="what the program can read")] = None,
) -> Shell:
    """Run a program; its output goes to the log, and an exit code other than 0 is a failure."""
    if not tools.allow_shell:
        raise Fatal("this worker does not run programs; start it with HORAE_ALLOW_SHELL=1 to allow shell.run")
    output = Output(run.log)
    group = await _spawn(tools, command, _environment(run, env or {}), cwd)
    reading = asyncio.create_task(_read(group, output))
    try:
        group.write((stdin or "").encode())
        group.close_input()
        exit_code = await group.wait()
        group.signal(signal.SIGKILL)  # what it has left behind
        await asyncio.wait([reading], timeout=_EOF_SECONDS)
    except asyncio.CancelledError:
        await _terminate(group, tools.grace)
        raise
    finally:
        reading.cancel()
        group.end()
        output.finish()
    if exit_code != 0:
        raise ExitCode(_complaint(exit_code, output.text))
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
        await asyncio.sleep(output.rest)


async def _terminate(group: ProcessGroup, grace: float) -> None:
    """Ask the group to end and give it time; what is left is killed by the caller."""
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


def _complaint(exit_code: int, output: str) -> str:
    how = f"exit code {exit_code}" if exit_code >= 0 else f"killed by signal {-exit_code}"
    last = "\n".join(output.rstrip().splitlines()[-LAST_LINES:])
    return f"{how}: {last}" if last else how
