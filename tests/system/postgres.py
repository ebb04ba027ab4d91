"""A PostgreSQL server for one test, which can be stopped as by a power cut and started again."""

import asyncio
import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from urllib.parse import quote

import asyncpg

from tests.postgres_server import as_server_user, create_cluster, is_ready
from tests.system.skew import WallClock
from tests.system.waiting import eventually

MAX_CONNECTIONS = 100
SETTINGS = f"""
max_connections = {MAX_CONNECTIONS}
superuser_reserved_connections = 3
shared_buffers = 128MB
"""

# $1 the binaries, $2 the data folder, $3 the log; ends at once when its input does, so also with us
SUPERVISOR = """
"$1/postgres" -D "$2" >>"$3" 2>&1 &
server=$!
cat >/dev/null
kill -QUIT $server
wait $server
"""


class OwnPostgres:
    """A server in a temporary folder; `disk` is another folder for its data, `wrong_clock` lets its wall clock step."""

    def __init__(self, *, disk: Path | None = None, settings: str = "", wrong_clock: bool = False) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="horae-own-")) / "server"  # short, as the path of a socket must be
        self.folder.parent.chmod(0o755)
        self.clock = WallClock(self.folder.parent / "clock")
        self._environment = {**os.environ, **(self.clock.settings if wrong_clock else {})}
        data = None if disk is None else disk / "data"
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._binaries, self.data = create_cluster(self.folder, SETTINGS + settings, data=data)
        except BaseException:
            self._clear_away()
            raise

    def __enter__(self) -> "OwnPostgres":
        try:
            self.start()
        except BaseException:
            self._clear_away()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._clear_away()

    def _clear_away(self) -> None:
        self.stop_at_once()
        shutil.rmtree(self.folder.parent)

    @property
    def url(self) -> str:
        """The address for the test itself, without a proxy."""
        return f"postgresql://postgres@/postgres?host={quote(str(self.folder))}"

    @property
    def socket(self) -> str:
        return str(self.folder / ".s.PGSQL.5432")

    @property
    def alive(self) -> bool:
        """Whether it accepts connections."""
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(self.socket) == 0

    def start(self) -> float:
        """Start and wait until it accepts connections; return the seconds it took."""
        began = time.monotonic()
        self.stop_at_once()
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        self._process = subprocess.Popen(
            ["sh", "-c", SUPERVISOR, "supervisor", str(self._binaries), str(self.data), str(self.folder / "log")],
            cwd="/",
            env=self._environment,
            stdin=subprocess.PIPE,
            start_new_session=True,
            **as_server_user(),
        )
        eventually(lambda: is_ready(self.data), f"PostgreSQL starts; it said\n{self.log()}", within=60)
        return time.monotonic() - began

    def stop_at_once(self) -> None:
        """Stop with `pg_ctl stop -m immediate`: without a checkpoint, as by a power cut."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait(30)
            self._process = None

    # --- standbys

    def follow(self, primary: "OwnPostgres") -> None:
        """Become the synchronous standby of another server."""
        self.stop_at_once()
        shutil.rmtree(self.data)
        copy = ["--pgdata", str(self.data), "--host", str(primary.folder), "--username", "postgres"]
        self._do("pg_basebackup", *copy, "--write-recovery-conf", "--checkpoint=fast", "--no-sync")
        with open(self.data / "postgresql.conf", "a") as conf:
            conf.write(f"unix_socket_directories = '{self.folder}'\n")
        self.start()
        asyncio.run(primary.wait_for_standby())

    async def wait_for_standby(self) -> None:
        """Acknowledge commits only after a standby has them."""
        connection = await asyncpg.connect(self.url)
        try:
            await connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            await connection.execute("SELECT pg_reload_conf()")
            state = "SELECT sync_state FROM pg_stat_replication"
            async with asyncio.timeout(30):
                while await connection.fetchval(state) != "sync":  # noqa: ASYNC110 - nothing tells of it
                    await asyncio.sleep(0.05)
        finally:
            await connection.close()

    def promote(self) -> None:
        """Become a primary; it accepts writes when this returns."""
        self._do("pg_ctl", "promote", "--pgdata", str(self.data), "--wait")

    def _do(self, program: str, *arguments: str) -> None:
        command = [str(self._binaries / program), *arguments]
        done = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False, **as_server_user())
        assert done.returncode == 0, f"{program} ended with {done.returncode}:\n{done.stdout}{done.stderr}"

    def log(self) -> str:
        path = self.folder / "log"
        return path.read_text("utf-8", "replace")[-4000:] if os.path.exists(path) else ""
