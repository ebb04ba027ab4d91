"""Runs programs for tasks, each in a process group of its own that does not outlive the worker."""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import structlog

log = structlog.get_logger(__name__)

CHUNK = 16_384
_REAP_SECONDS = 2.0  # for a killed process to be gone; only a broken device keeps one longer

# A killed worker cannot clean up: this process waits for its pipe to close, and kills the remaining groups.
_REAPER = """
groups=
while read -r sign group; do
  case $sign in
    +) groups="$groups $group" ;;
    -) rest=; for g in $groups; do [ "$g" = "$group" ] || rest="$rest $g"; done; groups=$rest ;;
  esac
done
for g in $groups; do kill -s KILL -- "-$g" 2>/dev/null; done
"""


class _Streams(asyncio.subprocess.SubprocessStreamProtocol):
    """Reports the exit at once; in Python 3.11 `Process.wait` also waits for the end of the output."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit=2 * CHUNK, loop=loop)
        self.exited: asyncio.Future[None] = loop.create_future()

    def process_exited(self) -> None:
        super().process_exited()
        if not self.exited.done():
            self.exited.set_result(None)


class ProcessGroup:
    """A program and its children, as one process group."""

    def __init__(self, streams: _Streams, transport: asyncio.SubprocessTransport, owner: "ProcessGroups") -> None:
        self._streams = streams
        self._transport = transport
        self._owner = owner
        self.pid = transport.get_pid()  # of the leader, and the id of the group

    @property
    def exit_code(self) -> int | None:
        """The exit code of the leader: negative for a signal, None while it runs."""
        return self._transport.get_returncode()

    @property
    def output(self) -> asyncio.StreamReader:
        assert self._streams.stdout is not None
        return self._streams.stdout

    def write(self, data: bytes) -> None:
        """Queue data for the standard input; dropped if the program no longer reads it."""
        assert self._streams.stdin is not None
        if not self._streams.stdin.is_closing():  # uvloop raises where asyncio drops
            self._streams.stdin.write(data)

    def close_input(self) -> None:
        assert self._streams.stdin is not None
        self._streams.stdin.close()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to every process of the group."""
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            return  # the group has ended
        except PermissionError:  # the remaining members run as another user: the program changed its user
            log.warning("process_group_kill_denied", pid=self.pid)

    async def wait(self) -> int:
        """Wait for the leader to exit."""
        await asyncio.wait([self._streams.exited])
        assert self.exit_code is not None
        return self.exit_code

    def end(self) -> None:
        """Kill what is left of the group, and close its pipes as soon as its leader has exited."""
        self.signal(signal.SIGKILL)
        self._owner.forget(self)
        if self.exit_code is not None:
            self._transport.close()
        else:
            self._owner.reap(self)

    async def close_after_exit(self) -> None:
        """Wait for the killed leader and close the pipes; closing them earlier would lose its exit code."""
        await self.wait()
        self._transport.close()


class ProcessGroups:
    """The process groups of this worker."""

    def __init__(self) -> None:
        self._live: dict[int, ProcessGroup] = {}
        self._starting: set[asyncio.Task[ProcessGroup]] = set()
        self._dying: set[asyncio.Task[None]] = set()
        self._reaper: subprocess.Popen[bytes] | None = None

    async def spawn(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        merge_errors: bool = False,
    ) -> ProcessGroup:
        """Start a program; raises OSError or ValueError. With `merge_errors` stderr goes to stdout."""
        starting = asyncio.get_running_loop().create_task(self._start(command, env, cwd, merge_errors=merge_errors))
        self._starting.add(starting)
        starting.add_done_callback(self._starting.discard)
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:  # let it finish starting, then end it
            starting.add_done_callback(_end_unwanted)
            raise

    async def _start(
        self, command: Sequence[str], env: Mapping[str, str] | None, cwd: str | None, *, merge_errors: bool
    ) -> ProcessGroup:
        loop = asyncio.get_running_loop()
        streams = _Streams(loop)
        transport, _ = await loop.subprocess_exec(
            lambda: streams,
            *command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if merge_errors else None,
            env=env,
            cwd=cwd,
            start_new_session=True,
        )
        group = ProcessGroup(streams, transport, self)
        _prefer_for_oom_kill(group.pid)
        self._live[group.pid] = group
        self._notify_reaper(f"+ {group.pid}\n")
        return group

    def forget(self, group: ProcessGroup) -> None:
        """Remove a group that has ended."""
        if self._live.pop(group.pid, None) is not None:
            self._notify_reaper(f"- {group.pid}\n")

    def reap(self, group: ProcessGroup) -> None:
        """Wait in the background for a killed group."""
        task = asyncio.get_running_loop().create_task(group.close_after_exit())
        self._dying.add(task)
        task.add_done_callback(self._dying.discard)

    async def close(self) -> None:
        """Kill every group and wait until the leaders have exited."""
        if self._starting:
            await asyncio.wait(self._starting)
        for group in list(self._live.values()):
            group.end()
        if self._dying:
            await asyncio.wait(self._dying, timeout=_REAP_SECONDS)
        self._stop_reaper()

    def _notify_reaper(self, line: str) -> None:
        for _ in range(2):
            try:
                if self._reaper is None:  # the first, or the last was killed: a new one needs all groups
                    self._reaper = _start_reaper()
                    line = "".join(f"+ {pid}\n" for pid in self._live)
                assert self._reaper.stdin is not None
                self._reaper.stdin.write(line.encode())
                return
            except BrokenPipeError:
                self._stop_reaper()
            except OSError as exc:  # out of resources; the next group tries again
                log.warning("process_reaper_not_started", error=str(exc))
                return
        log.warning("process_reaper_lost", groups=len(self._live))

    def _stop_reaper(self) -> None:
        if self._reaper is not None and self._reaper.stdin is not None:
            self._reaper.stdin.close()
            self._reaper.wait()
            self._reaper = None


def _prefer_for_oom_kill(pid: int) -> None:
    """Let the kernel kill this program and its children before the worker when memory runs out."""
    with contextlib.suppress(OSError):  # not Linux, or it has ended already
        Path(f"/proc/{pid}/oom_score_adj").write_text("1000")


def _end_unwanted(starting: asyncio.Task[ProcessGroup]) -> None:
    if not starting.cancelled() and starting.exception() is None:
        starting.result().end()


def _start_reaper() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["/bin/sh", "-c", _REAPER],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        bufsize=0,
        start_new_session=True,  # a signal to the worker's own group must not reach it
        cwd="/",
        env={},
    )
