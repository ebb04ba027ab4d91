"""Real `horae` processes on a real store: started, killed, frozen and stopped by their ids."""

import asyncio
import contextlib
import copy
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import httpx2
import psutil  # type: ignore[import-untyped]

from horae.adapters import make_store, opened_store
from horae.config import Settings, load_settings
from horae.proof.checking import Checker, Tolerance, Violation
from tests.live import HORAE, environment, free_port
from tests.system.effects import Effects
from tests.system.rest import Rest
from tests.system.waiting import EPOCH

REPOSITORY = Path(__file__).resolve().parents[2]
APP = "tests.system.tasks:app"
READY_SECONDS = 30.0
TAIL_LINES = 40

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Server:
    """One `horae` process, in a process group of its own."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    roles: frozenset[str]
    url: str | None = None
    options: Sequence[str] = ()  # beside its roles
    settings: Mapping[str, str] = field(default_factory=dict)  # of its environment, beside the cluster's

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> float:
        """Kill with kill -9; return the time."""
        self.process.kill()
        at = time.time()
        self.process.wait()
        return at

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def terminate(self) -> None:
        """Send SIGTERM, as a deployment does."""
        self.process.send_signal(signal.SIGTERM)

    def interrupt(self) -> None:
        """Send SIGINT to the whole group, as Ctrl-C does."""
        os.killpg(self.pid, signal.SIGINT)

    def wait(self, within: float) -> int:
        """Return the exit code if the process ends in time."""
        try:
            return self.process.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} did not end within {within:g} s:\n{self.tail()}") from None

    def stop(self, within: float) -> float:
        """Stop with SIGTERM and expect a clean exit; return the seconds it took."""
        began = time.monotonic()
        self.terminate()
        code = self.wait(within)
        assert code == 0, f"{self.name} ended with {code}:\n{self.tail()}"
        return time.monotonic() - began

    def output(self) -> str:
        return self.log.read_text("utf-8", "replace")

    def tail(self, lines: int = TAIL_LINES) -> str:
        return "\n".join(self.output().splitlines()[-lines:])

    def tree(self) -> list[psutil.Process]:
        """The process and everything that it started."""
        try:
            leader = psutil.Process(self.pid)
            return [leader, *leader.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []


class Cluster:
    """Some processes on one store, with a client."""

    def __init__(self, folder: Path, store: str, **settings: str) -> None:
        self.folder = folder
        self.store = store
        self.servers: list[Server] = []
        self.effects = Effects(folder / "effects.jsonl")
        self.patience = 1.0  # how many times longer than promised things may take here, on a machine that is busy
        self.rest = Rest(self._urls)
        self._settings = settings
        self._strays: list[psutil.Process] = []

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def environment(self) -> dict[str, str]:
        return {
            **environment(),
            "HORAE_STORE": self.store,
            "HORAE_ALLOW_SHELL": "1",
            "EFFECT_LOG": str(self.effects.path),
            "EFFECT_EPOCH": repr(EPOCH),
            "PYTHONPATH": os.pathsep.join([str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]),
            **self._settings,
        }

    def migrate(self) -> None:
        """Do what `horae db migrate` does, without the start of a process."""
        _run_apart(make_store(self._settled.store).migrate())

    def migrate_by(self, settings: Mapping[str, str]) -> None:
        """`horae db migrate` in a process with these settings, which may have other code."""
        command = [HORAE, "db", "migrate"]
        environ = self.environment | dict(settings)
        done = subprocess.run(command, cwd=self.folder, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"horae db migrate ended with {done.returncode}:\n{done.stdout}{done.stderr}"

    def check(self) -> None:
        """Do what `horae check` does: whatever happened to the processes, the store has no violation."""
        violations = _run_apart(self._violations())
        assert not violations, "\n".join(f"{each.code} {each.subject}: {each.detail}" for each in violations)

    async def _violations(self) -> list[Violation]:
        settings = self._settled
        async with opened_store(settings.store) as store:
            since = await store.time() - settings.retention + timedelta(days=1)
            checker = Checker(store, since=since, tolerance=Tolerance(lead=settings.lead_seconds))
            return [violation async for violation in checker.violations()]

    @property
    def _settled(self) -> Settings:
        """The settings of its processes."""
        assert not re.match("sqlite:///[^/]", self.store), "a path that is relative means another file here"
        return load_settings(environ=self.environment, file=self.folder / "horae.toml")

    # --- starting

    def node(
        self,
        roles: str = "api,planner,worker",
        *more: str,
        name: str | None = None,
        wait: bool = True,
        settings: Mapping[str, str] | None = None,
    ) -> Server:
        """`horae serve` with these roles; `settings` are for this node alone."""
        arguments = ["serve", "--roles", roles]
        if "worker" in roles:
            arguments += ["--app", APP]
        server = self.spawn(
            name or roles.replace(",", "+"), [*arguments, *more], roles=frozenset(roles.split(",")), settings=settings
        )
        server.options = more
        if wait:
            self.ready(server)
        return server

    def spawn(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        roles: frozenset[str],
        settings: Mapping[str, str] | None = None,
    ) -> Server:
        """Start `horae ARGUMENTS`, on a free port if it has the API."""
        port = free_port() if "api" in roles else None
        command = [str(HORAE), *arguments, *(["--port", str(port)] if port else [])]
        log = self.folder / f"{len(self.servers):02}-{name.replace('+', '-')}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=self.environment | dict(settings or {}),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        url = f"http://127.0.0.1:{port}" if port else None
        server = Server(
            name=f"{name} (pid {process.pid})",
            process=process,
            log=log,
            roles=roles,
            url=url,
            settings=settings or {},
        )
        self.servers.append(server)
        return server

    def ready(self, *servers: Server, within: float = READY_SECONDS) -> None:
        """Wait until each is ready: by /readyz, or by what it says where it has no API."""
        deadline = time.monotonic() + within
        for server in servers:
            while not self._is_ready(server):
                assert server.alive, f"{server.name} ended with {server.process.returncode}:\n{server.tail()}"
                assert time.monotonic() < deadline, f"{server.name} is not ready in {within:g} s:\n{server.tail()}"
                time.sleep(0.03)

    def _is_ready(self, server: Server) -> bool:
        if server.url is None:
            return "ready" in server.output()
        try:
            return bool(httpx2.get(f"{server.url}/readyz", trust_env=False, timeout=3).is_success)
        except httpx2.TransportError:
            return False

    def _urls(self) -> list[str]:
        urls = [server.url for server in self.servers if server.url is not None and server.alive]
        assert urls, f"no API node is alive\n{self.story()}"
        return urls

    def of_role(self, role: str) -> list[Server]:
        """The live processes with a role."""
        return [server for server in self.servers if role in server.roles and server.alive]

    # --- ending

    def close(self) -> None:
        """Stop every process and all their children."""
        self.rest.close()
        for server in self.servers:
            self._strays += server.tree()
            with contextlib.suppress(ProcessLookupError):  # it has ended, and so has its group
                os.killpg(server.pid, signal.SIGKILL)
            server.process.wait()
        for stray in self._strays:
            if stray.is_running():
                stray.kill()
        psutil.wait_procs(self._strays, timeout=5)

    def at_once(self, *checks: Callable[["Cluster"], object]) -> None:
        """Run several independent checks concurrently, because each mostly waits."""
        with ThreadPoolExecutor(len(checks)) as pool:
            for done in [pool.submit(self._aside, check) for check in checks]:
                done.result()

    def _aside(self, check: Callable[["Cluster"], object]) -> None:
        """Run a check with a client and an effect log reader of its own."""
        other = copy.copy(self)
        other.effects = Effects(self.effects.path)
        with contextlib.closing(Rest(self._urls)) as other.rest:
            other.rest.jobs = self.rest.jobs
            check(other)

    def story(self) -> str:
        """The end of every log and the state of the jobs, for error messages."""
        parts = [f"--- {s.name}, {'alive' if s.alive else s.process.returncode}\n{s.tail()}" for s in self.servers]
        return "\n".join(parts)


def _run_apart(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a thread, because some tests run a loop of their own."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()
