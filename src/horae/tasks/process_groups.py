"""Programs that are run for tasks: each leads a process group, and no group outlives its worker."""

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
_REAP = 2.0  # seconds that a killed process may take to be gone; only a broken device keeps one longer

# A worker that is killed cannot clean up after itself: this waits for its pipe to close, and kills what is left.
_WARDEN = """
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
    """Tells of the exit when it comes: in Python 3.11 `Process.wait` also waits for the end of the output."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit=2 * CHUNK, loop=loop)
        self.exited: asyncio.Future[None] = loop.create_future()

    def process_exited(self) -> None:
        super().process_exited()
        if not self.exited.done():
            self.exited.set_result(None)


class ProcessGroup:
    """A program and its children."""

    def __init__(self, streams: _Streams, transport: asyncio.SubprocessTransport, owner: "ProcessGroups") -> None:
        self._streams = streams
        self._transport = transport
        self._owner = owner
        self.pid = transport.get_pid()  # of the leader, and the number of the group

    @property
    def exit_code(self) -> int | None:
        """Of the leader; negative for a signal, None while it runs."""
        return self._transport.get_returncode()

    @property
    def output(self) -> asyncio.StreamReader:
        assert self._streams.stdout is not None
        return self._streams.stdout

    def write(self, data: bytes) -> None:
        """Queue data for the standard input; nothing happens when nobody reads it any more."""
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
            return  # it is gone
        except PermissionError:  # the members left are another user's: a program that changed its user
            log.warning("process_group_not_ours", pid=self.pid)

    async def wait(self) -> int:
        """Wait for the leader to exit."""
        await asyncio.wait([self._streams.exited])
        assert self.exit_code is not None
        return self.exit_code

    def end(self) -> None:
        """Kill what is left of the group, and let go of its pipes as soon as its leader is gone."""
        self.signal(signal.SIGKILL)
        self._owner.forget(self)
        if self.exit_code is not None:
            self._transport.close()
        else:
            self._owner.bury(self)

    async def bury(self) -> None:
        """Wait for the killed leader; to close the pipes earlier would race for its exit code."""
        await self.wait()
        self._transport.close()


class ProcessGroups:
    """The programs that this worker runs."""

    def __init__(self) -> None:
        self._live: dict[int, ProcessGroup] = {}
        self._starting: set[asyncio.Task[ProcessGroup]] = set()
        self._dying: set[asyncio.Task[None]] = set()
        self._warden: subprocess.Popen[bytes] | None = None

    @property
    def live(self) -> list[int]:
        """The numbers of the groups that have not ended."""
        return list(self._live)

    async def spawn(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        merge_errors: bool = False,
    ) -> ProcessGroup:
        """Start a program; raises OSError or ValueError when it cannot be. With `merge_errors` both outputs are one."""
        starting = asyncio.get_running_loop().create_task(self._start(command, env, cwd, merge_errors=merge_errors))
        self._starting.add(starting)
        starting.add_done_callback(self._starting.discard)
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:  # half started, it could be neither used nor ended
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
        _let_go_first(group.pid)
        self._live[group.pid] = group
        self._tell_warden(f"+ {group.pid}\n")
        return group

    def forget(self, group: ProcessGroup) -> None:
        """A group has ended."""
        if self._live.pop(group.pid, None) is not None:
            self._tell_warden(f"- {group.pid}\n")

    def bury(self, group: ProcessGroup) -> None:
        """Wait in the background for a group that was killed."""
        task = asyncio.get_running_loop().create_task(group.bury())
        self._dying.add(task)
        task.add_done_callback(self._dying.discard)

    async def close(self) -> None:
        """Kill every group and wait until the leaders are gone."""
        if self._starting:
            await asyncio.wait(self._starting)
        for group in list(self._live.values()):
            group.end()
        if self._dying:
            await asyncio.wait(self._dying, timeout=_REAP)
        if self._warden is not None:
            self._dismiss(self._warden)

    def _tell_warden(self, line: str) -> None:
        for _ in range(2):
            try:
                if self._warden is None:  # there is none yet, or somebody killed it: a new one must know all groups
                    self._warden = _start_warden()
                    line = "".join(f"+ {pid}\n" for pid in self._live)
                os.write(_input(self._warden), line.encode())
                return
            except BrokenPipeError:
                assert self._warden is not None
                self._dismiss(self._warden)
            except OSError as exc:  # the machine has no room for one; the next group tries again
                log.warning("process_warden_not_started", error=str(exc))
                return
        log.warning("process_warden_lost", groups=len(self._live))

    def _dismiss(self, warden: subprocess.Popen[bytes]) -> None:
        assert warden.stdin is not None
        warden.stdin.close()
        warden.wait()
        self._warden = None


def _let_go_first(pid: int) -> None:
    """When memory runs out, the kernel shall end this program (and what it starts) rather than the worker."""
    with contextlib.suppress(OSError):  # another system than Linux, or it has ended already
        Path(f"/proc/{pid}/oom_score_adj").write_text("1000")


def _end_unwanted(starting: asyncio.Task[ProcessGroup]) -> None:
    if not starting.cancelled() and starting.exception() is None:
        starting.result().end()


def _start_warden() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["/bin/sh", "-c", _WARDEN],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        bufsize=0,
        start_new_session=True,  # a signal to the worker's own group must not reach it
        cwd="/",
        env={},
    )


def _input(warden: subprocess.Popen[bytes]) -> int:
    assert warden.stdin is not None
    return warden.stdin.fileno()
