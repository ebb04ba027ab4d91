"""A PostgreSQL of a test's own, that can be stopped at any moment as a power cut would, and started again."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from urllib.parse import quote

from tests.postgres_server import as_server_user, create_cluster, is_ready
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
    """The server, in a temporary folder that is gone at the end; `disk` is where its data lies if not there."""

    def __init__(self, *, disk: Path | None = None, settings: str = "") -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="horae-own-")) / "server"  # short, as the path of a socket must be
        self.folder.parent.chmod(0o755)
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
        """For the test itself, past every proxy."""
        return f"postgresql://postgres@/postgres?host={quote(str(self.folder))}"

    @property
    def socket(self) -> str:
        return str(self.folder / ".s.PGSQL.5432")

    @property
    def alive(self) -> bool:
        """Whether it takes connections."""
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(self.socket) == 0

    def start(self) -> float:
        """Start, wait until it takes connections, and answer how many seconds that took."""
        began = time.monotonic()
        self.stop_at_once()
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        self._process = subprocess.Popen(
            ["sh", "-c", SUPERVISOR, "supervisor", str(self._binaries), str(self.data), str(self.folder / "log")],
            cwd="/",
            stdin=subprocess.PIPE,
            start_new_session=True,
            **as_server_user(),
        )
        eventually(lambda: is_ready(self.data), f"PostgreSQL starts; it said\n{self.log()}", within=60)
        return time.monotonic() - began

    def stop_at_once(self) -> None:
        """`pg_ctl stop -m immediate`: no checkpoint, no farewell; what was committed is in the WAL."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait(30)
            self._process = None

    def log(self) -> str:
        path = self.folder / "log"
        return path.read_text("utf-8", "replace")[-4000:] if os.path.exists(path) else ""
